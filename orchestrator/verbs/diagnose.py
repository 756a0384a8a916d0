"""``diagnose``: the first cause in logs, from files, from standard input or from what the last failed ``up`` left."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

from orchestrator.doctor.diagnose import diagnose as find
from orchestrator.doctor.incident import Diagnosis, Log
from orchestrator.doctor.wrapping import LOOKED_AT
from orchestrator.run.catalog import Catalog
from orchestrator.spec.problems import SpecError
from orchestrator.spec.signatures import SignatureTable
from orchestrator.verbs import evidence
from orchestrator.verbs.errors import UsageError

CHUNK = 1 << 20
"""How much of a line is in memory at once, in bytes."""

_PACKED = {
    b"\x1f\x8b": "zcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"\xfd7zXZ": "xzcat",
    b"BZh": "bzcat",
    b"PK\3\4": "unzip -p",
}
"""How a packed file begins, and what unpacks it: in its bytes no line is found, which would pass for good news."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What to read: ``files`` (``-`` is standard input, a folder stands for its ``*.log``) and the last evidence.

    ``silent_s`` says how long the writer of the logs has been silent, in seconds, where somebody knows.
    """

    files: tuple[str, ...] = ()
    last: bool = False
    silent_s: float | None = None


def diagnose(catalog: Catalog, sources: Sources) -> Diagnosis:
    """Read everything and find the first cause. Raises ``UsageError`` when there is nothing that can be read."""
    paths = [path for name in sources.files for path in _paths(name)]
    if sources.last:
        paths += _logs_of(_newest())
    if not paths:
        raise UsageError("should name a FILE, - or --last, found none", remedy="sparkctl diagnose --last")
    logs = tuple(_read(path, sources.silent_s) for path in paths)
    if not any(line.strip() for log in logs for line in log.lines):
        where = ", ".join(log.name for log in logs[:3])
        raise UsageError(f"{where}: should hold lines of a log, found none", remedy="docker logs CONTAINER 2>&1 | …")
    return find(logs, table(catalog))


def table(catalog: Catalog) -> SignatureTable:
    """What lines mean. Raises ``UsageError`` for a table that cannot work."""
    try:
        return catalog.signatures()
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None


def first_cause(catalog: Catalog, folder: Path) -> tuple[str, ...]:
    """One line on the first cause in ``folder``, for a failure that is told already; nothing when nobody can say."""
    try:
        found = find(tuple(_read(path) for path in _logs_of(folder)), table(catalog))
    except UsageError:
        return ()
    if found.cause is None:
        return ()
    where = found.cause.witnesses[0]
    whose = f"[{found.cause.code}, rank {where.rank} on {where.node}]"
    return (f"cause: {found.cause.says} {whose}; sparkctl diagnose --last",)


def _paths(name: str) -> list[Path]:
    path = Path(name)
    return _logs_of(path) if name != "-" and path.is_dir() else [path]


def _logs_of(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.log"))
    if not found:
        raise UsageError(f"{folder}: should be a folder with *.log files, found none")
    return found


def _newest() -> Path:
    """The folder of the failure that was kept last."""
    root = evidence.root()
    kept = [(file.stat().st_mtime, file.parent) for file in root.glob("*/*.log")]
    if not kept:
        raise UsageError(f"--last: should find the output of a failed `up` in {root}, found none")
    return max(kept)[1]


def _read(path: Path, silent_s: float | None = None) -> Log:
    """One log. ``NODE-RANK.log`` in the folder of a failure says whose it is."""
    node, _, rank = path.stem.rpartition("-") if path.parent.parent == evidence.root() else ("", "", "")
    try:
        if str(path) == "-":
            _refuse_packed(sys.stdin.buffer, path)
            return Log("standard input", tuple(_lines(sys.stdin.buffer)), silent_s=silent_s)
        with path.open("rb") as file:
            _refuse_packed(file, path)
            return Log(str(path), tuple(_lines(file)), node, rank, silent_s)
    except OSError as error:
        raise UsageError(f"{path}: should be a file that can be read, found {error.strerror}") from None


def _refuse_packed(file: IO[bytes], path: Path) -> None:
    head = file.peek(8) if isinstance(file, BufferedReader) else b""
    tool = next((tool for begins, tool in _PACKED.items() if head.startswith(begins)), "")
    if not tool:
        return
    where = shlex.quote(str(path))
    tar = path.name.endswith((".tar.gz", ".tgz"))
    argv = f"tar -xzOf {where} --wildcards '*.log'" if tar else f"{tool} {where}"
    raise UsageError(f"{path}: should be text, found a packed file", remedy=f"{argv} | sparkctl diagnose -")


def _lines(file: IO[bytes]) -> Iterator[str]:
    """The lines of a log, each cut to what is looked at, and what a terminal would show of a line drawn anew."""
    while part := file.readline(CHUNK):
        shown = part.rstrip(b"\r\n").rpartition(b"\r")[2]
        yield shown[: 4 * LOOKED_AT].decode("utf-8", "replace")[:LOOKED_AT]
        while part and not part.endswith(b"\n"):
            part = file.readline(CHUNK)
