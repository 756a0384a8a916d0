"""What an attempt leaves beside its processes, and whose the files are that an agent makes.

vLLM's message queues and Python's semaphores stay in ``/dev/shm`` when their owner is killed (seen with vLLM 0.32: 24
and 240 MB apiece), so what our processes map there is noted while they live and removed when none is left.

In a container the agent is root, but the state directory belongs to the node's user, who must be able to read the
status and to remove everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

SHARED = "/dev/shm/"  # noqa: S108 -- the kernel's name for it


def shared_memory(pids: Iterable[int]) -> set[str]:
    """The files below ``/dev/shm`` that these processes map."""
    found: set[str] = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        found |= {line[line.index(SHARED) :] for line in lines if SHARED in line and not line.endswith(" (deleted)")}
    return found


def remove(files: Iterable[str]) -> None:
    """Unlink each; one that is gone, or is not ours to remove, is passed over."""
    for file in files:
        try:
            Path(file).unlink()
        except OSError:
            continue


def give(path: Path, like: Path) -> None:
    """Make ``path`` belong to the owner of ``like``, where we are root and the owner is not."""
    if os.geteuid() != 0:
        return
    owner = like.stat()
    if owner.st_uid != 0:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def give_all(directory: Path) -> None:
    """``give`` for everything below ``directory``: programs make files of their own there."""
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            try:
                give(Path(folder, name), directory)
            except OSError:
                continue
