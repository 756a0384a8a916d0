"""Processes of a node as this machine sees them: found under one ancestor, matched by command line, ended for good."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PROC = Path("/proc")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it ended in the meantime
        return ""


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # likewise; Path.glob of Python 3.11 raises here
        return []


def descendants(ancestor: int) -> tuple[int, ...]:
    """The process ids of `ancestor` (none when it is gone) and of all that it started, parents first."""
    if not (_PROC / str(ancestor)).exists():
        return ()
    found = [ancestor]
    for pid in found:
        for task in _listed(_PROC / str(pid) / "task"):
            found += [int(word) for word in _read(task / "children").split()]
    return tuple(found)


def command_line(pid: int) -> str:
    """The words of a process's command line with single spaces; empty for kernel threads, zombies and the gone."""
    return _read(_PROC / str(pid) / "cmdline").replace("\0", " ").strip()


def first_in_namespace(ancestor: int, depth: int) -> int | None:
    """The process under `ancestor` that is number 1 of a pid namespace `depth` levels below this machine's, or None."""
    for pid in descendants(ancestor):
        match = re.search(r"^NSpid:\s+(.*)$", _read(_PROC / str(pid) / "status"), re.MULTILINE)
        numbers = match.group(1).split() if match else []
        if len(numbers) == depth + 1 and numbers[-1] == "1":
            return pid
    return None


def started_at(pid: int) -> str:
    """When a process began, in clock ticks since boot, or empty: with the pid it names one process and no later one."""
    stat = _read(_PROC / str(pid) / "stat")
    return stat.rpartition(")")[2].split()[19] if stat else ""


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    state = _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"


def wait_until(probe: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Asks `probe` every 50 ms until it says yes. Raises TimeoutError naming `what` after `deadline_s`."""
    until = time.monotonic() + deadline_s
    while not probe():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not so after {deadline_s:g} s")
        time.sleep(0.05)


def end(pids: Iterable[int], deadline_s: float = 10) -> None:
    """Kills the processes and waits until they are gone. Raises TimeoutError naming those that stay."""
    started = list(pids)
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(lambda: not any(map(is_alive, started)), f"killed processes {started} are gone", deadline_s)
