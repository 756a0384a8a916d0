"""One line of output: whose it is, at which level it was said, when, and whether it looks fatal. Pure.

The agent has a reader of its own (it travels alone); this one also knows what collectors put in front of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

Level = Literal["news", "warning", "error", "unsaid"]

# "spark-1:31:31 [0] " (NCCL), "Nov 30 12:00:00 spark-1 docker[123]: " (journald)
_SYSLOG = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? "
_HOSTED = re.compile(rf"^(?:(?P<nccl>[\w.-]{{1,64}}):\d+:\d+ \[\d+\] |{_SYSLOG}(?P<host>[\w.-]{{1,64}}) )")
_MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_VLLM = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d "
_RAY = r"\[[\d-]{10} [\d:,.]+ [DIWEFC] \d+ \d+\]"
# What stands before the words of a program: who wrote, when and where. One of these at a time.
_FRONTS = (
    r"[ \t]+",  # indented
    r"> ",  # quoted in a mail
    rf"(?:\[{_MOMENT}\]|{_MOMENT})(?:[\t ]+(?:- )?|$)",
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})? ",
    r"\d{10,19}[\t ]",  # seconds or less since 1970
    rf"{_SYSLOG}[\w.-]{{1,64}} ",
    r"(?:[\w.-]{1,64} )?[\w./@-]{1,64}\[\d{1,9}\]: ",  # a program and its number (journald)
    r"(?:stdout|stderr) [FP] ",  # the container runtime of Kubernetes
    r"[\w./-]{1,200}\.(?:log|txt|out)[:-]",  # grep
    r"\d{1,9}:(?!\d\d:\d\d)",  # grep -n
    r"[\w.-]{1,64} +(?:(?:\d{1,4}|gateway) +)?\| ?",  # compose
    r"(?!error|fatal)[a-z][a-z0-9_.-]{0,40}: ",  # a step of the agent, a host of pdsh
    r"\([A-Za-z][^()]{0,60}\) ?",  # a process of vLLM or of Ray
    r"\[[^\[\]]{1,100}\](?::? |:|$)",  # a rank of torchrun, a pod of kubectl, a host, the seconds of the kernel
    # Whatever else stands before the level and the time of vLLM or of Ray.
    rf"(?:[^\s:]{{1,80}}\s+){{1,6}}(?={_VLLM}|{_RAY})",
)
_FRONT = re.compile(rf"^(?:{'|'.join(_FRONTS)})")
MOST_FRONTS = 10
"""How many of them are taken off."""
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

# What every line that looks fatal has one of; most lines are not looked at any closer.
_NAMES = ("rror", "ERR", "atal", "FATAL", "CRITICAL", "PANIC", "xcept", "exc.", "Exit", "fault", "bort", "not found")
_ENDS = ("Exhausted", "Expired", "terminate", "free", "malloc", "llegal", "panicked", "E ")
HINTS = (*_NAMES, *_ENDS, "sparkctl: attempt")
BY_NAME = 2
"""What ``weigh`` says of an error that has a name."""

# A class that is called an error, or one of a module of errors (triton.runtime.errors.OutOfResources).
_ERRORS = r"(?:[A-Z]\w{0,60}(?:Error|Exception|Exit|Exhausted|Expired)|(?:errors?|exc|exceptions)\.[A-Z]\w{0,60})"
_TYPE = rf"(?:[A-Za-z_]\w{{0,60}}\.){{0,8}}{_ERRORS}"
_NAMED = re.compile(rf"(?:^|[\s\])|:]){_TYPE}(?:\(\w+\))?: +\S")
_FATAL = re.compile(
    r"(?:^|[\s:])(?:fatal: |error: |Fatal Python error|terminate called |[Ss]egmentation fault|[Bb]us error"
    r"|[Ii]llegal instruction|double free|malloc\(\): |CUDA error|Aborted \(core dumped\)|[Ee]xec format error"
    r"|command not found|thread '[^']{0,60}'(?: \(\d+\))? panicked at |Error response from daemon: |Value error, (?=\S)"
    r"|Segfault encountered)"
)
_BARE = re.compile(rf"^{_TYPE}$")
_ASIDE = re.compile(r"^\s*(?:raise |except |return |File \"|\^|~|Dumping )|^Traceback |^\s*$")

# What an agent says of its own rank and of the others, with the reason that one of them gave.
_AGENT = re.compile(r"(?:^|[\s\]:|])sparkctl: attempt \d+ (?P<state>\w+)")

# "(EngineCore pid=7) ERROR 11-30 09:38:55 [core.py:900] "
_RECORD = re.compile(r"^.{0,120}?\d\d:\d\d:\d\d \[[\w./]{1,80}:\d{1,6}\]")
_UPTIME = re.compile(r"^\[ *(\d{1,9})\.\d{1,9}\]")
BOOT_S = 120
"""How long a machine starts, in seconds of its kernel."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME = r"(\d\d):(\d\d):(\d\d)"
# 2026-11-30T01:41:04+0100 or vLLM's 11-30 01:41:04; glog's [W1130 01:41:04.1; syslog's Nov 30 01:41:04
_DATED = re.compile(
    rf"(?<![\d-])(?:\d{{4}}-)?(\d\d)-(\d\d)[T ]{_TIME}(?:[.,]\d{{1,9}})?(?:([+-]\d\d):?(\d\d)\b)?"
    rf"|\[[DIWEF](\d{{1,2}})(\d\d) {_TIME}\.|\b({'|'.join(_MONTHS)}) ([ \d]\d) {_TIME}"
)
_CLOCK = re.compile(r"(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])")
DAY_S = 86_400


def host(line: str) -> str:
    """The machine that a line of NCCL or of journald names; empty for other lines."""
    found = next(filter(None, map(_HOSTED.match, _rests(line))), None)
    return (found["nccl"] or found["host"]) if found else ""


def _rests(line: str) -> Iterator[str]:
    """The line, and what is left of it as one thing after another is taken off its front."""
    yield line
    for _ in range(MOST_FRONTS):
        front = _FRONT.match(line)
        if not front:
            return
        line = line[front.end() :]
        yield line


def words(line: str) -> str:
    """The line without who wrote it, when and where."""
    *_, last = _rests(line)
    return last


def level(line: str) -> Level:
    """How its writer meant a line. NCCL has no level above WARN, so that one says nothing."""
    nccl = _NCCL.search(line)
    if nccl:
        return "unsaid" if nccl[1] == "WARN" else "news"
    for rest in _rests(line):
        found = _LETTER.match(rest)
        if found:
            letter = found["ray"] or found["glog"] or found["one"]
            return "news" if letter in "DI" else "warning" if letter == "W" else "error"
        found = _WORD.match(rest)
        if found:
            return "news" if found["news"] else "warning" if found["warning"] else "error"
    return "warning" if _WARNED.search(line) else "unsaid"


def weigh(line: str) -> int:
    """How fatal a line looks: 2 an error by name, 1 something else said at the level of an error, 0 neither."""
    agent = _AGENT.search(line[:300])
    if agent:
        return 1 if agent["state"] in ("stopping", "failed") and "asked to stop" not in line else 0
    how = level(line)
    rest = words(line)
    if how in ("news", "warning") or _ASIDE.search(rest):
        return 0
    if _NCCL.search(line):  # its warning is the word of the error that follows
        return int(bool(_FATAL.search(rest)))
    if _NAMED.search(line) or _FATAL.search(rest) or _BARE.match(rest.strip()):
        return BY_NAME
    said = _WORD.sub("", rest).partition("] ")[2] or rest
    return 1 if how == "error" and not said.startswith(" ") and not _ASIDE.search(said) else 0


def of_request(line: str) -> bool:
    """Whether the process of vLLM that takes requests wrote this line."""
    return "(APIServer" in line[:200]


def relayed(line: str) -> bool:
    """Whether this is an agent's word, which may quote what another rank said."""
    return _AGENT.search(line[:300]) is not None


def detail(line: str) -> bool:
    """Whether pydantic, or a program that docker calls, says here what is wrong with what a line before names."""
    return any(text in line[:300] for text in ("Value error, ", "nvidia-container-cli: "))


def record(line: str) -> str:
    """The front that a logger gave every line of one message: process, level, time and place; empty without one."""
    found = _RECORD.match(line)
    return found[0] if found else ""


def at_boot(line: str) -> bool:
    """Whether this is the kernel's word from the time when it started."""
    found = _UPTIME.match(line)
    return found is not None and int(found[1]) < BOOT_S


def stamp(line: str) -> float | None:
    """Seconds of the year (months count 31 days) of the first dated time in a line; None without one."""
    found = _DATED.search(line[:300])
    if not found:
        return None
    date = next(at for at in (1, 8, 13) if found[at])
    month, *rest = found.groups()[date - 1 : date + 4]
    number = int(month) if month.isdigit() else _MONTHS.index(month) + 1
    day, hour, minute, second = map(int, rest)
    ahead = int(found[6]) * 60 + int(f"{found[6][0]}{found[7]}") if found[6] else 0
    return float(((number * 31 + day) * 24 + hour) * 3600 + (minute - ahead) * 60 + second)


def clock(line: str) -> int | None:
    """Seconds of the day of the first clock time in a line; None without one."""
    found = _CLOCK.search(line[:300])
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) if found else None
