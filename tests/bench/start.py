"""``up`` to ready against a script by hand that starts the same Ray and vLLM on the same two lab nodes.

Both begin with the image and the model already on the nodes, and both end with a first chat answer. Needs root.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from orchestrator.plan import runtime
from orchestrator.plan.launch import LaunchPlan, Rank
from orchestrator.plan.load import plan_from_json
from tests.bench.target import at_most
from tests.lab import image as images
from tests.lab import operator as desk
from tests.lab.conftest import made_model, why_not
from tests.lab.nodes import Lab
from tests.lab.rootfs import CACHE
from tests.operator import Operator

ROUNDS = 3
RIVAL = Path(__file__).with_name("rival.sh")


def run() -> list[str]:
    """Seconds of each round in turn, and the difference of the medians."""
    if reason := why_not():
        return [f"not run: {reason}"]
    with tempfile.TemporaryDirectory() as name, Lab(CACHE / "bench", 2) as lab:
        image = images.build(Path(name) / "layout")
        operator = desk.make(Path(name) / "desk", lab, image, made_model())
        _ok(operator, "up", "lab", "--nodes", "2")
        again = _timed(lambda: _ok(operator, "up", "lab", "--nodes", "2"))
        _ok(operator, "down", "lab")
        plan = plan_from_json(operator.run("plan", "lab", "--nodes", "2", "--json").stdout)
        rival = ["bash", str(RIVAL), *(shlex.join(node.ssh) for node in lab.nodes)]
        env = {**os.environ, **by_hand(plan)}
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs.append(_timed(lambda: subprocess.run([*rival, "up"], check=True, env=env)))
            subprocess.run([*rival, "down"], check=True, env=env)
            ours.append(_timed(lambda: _ok(operator, "up", "lab", "--nodes", "2")))
            _ok(operator, "down", "lab")
    more_s = statistics.median(ours) - statistics.median(theirs)
    return [
        _row("script by hand", theirs),
        _row("sparkctl up", ours),
        at_most("sparkctl up against the script (medians)", more_s, 3, "s more"),
        at_most("sparkctl up again, when nothing changes", again, 2, "s"),
    ]


def by_hand(plan: LaunchPlan) -> dict[str, str]:
    """The plan's own docker, Ray and vLLM command lines, for rival.sh; without the agent and what it alone writes.

    By hand there are no token and no key, which are files that ``up`` makes.
    """
    head, worker = (_container(plan, rank) for rank in plan.ranks)
    engine = plan.ranks[0].rank_file.steps[-1].argv
    return {
        "HEAD": head,
        "WORKER": worker,
        "SERVE": shlex.join(("docker", "exec", "--detach", "rival", *engine)),
        "RAY": plan.ranks[0].unit.env["RAY_ADDRESS"],
        "ENGINE": plan.ranks[0].rank_file.service.base_url,
        "MODEL": plan.served_name,
    }


def _container(plan: LaunchPlan, rank: Rank) -> str:
    (ray,) = (step.argv for step in rank.rank_file.steps if step.name == "ray")
    written = rank.rank_file.state_dir
    env = {
        key: value for key, value in rank.unit.env.items() if not value.startswith(written) and key != "RAY_AUTH_MODE"
    }
    inside = ("sh", "-c", 'mkdir -p "$TMPDIR" && exec "$@"', "rival", *ray)
    mounts = tuple(mount for mount in rank.unit.mounts if mount.target in plan.ranks[0].rank_file.steps[-1].argv)
    return shlex.join(runtime.start(plan, replace(rank.unit, name="rival", argv=inside, env=env, mounts=mounts)))


def _ok(operator: Operator, *words: str) -> None:
    done = operator.run(*words)
    if done.returncode:
        sys.exit(f"{words}: {done.stderr[-2000:]}")


def _timed(work: object) -> float:
    began = perf_counter()
    work()  # type: ignore[operator]
    return perf_counter() - began


def _row(what: str, seconds: list[float]) -> str:
    return f"{what:<16}" + " ".join(f"{each:7.1f} s" for each in seconds) + f"   load {os.getloadavg()[0]:.1f}"
