"""spawn, alive and halt, as the archive's command line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.rig import STUBBORN, pids_marked, sweep, until


class Runtime:
    """The archive's process runtime in one directory."""

    def __init__(self, archive: Path, directory: Path) -> None:
        self.archive, self.directory = archive, directory
        self.mark = f"SPARKCTL_SPAWNED={directory}/"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command, *rest = words
        argv = (
            sys.executable,
            "-I",
            "-S",
            str(self.archive),
            command,
            "--dir",
            str(self.directory),
            "--name",
            "rank-0",
        )
        return subprocess.run((*argv, *rest), capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def runtime(archive: Path, tmp_path: Path) -> Iterator[Runtime]:
    made = Runtime(archive, tmp_path)
    yield made
    sweep(made.mark)


def test_spawned_it_outlives_the_asker_and_halts_whole(runtime: Runtime) -> None:
    spawned = runtime.run("spawn", "--env", "COLOUR=blue", "--", "sh", "-c", f"echo $COLOUR; {STUBBORN}")
    assert spawned.returncode == 0, spawned.stderr
    pid = int(spawned.stdout)
    assert os.getsid(pid) == pid
    until(lambda: (runtime.directory / "rank-0.log").read_text() == "blue\n", "its output")
    until(lambda: len(pids_marked(runtime.mark)) >= 3, "its child in another session")
    found = runtime.run("alive")
    assert (found.returncode, found.stdout) == (0, f"{pid}\n")
    again = runtime.run("spawn", "--", "true")
    assert again.returncode == 1
    assert f"rank-0 is already running as pid {pid}; halt it first" in again.stderr
    assert runtime.run("halt", "--grace", "0.2").returncode == 0
    assert not pids_marked(runtime.mark)
    assert runtime.run("alive").returncode == 1
    assert not (runtime.directory / "rank-0.pid").exists()
    assert runtime.run("halt").returncode == 0, "halting what is not there is done already"


def test_halt_finds_what_a_killed_process_left(runtime: Runtime) -> None:
    pid = int(runtime.run("spawn", "--", "sh", "-c", STUBBORN).stdout)
    until(lambda: len(pids_marked(runtime.mark)) >= 3, "its child in another session")
    os.kill(pid, signal.SIGKILL)
    until(lambda: runtime.run("alive").returncode == 1, "it is dead")
    assert pids_marked(runtime.mark)
    assert runtime.run("halt", "--grace", "0.2").returncode == 0
    assert not pids_marked(runtime.mark)


def test_a_recycled_pid_is_not_it(runtime: Runtime) -> None:
    noted = {"pid": os.getpid(), "start_ticks": 1}
    (runtime.directory / "rank-0.pid").write_text(json.dumps(noted))
    assert runtime.run("alive").returncode == 1
    assert runtime.run("halt").returncode == 0, "and this test lives on"


def test_what_cannot_be_started_says_so(runtime: Runtime) -> None:
    spawned = runtime.run("spawn", "--", "no-such-program")
    assert spawned.returncode == 1
    assert "rank-0 cannot be started: [Errno 2] No such file or directory: 'no-such-program'" in spawned.stderr
    assert runtime.run("spawn", "--env", "COLOUR", "--", "true").returncode == 2
