"""A deployment of ``tiny`` in a home of its own: real Ray and real vLLM on two loopback nodes, ports from the OS."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.desk import Desk
from tests.embedded.single import found

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Where an operator stands: a folder, a home and free ports. What is still up at the end is taken down."""
    if shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("there is no haproxy; apt-get install haproxy")
    desk = Desk.make(tmp_path_factory.mktemp("desk"))
    yield desk
    for name in ("tiny", "other"):
        desk.run("down", name)
    left = desk.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"processes outlived `down`: {left}"


@pytest.fixture(scope="session")
def single_answer(desk: Desk) -> str:
    """The greedy answer of one plain vLLM process without sparkctl: what every split must reproduce."""
    script = ROOT / "tests" / "embedded" / "single.py"
    done = subprocess.run(
        [sys.executable, str(script), str(desk.model)], capture_output=True, text=True, env=desk.env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return found(done.stdout)
