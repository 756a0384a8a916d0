"""One process of a rank's start sequence: how it is started, where its output goes, how its end reads."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from orchestrator.agent.proctree import Proc, descendants, look, table
from orchestrator.plan.rankfile import Step

MARK = "SPARKCTL_STATE_DIR"
TAIL_BYTES = 400_000


def environment(step: Step, state_dir: str) -> dict[str, str]:
    """The environment of a step: the agent's, the step's, its secrets read from their files, and the mark.

    Raises ``OSError`` when a secret's file cannot be read.
    """
    secrets = {name: Path(path).read_text().strip() for name, path in step.secret_env.items()}
    return {**os.environ, **step.env, **secrets, MARK: state_dir}


def launch(step: Step, state_dir: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the step's argv in its own session, with its output appended to ``log``. Raises ``OSError``."""
    with log.open("ab") as output:
        return subprocess.Popen(
            step.argv,
            env=environment(step, state_dir),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def ending(returncode: int) -> str:
    """An exit in words."""
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return f"was killed by {name}"


def connects(host: str, port: int, name: str) -> str:
    """Nothing when a TCP connection is accepted, else what was seen instead, with the host by its name."""
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return ""
    except OSError as error:
        return f"port {port} of {name}: {error.strerror or error}"


def tail(log: Path, limit: int = TAIL_BYTES) -> str:
    """The end of a log, or nothing when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


class Children:
    """Processes that a daemon keeps and does not watch itself: once seen below it, the end of one is news.

    Known by name, as the kernel shows it: the first 15 bytes of the program's file name.
    """

    def __init__(self, daemon: int, names: tuple[str, ...]) -> None:
        self.daemon, self.names = daemon, names
        self.seen: dict[str, Proc] = {}

    def ended(self) -> str:
        """Which of them has ended, in words, or nothing."""
        for name, noted in self.seen.items():
            now = look(noted.pid)
            if now is None or now.zombie or now.start_ticks != noted.start_ticks:
                return f"lost its {name} (pid {noted.pid})"
        if len(self.seen) < len(self.names):
            procs = table()
            for pid in descendants([self.daemon], procs):
                if procs[pid].name in self.names and not procs[pid].zombie:
                    self.seen.setdefault(procs[pid].name, procs[pid])
        return ""


def empty(scratch: str) -> None:
    """Make a directory anew, for its owner alone. Raises ``OSError``, also where something else lies there."""
    if os.path.lexists(scratch):
        shutil.rmtree(scratch)
    Path(scratch).mkdir(mode=0o700, parents=True)


class Echo:
    """Copies the complete new lines of a growing log, but a line that repeats the one before only once."""

    def __init__(self, log: Path, prefix: str, say: Callable[[str], None]) -> None:
        self.log, self.prefix, self.say = log, prefix, say
        self.offset, self.rest, self.previous = 0, b"", b""

    def pump(self) -> None:
        try:
            with self.log.open("rb") as file:
                file.seek(self.offset)
                fresh = file.read(1 << 20)
        except OSError:
            return
        self.offset += len(fresh)
        *lines, self.rest = (self.rest + fresh).split(b"\n")
        for line in lines:
            if line != self.previous:
                self.say(f"{self.prefix}{line.decode(errors='replace')}")
            self.previous = line
