"""How long the doctor takes over four nodes of the lab: each with an sshd, a dockerd and two rails of its own.

Rails, pings, docker and disks are all asked. The nodes share the processors of this machine. Needs root.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from tests.bench.target import at_most
from tests.lab import image as images
from tests.lab import operator as desk
from tests.lab.conftest import made_model, why_not
from tests.lab.nodes import Lab
from tests.lab.rootfs import CACHE

NODES = 4
ROUNDS = 5


def run() -> list[str]:
    """The median of some rounds, and what the doctor said in the last line of the last."""
    if reason := why_not():
        return [f"not run: {reason}"]
    taken, last = [], ""
    with tempfile.TemporaryDirectory() as name, Lab(CACHE / "bench", NODES) as lab:
        image = images.build_base(Path(name) / "layout")
        operator = desk.make(Path(name) / "desk", lab, image, made_model())
        for _ in range(ROUNDS):
            began = perf_counter()
            done = operator.run("doctor")
            taken.append(perf_counter() - began)
            last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    seconds = " ".join(f"{each:.2f}" for each in taken)
    return [
        f"doctor, {NODES} lab nodes   {seconds} s   {last}",
        at_most(f"sparkctl doctor on {NODES} lab nodes (median)", statistics.median(taken), 3, "s"),
    ]
