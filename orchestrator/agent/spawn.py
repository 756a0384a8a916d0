"""Runs a process that outlives the one who asked, where there is no container engine to do so.

The pid file holds the start time beside the pid, so that a pid that another process was given is recognised.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.agent.proctree import descendants, living, look, marked, send, table

MARK = "SPARKCTL_SPAWNED"
POLL_S = 0.1


def running(directory: Path, name: str) -> int | None:
    """The pid of the spawned process, or None when it is not there any more."""
    try:
        noted = json.loads((directory / f"{name}.pid").read_text())
        pid, start_ticks = int(noted["pid"]), int(noted["start_ticks"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    proc = look(pid)
    return pid if proc and not proc.zombie and proc.start_ticks == start_ticks else None


def spawn(directory: Path, name: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Start argv in a session of its own, its output appended to ``NAME.log``; returns an exit code."""
    pid = running(directory, name)
    if pid is not None:
        print(f"{name} is already running as pid {pid}; halt it first", file=sys.stderr)
        return 1
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with (directory / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                tuple(argv),
                env={**os.environ, **env, MARK: str(directory.resolve() / name)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        print(f"{name} cannot be started: {error}", file=sys.stderr)
        return 1
    proc = look(child.pid)
    noted = {"pid": child.pid, "start_ticks": proc.start_ticks if proc else 0}
    fresh = directory / f"{name}.pid.new"
    fresh.write_text(json.dumps(noted))
    fresh.replace(directory / f"{name}.pid")
    print(child.pid)
    return 0


def halt(directory: Path, name: str, grace_s: float, scratch: Path | None = None) -> int:
    """SIGTERM, wait, then SIGKILL it and all that came of it, then remove ``scratch``. 0 also when it was not there."""
    pid = running(directory, name)
    until = time.monotonic() + grace_s
    if pid is not None:
        send([pid], signal.SIGTERM)
        while running(directory, name) is not None and time.monotonic() < until:
            time.sleep(POLL_S)
    while left := _remains(directory, name):
        # Stopped first, so that none starts another one while the others are being killed.
        send(left, signal.SIGSTOP)
        send(_remains(directory, name), signal.SIGKILL)
        if time.monotonic() > until + grace_s + 10:
            print(f"{name}: pids {sorted(left)} do not end, even after SIGKILL", file=sys.stderr)
            return 1
        time.sleep(POLL_S)
    (directory / f"{name}.pid").unlink(missing_ok=True)
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _remains(directory: Path, name: str) -> set[int]:
    procs = table()
    stray = marked(f"{MARK}={directory.resolve() / name}", str(directory.resolve() / f"{name}.log"), procs)
    pid = running(directory, name)
    roots = stray | ({pid} if pid else set())
    return living(roots | descendants(roots, procs), procs)


def alive(directory: Path, name: str) -> int:
    """Prints the pid and returns 0, or returns 1."""
    pid = running(directory, name)
    if pid is None:
        return 1
    print(pid)
    return 0
