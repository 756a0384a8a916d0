"""One line of output: whose it is, at which level it was said, when, and whether it looks fatal. Pure.

The agent has a reader of its own (it travels alone); this one also knows what people paste: merged logs, logs of
docker and compose, kernel logs.
"""

from __future__ import annotations

import re
from typing import Literal

Level = Literal["news", "warning", "error", "unsaid"]

LOOKED_AT = 2000
"""How much of a line is looked at, in characters: engines dump whole states in one line."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# "spark-1 0 | " (sparkctl logs), "head-1  | " (compose)
_MERGED = re.compile(r"^(?P<node>[\w.-]{1,64}) +(?:(?P<rank>\d{1,4}|gateway) +)?\| ?")
# "spark-1:31:31 [0] " (NCCL)
_HOSTED = re.compile(r"^(?P<node>[\w.-]{1,64}):\d+:\d+ \[\d+\] ")
_MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?"
_STAMPED = re.compile(rf"^(?:\[{_MOMENT}\]|{_MOMENT})(?:[\t ]+(?:- )?|$)")
# "engine: " (the agent's name of a step), "(EngineCore pid=12) ", "[rank1]:"
_WHO = re.compile(r"^(?:(?!error|fatal)[a-z][\w-]{0,20}: |\([A-Za-z][^()]{0,60}\) ?|\[[Rr]ank ?\d+\]:? ?)")
_WORD = re.compile(
    r"^(?:[\w.]{1,60} - ){0,2}\[?(?:V?(?P<news>INFO|DEBUG|TRACE|SUCC|NOTICE)|V?(?P<warning>WARN(?:ING)?)"
    r"|(?P<error>ERR(?:OR)?|CRITICAL|FATAL|PANIC))(?=[:\]\s]|$)"
)
_LETTER = re.compile(
    r"^(?:\[[\d-]{10} [\d:,.]+ (?P<ray>[DIWEFC]) \d+ \d+\]|\[?(?P<glog>[DIWEF])\d{3,4} [\d:.]{8,20} "
    r"|(?P<one>[DIWEF]) (?=[A-Z]))"
)
_NCCL = re.compile(r"\bNCCL (WARN|INFO|TRACE) ")
_WARNED = re.compile(r"\b\w{0,40}Warning: ")

_TYPE = r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Exit|Exhausted)"
_NAMED = re.compile(rf"(?:^|[\s\])|:]){_TYPE}(?:\(\w+\))?: +\S")
_FATAL = re.compile(
    r"(?:^|[\s:])(?:fatal: |error: |Fatal Python error|terminate called |[Ss]egmentation fault|[Bb]us error"
    r"|[Ii]llegal instruction|double free|malloc\(\): |CUDA error|Aborted \(core dumped\)|[Ee]xec format error"
    r"|command not found)"
)
_BARE = re.compile(rf"^{_TYPE}$")
_ASIDE = re.compile(r"^\s*(?:raise |except |return |File \"|\^|~|Dumping )|^Traceback |^\s*$")

# What an agent says of its own rank and of the others, with the reason that one of them gave.
_AGENT = re.compile(r"^sparkctl: attempt \d+ (?P<state>\w+)")

# 2026-11-30T01:41:04, 2026-11-30 01:41:04, vLLM's 11-30 01:41:04
_DATED = re.compile(r"(?<![\d-])(?:\d{4}-)?(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_GLOG_TIME = re.compile(r"\[[DIWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.")
_CLOCK = re.compile(r"(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])")
DAY_S = 86_400


def clean(line: str) -> str:
    """The part of a line that is looked at, without colours and the end of the line."""
    line = line[:LOOKED_AT].rstrip("\r\n")
    return _COLOUR.sub("", line) if "\x1b" in line else line


def host(line: str) -> str:
    """The machine that an NCCL line names; empty for other lines."""
    found = _HOSTED.match(words(line))
    return found["node"] if found else ""


def owner(line: str) -> tuple[str, str, str]:
    """(node, rank, rest) of a line of merged logs; node and rank are empty where the line does not say them."""
    found = _MERGED.match(line)
    return (found["node"], found["rank"] or "", line[found.end() :]) if found else ("", "", line)


def words(line: str) -> str:
    """The line without who said it and without a time stamp in front."""
    _, _, rest = owner(line)
    for _ in range(6):
        shorter = _WHO.sub("", _STAMPED.sub("", rest), count=1)
        if shorter == rest:
            break
        rest = shorter
    return rest


def level(line: str) -> Level:
    """How its writer meant a line. NCCL has no level above WARN, so that one says nothing."""
    nccl = _NCCL.search(line)
    if nccl:
        return "unsaid" if nccl[1] == "WARN" else "news"
    for rest in (line, words(line)):
        found = _LETTER.match(rest)
        if found:
            letter = found["ray"] or found["glog"] or found["one"]
            return "news" if letter in "DI" else "warning" if letter == "W" else "error"
    found = _WORD.match(words(line))
    if found:
        return "news" if found["news"] else "warning" if found["warning"] else "error"
    return "warning" if _WARNED.search(line) else "unsaid"


def weigh(line: str) -> int:
    """How fatal a line looks: 2 an error by name, 1 something else said at the level of an error, 0 neither."""
    agent = _AGENT.match(owner(line)[2])
    if agent:
        return 1 if agent["state"] in ("stopping", "failed") and "asked to stop" not in line else 0
    how = level(line)
    rest = words(line)
    if how in ("news", "warning") or _ASIDE.search(rest):
        return 0
    if _NAMED.search(line) or _FATAL.search(rest) or _BARE.match(rest.strip()):
        return 2
    said = _WORD.sub("", rest).partition("] ")[2] or rest
    return 1 if how == "error" and not said.startswith(" ") and not _ASIDE.search(said) else 0


def relayed(line: str) -> bool:
    """Whether this is an agent's word, which may quote what another rank said."""
    return _AGENT.match(owner(line)[2]) is not None


def stamp(line: str) -> float | None:
    """Seconds of the year (months count 31 days) of the first dated time in a line; None without one."""
    found = _DATED.search(line[:300]) or _GLOG_TIME.search(line[:300])
    if not found:
        return None
    month, day, hour, minute, second = map(int, found.groups())
    return float(((month * 31 + day) * 24 + hour) * 3600 + minute * 60 + second)


def clock(line: str) -> int | None:
    """Seconds of the day of the first clock time in a line; None without one."""
    found = _CLOCK.search(line[:300])
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) if found else None
