"""A model directory on a node: complete already, or made complete with rsync.

Complete means: every file of the manifest with its size, and a stamp beside them. Only the files that are missing or of
another size are sent. rsync writes a file under a temporary name and renames it when it is whole; what an interrupted
copy left is kept apart in ``.sparkctl-partial`` and resumed. Where the manifest has a sha256, the content is read once
before the stamp is written; the stamp says so to every later start.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from orchestrator.plan.actions import SendModel
from orchestrator.run.dockersays import DiskFullError, gigabytes, is_disk_full
from orchestrator.run.images import Talk
from orchestrator.run.modelproof import prove
from orchestrator.run.openssh import Child, Way, cancelled_with
from orchestrator.run.transport import Cancelled, ConnectionLost, DeadlineExceeded, NodeError, Transport

STAMP = ".sparkctl-complete"
PARTIAL = ".sparkctl-partial"
LOOK_DEADLINE_S = 60.0
SILENT_S = 60
_SKIPPED = (".git", ".cache", PARTIAL, STAMP)
_PROGRESS = re.compile(r"\s*([\d,]+)\s+(\d+)%\s+(\S+/s)\s+(\d+:\d\d:\d\d)")

# Exit codes are the answer's first word. NUL separates, for a file's name may hold anything else.
_LOOK = r"""
case $1 in "~") set -- "$HOME" ;; "~/"*) set -- "$HOME/${1#??}" ;; esac
cd -- "$1" 2>/dev/null || { printf 'absent\0'; exit 0; }
printf 'present\0'; head -c 200 .sparkctl-complete 2>/dev/null; printf '\0'
find -L . -type f -printf '%s %P\0'
"""
_FREE = r"""
case $1 in "~") set -- "$HOME" ;; "~/"*) set -- "$HOME/${1#??}" ;; esac
mkdir -p -- "$1" && df -B1 --output=avail -- "$1"
"""
# Written pages are dropped too, so they are flushed first; no root is needed for one's own files.
_DROP = """
import os, sys
for name in sys.stdin.read().split("\\0"):
    if name:
        file = os.open(os.path.join(os.path.expanduser(sys.argv[1]), name), os.O_RDONLY)
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
"""


class ModelMissingError(NodeError):
    """Neither the node nor the operator's machine has the whole model."""


Manifest = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Listing:
    """What a model directory holds: its stamp and the size in bytes of every file, by relative path."""

    stamp: str
    files: Manifest


@dataclass(frozen=True, slots=True)
class Origin:
    """``way`` is ``None`` for this machine. ``download`` is the command that fetches the model, for the remedy."""

    way: Way | None
    download: str = ""


def digest(manifest: Manifest, hashes: Mapping[str, str] = MappingProxyType({})) -> str:
    """The stamp of a manifest: sha256 over its sorted lines of size, path and, where pinned, the content's own."""
    lines = "".join(f"{manifest[path]} {path}\n{hashes.get(path, '')}" for path in sorted(manifest))
    return hashlib.sha256(lines.encode("utf-8", errors="surrogateescape")).hexdigest()


def listing(answer: str) -> Listing:
    """What a node answered to the look. An absent directory is an empty one."""
    first, *parts = answer.split("\0")
    if first != "present":
        return Listing("", {})
    files = {}
    for part in parts[1:]:
        size, space, path = part.partition(" ")
        if space and not _is_skipped(path):
            files[path] = int(size)
    return Listing(parts[0].strip(), files)


def look(transport: Transport, directory: str) -> Listing:
    """What ``directory`` on the node holds; read-only. Raises a ``NodeError``."""
    seen = transport.run(("sh", "-c", _LOOK, "look", directory), deadline_s=LOOK_DEADLINE_S)
    if seen.code != 0:
        raise NodeError(transport.node, f"cannot look into {directory}: {seen.stderr.strip()}")
    return listing(seen.stdout)


def lacking(manifest: Manifest, found: Manifest) -> tuple[str, ...]:
    """The files of ``manifest`` that are missing or have another size, in its order."""
    return tuple(path for path, size in manifest.items() if found.get(path) != size)


def progress(line: str) -> str | None:
    """A line of ``rsync --info=progress2`` in words; ``None`` for any other line."""
    seen = _PROGRESS.match(line)
    if seen is None:
        return None
    return f"{gigabytes(int(seen[1].replace(',', '')))}, {seen[2]} %, {seen[3]}, {seen[4]} left"


def send_model(action: SendModel, transport: Transport, origin: Origin, talk: Talk) -> str:
    """Make the model directory complete on the node; answers what was done. Raises a ``NodeError``."""
    return _Sender(action, transport, origin, talk).run()


class _Sender:
    def __init__(self, action: SendModel, transport: Transport, origin: Origin, talk: Talk) -> None:
        self._action, self._transport, self._origin, self._talk = action, transport, origin, talk
        self._node = action.node
        self._hashes = dict(action.hashes)
        self._end_s = time.monotonic() + action.deadline_s

    def run(self) -> str:
        found = self._look()
        source = Path(self._action.source).expanduser()
        wanted = dict(self._action.manifest) or _files_of(source)
        if not wanted and found.files and found.stamp == digest(found.files):
            return "already there"
        todo = lacking(wanted, found.files)
        if wanted and not todo:
            if found.stamp == digest(wanted, self._hashes):
                return "already there"
            return "already there" + self._seal(wanted)
        self._require(source, wanted, todo)
        self._require_room(sum(wanted[path] for path in todo))
        self._copy(source, todo)
        left = lacking(wanted, self._look().files)
        if left:
            raise NodeError(
                self._node, f"{self._action.target}/{left[0]} should be {wanted[left[0]]} bytes after the copy"
            )
        self._drop_cache(todo)
        sent = f"{len(todo)} {'file' if len(todo) == 1 else 'files'}, {gigabytes(sum(wanted[path] for path in todo))}"
        return f"sent {sent}" + self._seal(wanted)

    def _look(self) -> Listing:
        return look(self._transport, self._action.target)

    def _require(self, source: Path, wanted: Manifest, todo: tuple[str, ...]) -> None:
        """What is to be sent must be here, whole; the way out is the command that fetches it."""
        action, here = self._action, _files_of(source)
        missing = lacking({path: wanted[path] for path in todo}, here)
        if wanted and not missing and not self._is_in_place(source):
            return
        what = (
            f"model {action.model}: {action.target} on the node lacks {_named(todo) if wanted else 'the whole model'}"
        )
        if not here:
            what += f", and {source} on this machine is {'empty' if source.is_dir() else 'not there'}"
        elif missing and not self._is_in_place(source):
            what += f", and {source} on this machine lacks {_named(missing)}"
        fetch = f"{self._origin.download} --local-dir {shlex.quote(str(source))}" if self._origin.download else ""
        raise ModelMissingError(self._node, what, fetch or f"put the model into {source}")

    def _is_in_place(self, source: Path) -> bool:
        """Whether source and target are one directory, so that there is nothing to copy from."""
        target = Path(self._action.target).expanduser()
        return self._origin.way is None and os.path.realpath(source) == os.path.realpath(target)

    def _require_room(self, needed_bytes: int) -> None:
        seen = self._transport.run(("sh", "-c", _FREE, "free", self._action.target), deadline_s=LOOK_DEADLINE_S)
        words = seen.stdout.split()
        if seen.code != 0 or not words or not words[-1].isdigit():
            raise NodeError(
                self._node, f"cannot make {self._action.target}: {seen.stderr.strip() or 'no answer from df'}"
            )
        if int(words[-1]) < needed_bytes:
            raise self._disk_full(f"needs {gigabytes(needed_bytes)} more, {gigabytes(int(words[-1]))} free")

    def _disk_full(self, how: str) -> DiskFullError:
        what = f"the disk that holds {self._action.target} is too full: {how}"
        return DiskFullError(self._node, what, f"make room on {self._node}; see: df -h {self._action.target}")

    def _copy(self, source: Path, todo: tuple[str, ...]) -> None:
        said: list[str] = []

        def line(text: str) -> None:
            words = progress(text)
            if words is not None:
                self._talk.progress(words)
            elif text.strip():
                said.append(text.strip())

        with (
            cancelled_with(self._transport) as cancelled,
            tempfile.NamedTemporaryFile(prefix="sparkctl-files-") as names,
        ):
            names.write("\0".join(todo).encode("utf-8", errors="surrogateescape"))
            names.flush()
            child = Child(self._node, self._argv(source, names.name), "sudo apt-get install rsync")
            try:
                code = child.follow(line, lambda: cancelled() or self._talk.stop() or time.monotonic() > self._end_s)
            finally:
                child.end()
            if cancelled() or self._talk.stop():
                what = f"copying model {self._action.model} was cancelled; what has come over is kept"
                raise Cancelled(self._node, what)
        if code != 0:
            raise self._failed(code, said[-20:])

    def _argv(self, source: Path, names: str) -> tuple[str, ...]:
        way = self._origin.way
        options = ("--times", "--copy-links", "--from0", f"--files-from={names}", f"--partial-dir={PARTIAL}")
        shell = ("--rsh", shlex.join(way.words()), f"--timeout={SILENT_S}") if way else ()
        target = _remote(way, self._action.target) if way else str(Path(self._action.target).expanduser())
        return ("rsync", *options, "--info=progress2", *shell, "--", f"{source}/", f"{target}/")

    def _failed(self, code: int, said: list[str]) -> NodeError:
        model, text = self._action.model, "\n".join(said)
        if time.monotonic() > self._end_s:
            limit_s = self._action.deadline_s
            return DeadlineExceeded(self._node, f"copying model {model} did not end within {limit_s:g} s")
        if is_disk_full(text):
            return self._disk_full("it ran full while the model was copied")
        if "rsync: command not found" in text or "rsync: not found" in text:
            return NodeError(
                self._node, "rsync should be installed on the node, found none", "sudo apt-get install rsync"
            )
        why = next((line for line in said if "rsync error" not in line), text or f"exit code {code}")[:300]
        if code in (10, 12, 30, 255):
            return ConnectionLost(self._node, f"copying model {model} broke off: {why}", "try again: it resumes")
        return NodeError(self._node, f"copying model {model} failed: {why}")

    def _drop_cache(self, sent: Iterable[str]) -> None:
        """On unified memory the page cache of 150 GB just copied is memory that the model wants. Best effort."""
        names = "\0".join(sent).encode("utf-8", errors="surrogateescape")
        self._transport.run(("python3", "-c", _DROP, self._action.target), deadline_s=300.0, stdin=names)

    def _seal(self, manifest: Manifest) -> str:
        """Prove what can be proved, then write the stamp; answers what was proved, for people."""
        if self._hashes:
            prove(self._action, self._transport, self._hashes, self._talk)
        self._transport.put(f"{self._action.target}/{STAMP}", digest(manifest, self._hashes).encode(), 0o644)
        return f"; sha256 of {len(self._hashes)} of {len(manifest)} files is as pinned" if self._hashes else ""


def _files_of(source: Path) -> dict[str, int]:
    """Every file under ``source`` with its size; links count as what they lead to, as in a download cache."""
    found: dict[str, int] = {}
    for folder, names, files in os.walk(source, followlinks=True):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        for name in sorted(files):
            path = Path(folder, name)
            if name not in _SKIPPED and path.is_file():
                found[path.relative_to(source).as_posix()] = path.stat().st_size
    return found


def _is_skipped(path: str) -> bool:
    return any(part in _SKIPPED for part in path.split("/"))


def _remote(way: Way, target: str) -> str:
    """``host:path`` as rsync reads it; a relative path starts at the user's home."""
    host = f"[{way.ssh.host}]" if ":" in way.ssh.host else way.ssh.host
    return f"{host}:{target.removeprefix('~/')}"


def _named(paths: tuple[str, ...]) -> str:
    shown = ", ".join(paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more files"
