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
from pathlib import Path
from time import perf_counter

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
        tag = (
            lab.nodes[0].sh("docker inspect --format '{{.Config.Image}}' $(docker ps -q --filter name=rank-0)").strip()
        )
        _ok(operator, "down", "lab")
        rival = ["bash", str(RIVAL), *(shlex.join(node.ssh) for node in lab.nodes)]
        rival += [*(node.fabric[0] for node in lab.nodes), tag, "/home/spark/models/tiny-moe"]
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs.append(_timed(lambda: subprocess.run([*rival, "up"], check=True)))
            subprocess.run([*rival, "down"], check=True)
            ours.append(_timed(lambda: _ok(operator, "up", "lab", "--nodes", "2")))
            _ok(operator, "down", "lab")
    more_s = statistics.median(ours) - statistics.median(theirs)
    return [_row("script by hand", theirs), _row("sparkctl up", ours), f"sparkctl takes {more_s:+.1f} s (medians)"]


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
