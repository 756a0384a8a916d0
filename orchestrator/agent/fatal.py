"""The line of a log that says why: the first specific error, not what it led to and not what is only news. Pure.

A line counts by the level that its writer gave it, where it has one: what is said at INFO, DEBUG or WARNING never is
the reason, whatever words stand in it. NCCL has no level above WARN, so its own are hints: they name the cause when
the engine dies of NCCL or of nothing that it can name itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TAIL_LINES = 800
"""How far back a log is read: an engine's death takes a few hundred lines, old troubles lie further up."""
LIMIT = 500
"""The longest reason, in characters."""
_LOOKED_AT = 2000
"""How much of a line is looked at, in characters: engines dump whole states in one, and a search takes long there."""

SPECIFIC, SAID, WRAPPER = range(3)
"""How much a line is worth: an error by name, something else said at the level of an error, what only points back."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# (EngineCore pid=12), (RayWorkerProc pid=7, ip=10.0.0.2), (raylet), [rank1]:
_WHO = re.compile(r"^(?:\([A-Za-z][\w .]*(?:pid=\d+)?(?:, ip=[\w.:]+)?\) ?|\[rank\d+\]:? ?)+")
_WHEN = r"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\]?[\s:|-]*)?"
_WORD = r"(?P<word>V?INFO|DEBUG|TRACE|SUCC|NOTICE|V?WARN(?:ING)?|ERR(?:OR)?|CRITICAL|FATAL|PANIC)"
# What follows a level: vLLM's "11-30 09:38:55 [core.py:12] ", Ray's " scripts.py:12 -- ", uvicorn's ":     ", ":root:".
_WHERE = r"(?::[\w.]+:|[\]:]?(?: \d\d-\d\d \d\d:\d\d:\d\d)?(?: \[[\w.]+:\d+\])?(?: [\w./]+:\d+ --)?(?:[ \t]|$))"
_LEVELLED = re.compile(rf"^\t?{_WHEN}(?:[\w.]+ - )?\[?{_WORD}(?![\w(.]){_WHERE}(?P<says>.*)$")
# Ray's C++ "[2026-11-30 09:38:55,790 E 12 12] (raylet) file.cc:3: ", torch's "[W813 13:53:54.01 TCPStore.cpp:125] ",
# llama.cpp's "E ".
_LETTERED = re.compile(
    r"^(?:\[[\d-]+ [\d:,.]+ (?P<ray>[DIWEFC]) \d+ \d+\](?: \(\w+\))?(?: [\w./]+:\d+:)?"
    r"|\[?(?P<glog>[DIWEF])\d{3,4} [\d:.]+\s[^\]]*\]|(?P<llama>[DIWEF])(?= [A-Z])) ?(?P<says>.*)$"
)
_HARMLESS_WORDS = ("INFO", "DEBUG", "TRACE", "SUCC", "NOTICE", "WARN")
_NCCL = re.compile(r"\bNCCL (?P<word>WARN|INFO|TRACE) (?P<says>.*)$")
_NCCL_BAD = re.compile(
    r"fail|error|unable|no such|could not|cannot|not found|no socket|refused|timed? ?out|returned|status=", re.I
)
_OF_NCCL = re.compile(r"nccl|ProcessGroup|DistBackendError|collective", re.I)

_NAMED = r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Exit|Exhausted|Interrupt)"
_SPECIFIC = re.compile(
    rf"(?:^|[\s\])|:])((?:{_NAMED})(?:\(\w+\))?:\s+\S.*"
    # CUDA, NCCL, torch, gloo, the tools of a compiler
    r"|CUDA (?:driver )?error:?\s.*|NCCL error.*|nccl(?:Unhandled|System|Internal|Remote)\w*Error.*"
    r"|Watchdog caught collective operation timeout.*|Timed out waiting \d+ms for .*"
    r"|ptxas fatal\s*:.*|GGML_ASSERT\(.*|[Aa]ssertion [`'\"].* failed.*"
    # Ray
    r"|Raylet is terminated\..*?(?= Last \d+ lines|$)"
    r"|(?:raylet|gcs_server|log_monitor|monitor|dashboard\w*) \[exit code=[^\]]*\].*"
    # programs, the C library, the kernel
    r"|(?:[\w./ -]{1,60}: )?error: \S.*|fatal: \S.*|error while loading shared libraries: .*|Fatal Python error: .*"
    r"|terminate called .*|Fatal glibc error: .*|\*\*\* stack smashing detected.*|double free or corruption.*"
    r"|(?:malloc|free|realloc|munmap_chunk|calloc)\(\): .*|corrupted (?:size|double-linked).*|corrupted unsorted.*"
    r"|(?:[Mm]emory cgroup )?[Oo]ut of memory.*|[Oo]om-kill:.*|[Nn]o space left on device.*"
    r"|[Ss]egmentation fault.*|[Bb]us error.*|[Ii]llegal instruction.*)"
)
_WHOLE = re.compile(r"has been marked dead|killed due to memory pressure|appears path-like, but doesn't exist!")
"""Words in the middle of a line that is a reason from its beginning."""
_BARE = re.compile(rf"^(?:{_NAMED})$")
_WRAPPER = re.compile(
    r"root cause|stack trace|EngineDeadError|EngineGenerateError|ChildFailedError|WorkerCrashedError"
    r"|engine ?core (?:initialization failed|failed to start|encountered)|output_handler failed"
    r"|RayTaskError|ActorDiedError|ActorUnavailableError|(?:worker ?proc|worker) .*(?:died|initialization failed)"
    r"|WorkerProc|SystemExit|KeyboardInterrupt|CancelledError|BrokenPipeError|ConnectionResetError"
    r"|ConnectionError:? ?$|RuntimeError: (?:cancelled|Executor failed)|Some Ray subprocesses exited",
    re.IGNORECASE,
)
# Lines of a traceback, and what is said at the level of an error but is no reason.
_ASIDE = re.compile(
    r"^\s*(?:raise|except|return|File \"|\^|~)|^Traceback |^\s*$|^Dumping (?:input|scheduler) |^-----|^resource_tracker"
    r"|^Error with model error=ErrorInfo"  # a request was refused
    r"|Remaining processes will be killed"
)
_WARNED = re.compile(r"\b\w*Warning: ")
_MORE = re.compile(rf"^{_NAMED}: .*(?::|validation errors? for \w+)$")
# An exception follows that ended nothing: one while Python tidies up, one that ended a single request.
_SHRUG = ("Exception ignored in", "Exception in ASGI application")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line without its prefixes. ``level`` is "harmless", "error", "hint" (NCCL), or empty where it has none."""

    level: str
    says: str


def _read(line: str) -> _Line:
    """Whose word a line is and at which level."""
    nccl = _NCCL.search(line)
    if nccl:
        bad = nccl["word"] == "WARN" and _NCCL_BAD.search(nccl["says"])
        return _Line("hint" if bad else "harmless", f"NCCL WARN {nccl['says']}".strip())
    line = _WHO.sub("", line)
    found = _LEVELLED.match(line)
    if found:
        word = found["word"].removeprefix("V")
        return _Line("harmless" if word.startswith(_HARMLESS_WORDS) else "error", _WHO.sub("", found["says"]))
    found = _LETTERED.match(line)
    if found:
        letter = found["ray"] or found["glog"] or found["llama"]
        return _Line("harmless" if letter in "DIW" else "error", found["says"])
    return _Line("harmless" if _WARNED.search(line) else "", line)


def _weigh(line: _Line) -> tuple[int, str] | None:
    """What a line is worth as the reason, and its words; None when it says nothing of the kind."""
    if line.level in ("harmless", "hint") or _ASIDE.search(line.says):
        return None
    text = line.says.strip()
    found = _SPECIFIC.search(line.says)
    whole = _BARE.match(line.says) or _WHOLE.search(line.says)
    if _WRAPPER.search(line.says):
        return WRAPPER, found.group(1) if found else text
    if found or whole:
        return SPECIFIC, text if whole or not found else found.group(1).strip()
    # In the middle of a traceback that was logged at this level, the code is indented.
    return (SAID, text) if line.level == "error" and not line.says.startswith(" ") else None


def _weighed(lines: list[_Line]) -> Iterator[tuple[int, str]]:
    """The lines that count, in order, without exceptions that ended nothing."""
    ignored = False
    for index, line in enumerate(lines):
        if line.says.lstrip().startswith(_SHRUG):
            ignored = True
            continue
        found = _weigh(line)
        if found is None:
            continue
        if ignored and found[0] == SPECIFIC:
            ignored = False
            continue
        weight, text = found
        if _MORE.search(text):
            more = [each.says.strip() for each in lines[index + 1 : index + 4] if each.level != "harmless"]
            text = " ".join((text, *more)).strip()
        yield weight, text


def first_fatal(*logs: str) -> str:
    """Why the writer of these logs died: the first specific error of their tails, the first log first.

    Without one the first other line at the level of an error, else the first wrapper, else nothing. At most
    ``LIMIT`` characters.
    """
    best: tuple[int, str] | None = None
    hint = ""
    for log in logs:
        lines = [_read(line[:_LOOKED_AT]) for line in _COLOUR.sub("", log).splitlines()[-TAIL_LINES:]]
        hint = hint or next((line.says for line in lines if line.level == "hint"), "")
        for found in _weighed(lines):
            if best is None or found[0] < best[0]:
                best = found
    if hint and (best is None or best[0] == WRAPPER or _OF_NCCL.search(best[1])):
        return hint[:LIMIT]
    return best[1].strip()[:LIMIT] if best else ""


def last_line(text: str) -> str:
    """The last line that is not blank; at most ``LIMIT`` characters."""
    lines = [line for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    return lines[-1].strip()[:LIMIT] if lines else ""


def last_words(text: str) -> str:
    """The last line, where nothing says that it is only news."""
    last = last_line(text)
    return "" if _read(last).level == "harmless" else last
