"""How long a person waits for a command that only thinks: against an empty Python start, turn by turn."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from tests.bench.target import at_most

ROOT = Path(__file__).parents[2]
ROUNDS = 15
NODES = 64
README_PLAN = "plan deepseek-v4-flash --nodes 2"
"""As the README has it: without a cluster file, for example nodes. ``plan tiny`` asks this machine what runs."""


def wide(folder: Path) -> None:
    """A cluster of 64 nodes and a profile that may use all of them."""
    nodes = "".join(
        f"  - {{name: n{i}, ssh: {{host: n{i}, user: me}}, rails: [{{netdev: eth0, address: 10.0.0.{i}}}]}}\n"
        for i in range(1, NODES + 1)
    )
    folder.mkdir(exist_ok=True)
    (folder / "cluster.yaml").write_text(f"topology: switch\nnodes:\n{nodes}")
    profile = (ROOT / "profiles/deepseek-v4-flash.yaml").read_text(encoding="utf-8")
    (folder / "profiles").mkdir()
    (folder / "profiles/wide.yaml").write_text(
        re.sub(r"  max: \d+\n", f"  max: {NODES}\n", profile.replace("name: deepseek-v4-flash\n", "name: wide\n"))
    )


def timed(argv: list[str], folder: Path, env: dict[str, str]) -> float:
    began = perf_counter()
    subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True)
    return perf_counter() - began


def run() -> list[str]:
    """Medians in ms; every round runs each command once, so that a slow moment of the machine hits all of them."""
    command = [str(Path(sys.executable).parent / "sparkctl")]
    plan = [*command, "plan", "wide", "--offline", "--executor", "mp", "--nodes"]
    rivals = {
        "empty Python start": [sys.executable, "-c", "pass"],
        "--version": [*command, "--version"],
        "plan, 2 nodes": [*plan, "2"],
        f"plan, {NODES} nodes": [*plan, str(NODES)],
        README_PLAN: [*command, *README_PLAN.split()],
        "plan tiny": [*command, "plan", "tiny"],
    }
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    taken: dict[str, list[float]] = {name: [] for name in rivals}
    with tempfile.TemporaryDirectory() as name:
        wide(Path(name) / "wide")
        (Path(name) / "empty").mkdir()
        env["HOME"] = str(Path(name) / "empty")
        places = {what: Path(name) / ("empty" if what in (README_PLAN, "plan tiny") else "wide") for what in rivals}
        for what, argv in rivals.items():
            timed(argv, places[what], env)
        for _ in range(ROUNDS):
            for what, argv in rivals.items():
                taken[what].append(timed(argv, places[what], env))
    median = {what: statistics.median(values) * 1000 for what, values in taken.items()}
    lines = [
        f"{what:<34} {value:7.0f} ms  {value / median['empty Python start']:5.1f}x" for what, value in median.items()
    ]
    return [
        *lines,
        at_most("--version", median["--version"], 80, "ms"),
        *(at_most(what, median[what], 250, "ms") for what in ("plan, 2 nodes", README_PLAN, "plan tiny")),
        at_most(f"plan, {NODES} nodes against 2", median[f"plan, {NODES} nodes"] / median["plan, 2 nodes"], 1.5, "x"),
    ]
