"""Which entries of the table the lines of one log match. Pure, and bounded in time on logs of any size.

Lines are skimmed in blocks for the plain words of each entry; a regular expression sees only a line that has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.doctor import lines as reading
from orchestrator.doctor.incident import Log
from orchestrator.spec.signatures import Phase, Signature, SignatureTable

BLOCK = 400
"""Lines that are skimmed at once."""
BACK = 5000
"""How far back an earlier line is looked for, in lines."""
NEAR = 50
"""How far back the time of a line without one is looked for, in lines."""
AFTER_STALL = 2
"""How many lines may follow where an engine stalled: what somebody else wrote into the same log."""

ORDER: dict[Phase, int] = {"any": 0, "starting": 1, "loading": 2, "compiling": 3, "serving": 4}


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that an entry matched: ``index`` from 0, ``at`` in seconds of the year (None where nothing says it).

    ``relayed``: an agent quotes what may stand in the log of another rank.
    """

    signature: Signature
    log: int
    index: int
    seen: Mapping[str, str]
    at: float | None
    relayed: bool = False
    outlived: bool = False


@dataclass(slots=True)
class Scan:
    """What a log told: the first hit of every code since the engine came up last, and those before it."""

    hits: dict[str, Hit] = field(default_factory=dict)
    before: dict[str, Hit] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    served_at: float | None = None
    served_index: int = -1

    def add(self, hit: Hit) -> None:
        code = hit.signature.code
        if hit.signature.tells == "wait" or code not in self.hits:
            self.hits[code] = hit
        else:
            known = self.hits[code]
            self.hits[code] = replace(known, seen={**hit.seen, **known.seen})

    def reached(self, phase: Phase, log: Log, index: int) -> None:
        """The engine came to ``phase``: what it waited for before has come; once it serves, it outlived the rest."""
        late = [
            code
            for code, hit in self.hits.items()
            if hit.signature.tells == "wait" and ORDER[hit.signature.phase] < ORDER[phase]
        ]
        for code in late:
            del self.hits[code]
        if phase == "serving":
            self.before |= {code: replace(hit, outlived=True) for code, hit in self.hits.items()}
            self.hits = {}
            self.served_at, self.served_index = _time(log, index), index


def scan(logs: tuple[Log, ...], number: int, table: SignatureTable) -> Scan:
    """Everything that the table knows of in ``logs[number]``."""
    log, found = logs[number], Scan()
    kinds = sorted(table.signatures, key=lambda each: each.tells != "benign")
    for start in range(0, len(log.lines), BLOCK):
        block = [line[: reading.LOOKED_AT] for line in log.lines[start : start + BLOCK]]
        blob = "\n".join(block)
        live = [each for each in kinds if any(text in blob for text in each.has)]
        marks = [each for each in table.milestones if each.has in blob]
        if not live and not marks:
            continue
        for index, line in enumerate(block, start):
            hit = _hit(logs, (number, index), line, live)
            if hit is not None and hit.signature.tells == "benign":
                found.silent.add(index)
            elif hit is not None:
                found.add(hit)
            for mark in marks:
                if mark.has in line:
                    found.reached(mark.phase, log, index)
    return _without_what_moved_on(found, log)


def _hit(logs: tuple[Log, ...], where: tuple[int, int], line: str, kinds: list[Signature]) -> Hit | None:
    """The first entry that knows this line."""
    number, index = where
    for kind in kinds:
        if not any(text in line for text in kind.has):
            continue
        seen = _seen(logs[number], index, kind)
        if seen is None or not (kind.any_level or reading.level(reading.clean(line)) in ("unsaid", "error")):
            continue
        if kind.after and not _earlier(kind.after, logs, where):
            continue
        return Hit(kind, number, index, seen, _time(logs[number], index), reading.relayed(line))
    return None


def _seen(log: Log, index: int, kind: Signature) -> dict[str, str] | None:
    """What the named groups hold, without those that took no part; None when no pattern matches."""
    text = "\n".join(reading.clean(line) for line in log.lines[index : index + kind.lines])
    for pattern in kind.patterns:
        found = re.search(pattern, text)
        if found:
            return {name: value for name, value in found.groupdict().items() if value}
    return None


def _earlier(pattern: str, logs: tuple[Log, ...], where: tuple[int, int]) -> bool:
    """Whether a line before this one matches, or one of another log, whose lines have no order with these."""
    compiled = re.compile(pattern)
    for number, log in enumerate(logs):
        end = where[1] if number == where[0] else len(log.lines)
        if any(compiled.search(line[: reading.LOOKED_AT]) for line in log.lines[max(0, end - BACK) : end]):
            return True
    return False


def _time(log: Log, index: int) -> float | None:
    """When a line was written: its own time, or that of a line shortly before it."""
    near = reversed(log.lines[max(0, index - NEAR) : index + 1])
    return next((at for at in (reading.stamp(line) for line in near) if at is not None), None)


def _without_what_moved_on(found: Scan, log: Log) -> Scan:
    """A place where the engine may stall is one only if it has stood there for long enough."""
    for code, hit in list(found.hits.items()):
        if hit.signature.stalls and not _stalled(hit, log):
            del found.hits[code]
    found.before = {code: hit for code, hit in found.before.items() if hit.signature.tells != "wait"}
    return found


def _stalled(hit: Hit, log: Log) -> bool:
    rest = [line for line in log.lines[hit.index + 1 : hit.index + 200] if line.strip()]
    if len(rest) > AFTER_STALL:
        return False
    if not rest and log.silent_s is not None:
        return log.silent_s >= hit.signature.stalls
    began = next(_clocks(reversed(log.lines[max(0, hit.index - NEAR) : hit.index + 1])), None)
    ends = list(_clocks(iter(rest)))
    return began is not None and bool(ends) and (ends[-1] - began) % reading.DAY_S >= hit.signature.stalls


def _clocks(lines: Iterator[str]) -> Iterator[int]:
    return (at for at in (reading.clock(line) for line in lines) if at is not None)
