"""Processes as /proc shows them: who descends from whom, who carries our mark, is a pid still the same one.

Ray leaves servers and workers in sessions of their own, so neither process groups nor sessions find all of an
attempt. Descendants do, once this process is a subreaper; and a mark in the environment, or an output that
goes to a file of ours, finds what a killed agent left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36


class Proc(NamedTuple):
    """One line of the process table; ``start_ticks`` tells two users of one pid apart."""

    pid: int
    ppid: int
    name: str
    zombie: bool
    start_ticks: int


def become_subreaper() -> None:
    """Orphans among our descendants come to us instead of init, so that none is lost from sight."""
    if os.getpid() == 1:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) was refused")


def look(pid: int) -> Proc | None:
    """The process of this pid, or None when there is none."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    return Proc(pid, int(fields[1]), head.partition("(")[2], fields[0] in "ZX", int(fields[19]))


def table() -> dict[int, Proc]:
    """Every process visible now."""
    found = (look(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {proc.pid: proc for proc in found if proc}


def descendants(roots: Iterable[int], procs: dict[int, Proc]) -> set[int]:
    """The pids below ``roots``, themselves not included."""
    children: dict[int, list[int]] = {}
    for proc in procs.values():
        children.setdefault(proc.ppid, []).append(proc.pid)
    found: set[int] = set()
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def marked(mark: str, output_dir: str, procs: dict[int, Proc]) -> set[int]:
    """The pids with ``mark`` (``NAME=value``) in their environment or their output below ``output_dir``."""
    return {pid for pid in procs if _has_mark(pid, mark.encode()) or _writes_to(pid, output_dir + "/")}


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _writes_to(pid: int, directory: str) -> bool:
    # Programs that set their title overwrite the environment that /proc shows; their output still tells.
    for fd in (1, 2):
        try:
            if str(Path(f"/proc/{pid}/fd/{fd}").readlink()).startswith(directory):
                return True
        except OSError:
            continue
    return False


def living(pids: Iterable[int], procs: dict[int, Proc]) -> set[int]:
    """Those of ``pids`` that still run: a zombie does not, and this process is never among them."""
    return {pid for pid in pids if pid in procs and not procs[pid].zombie} - {os.getpid()}


def send(pids: Iterable[int], signum: signal.Signals) -> None:
    """Signal each; one that is gone or not ours is passed over."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue
