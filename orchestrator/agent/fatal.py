"""The line of a log that says why: the first specific error, not the wrappers that point back at it. Pure."""

from __future__ import annotations

import re

TAIL_LINES = 800
"""How far back a log is read: an engine's death takes a few hundred lines, old troubles lie further up."""

_SPECIFIC = re.compile(
    r"(?:^|[\s\])|:])((?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Exit|Exhausted)(?:\(\w+\))?:\s+\S.*"
    r"|CUDA (?:driver )?error:?\s.*|NCCL error.*|ncclUnhandled\w+.*|ncclSystemError.*"
    r"|(?:[\w./ -]+: )?error: \S.*|fatal: \S.*|Fatal Python error: .*|terminate called .*"
    r"|[Nn]o space left on device.*|[Ss]egmentation fault.*|[Oo]ut of memory.*)"
)
_WRAPPER = re.compile(
    r"root cause|stack trace|EngineDeadError|EngineGenerateError|ChildFailedError|WorkerCrashedError"
    r"|engine core initialization failed|RayTaskError|ActorDiedError|worker proc \S+ died|SystemExit"
    r"|KeyboardInterrupt|CancelledError|BrokenPipeError|ConnectionResetError|ConnectionError:? ?$",
    re.IGNORECASE,
)
_HARMLESS = re.compile(r"\b(?:WARNING|WARN|INFO|DEBUG)\b|^\s*(?:raise|except|return)\b|\bWarning: ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def first_fatal(text: str) -> str:
    """The first specific error of the log's tail, else the first wrapper; at most 500 characters."""
    wrapper = ""
    for line in _COLOUR.sub("", text).splitlines()[-TAIL_LINES:]:
        if _HARMLESS.search(line):
            continue
        found = _SPECIFIC.search(line)
        if found and not _WRAPPER.search(line):
            return found.group(1).strip()[:500]
        if not wrapper and (found or _WRAPPER.search(line)) and not line.lstrip().startswith("File "):
            wrapper = (found.group(1) if found else line).strip()[:500]
    return wrapper


def last_line(text: str) -> str:
    """The last line that is not blank; at most 500 characters."""
    lines = [line for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    return lines[-1].strip()[:500] if lines else ""
