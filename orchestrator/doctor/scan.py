"""Which entries of the table the lines of one log match. Pure, and bounded in time on logs of any size.

Lines are skimmed in blocks for the plain words of each entry; a regular expression sees only a line that has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.doctor import lines as reading
from orchestrator.doctor.incident import Log
from orchestrator.spec.signatures import Phase, Signature, SignatureTable, Stage

BLOCK = 400
"""Lines that are skimmed at once."""
BACK = 5000
"""How far back an earlier line is looked for, in lines."""
NEAR = 50
"""How far back the time of a line without one is looked for, in lines."""
SOON = 6
"""How far ahead, counting the line itself."""
AFTER_STALL = 2
"""How many lines may follow where an engine stalled: what somebody else wrote into the same log."""

# An exception follows that ended nothing: one while Python tidies up, one that ended a single request.
_SHRUG = ("Exception ignored in", "Exception in ASGI application")

ORDER: dict[Phase, int] = {"any": 0, "starting": 1, "loading": 2, "compiling": 3, "serving": 4}


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that an entry matched: ``index`` from 0, ``at`` in seconds of the year (None where nothing says it).

    ``relayed``: an agent quotes what may stand in the log of another rank. ``at_boot``: the kernel had just begun.
    """

    signature: Signature
    log: int
    index: int
    seen: Mapping[str, str]
    relayed: bool = False
    at: float | None = None
    outlived: bool = False
    at_boot: bool = False

    @property
    def proves_death(self) -> bool:
        return self.signature.tells in ("cause", "lost", "echo", "wrapper") and not self.signature.beside_death


@dataclass(frozen=True, slots=True)
class Suspect:
    """A line that looks fatal and that no entry knows; ``named``: it is an error with a name.

    ``of_request``: the process that takes requests wrote it. ``survived``: an answer was begun after it. ``at`` is when
    it probably was written, ``since`` when at the earliest.
    """

    log: int
    index: int
    named: bool
    of_request: bool = False
    survived: bool = False
    at: float | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a log says that the engine came to something."""

    index: int = -1
    at: float | None = None


@dataclass(slots=True)
class Scan:
    """What a log told: the first hit of every code since the engine came up last, and those before it.

    ``suspects`` are since then too: the first error with a name and the first without, by (survived, named). An answer
    may begin though no engine will go on with it, so what survived counts where one died. ``halts`` are the times when
    the engine had ended in order; the last one may be without an end.
    """

    hits: dict[str, Hit] = field(default_factory=dict)
    before: dict[str, Hit] = field(default_factory=dict)
    suspects: dict[tuple[bool, bool], Suspect] = field(default_factory=dict)
    served: Moment | None = None
    answered: Moment | None = None
    halts: list[tuple[Moment, Moment | None]] = field(default_factory=list)
    engine: bool = False

    @property
    def died(self) -> bool:
        """Whether something ended the engine, as far as this log tells."""
        return (False, True) in self.suspects or any(hit.proves_death for hit in self.hits.values())

    @property
    def halted(self) -> bool:
        return bool(self.halts) and self.halts[-1][1] is None

    def add(self, hit: Hit) -> None:
        code, tells = hit.signature.code, hit.signature.tells
        if self.halted and tells in ("lost", "echo", "wrapper"):
            return
        if tells == "wait" or code not in self.hits:
            self.hits[code] = hit
        else:
            known = self.hits[code]
            self.hits[code] = replace(known, seen={**hit.seen, **known.seen})

    def suspect(self, found: Suspect) -> None:
        if not self.halted:
            self.suspects.setdefault((found.survived, found.named), found)

    def reached(self, stage: Stage, index: int) -> None:
        """The engine came to ``stage``; what it waited for, survived or led to by its own end counts no more."""
        self.engine = True
        if stage == "stopped":
            self.suspects.pop((False, False), None)
            if not self.halted and not self.died:
                self.halts.append((Moment(index), None))
            return
        if self.halted and stage != "answering":
            self.halts[-1] = self.halts[-1][0], Moment(index)
        if stage == "answering":
            before, self.suspects = sorted(self.suspects.items(), reverse=True), {}
            for _, one in before:
                if not one.of_request:
                    self.suspect(replace(one, survived=True))
            self.answered = Moment(index)
            return
        if stage != "starting":
            self.suspects.pop((False, False), None)
        self.hits = {
            code: hit
            for code, hit in self.hits.items()
            if hit.signature.tells != "wait" or ORDER[hit.signature.phase] >= ORDER[stage]
        }
        if stage == "serving":
            self.before |= {code: replace(hit, outlived=True) for code, hit in self.hits.items()}
            self.hits, self.suspects = {}, {}
            self.served = self.answered = Moment(index)


def scan(logs: tuple[Log, ...], number: int, table: SignatureTable) -> Scan:
    """Everything that the table knows of in ``logs[number]``, and what looks fatal besides."""
    log, found = logs[number], Scan()
    kinds = sorted(table.signatures, key=lambda each: each.tells != "benign")
    shrugged = False
    for start in range(0, len(log.lines), BLOCK):
        block = log.lines[start : start + BLOCK]
        blob = "\n".join(block)
        words = [(text, each) for each in kinds for text in each.has if text in blob]
        marks = [each for each in table.milestones if each.has in blob]
        hints = [text for text in reading.HINTS if text in blob]
        for index, line in enumerate(block, start):
            near = [each for text, each in words if text in line]
            hit = _hit(logs, (number, index), near) if near else None
            if any(text in line for text in hints):
                shrugged = shrugged or any(text in line for text in _SHRUG)
                weight = 0 if hit else reading.weigh(line)
                if weight == reading.BY_NAME and shrugged:
                    shrugged = False
                elif weight:
                    found.suspect(Suspect(number, index, weight == reading.BY_NAME, reading.of_request(line)))
            if hit and hit.signature.tells != "benign":
                found.add(hit)
            for mark in marks:
                if mark.has in line:
                    found.reached(mark.phase, index)
    return _finished(found, log)


def _hit(logs: tuple[Log, ...], where: tuple[int, int], kinds: list[Signature]) -> Hit | None:
    """The first entry that knows this line; ``kinds`` are those that have a word in it."""
    number, index = where
    line = logs[number].lines[index]
    for kind in kinds:
        seen = _seen(logs[number], index, kind)
        if seen is None or not (kind.any_level or reading.level(line) in ("unsaid", "error")):
            continue
        before = _earlier(kind.after, logs, where) if kind.after else {}
        if before is None:
            continue
        return Hit(kind, number, index, {**before, **seen}, reading.relayed(line), at_boot=reading.at_boot(line))
    return None


def _seen(log: Log, index: int, kind: Signature) -> dict[str, str] | None:
    """What the named groups hold, without those that took no part; None when no pattern matches."""
    text = "\n".join(log.lines[index : index + kind.lines])
    for pattern in kind.patterns:
        found = re.search(pattern, text)
        if found:
            return {name: value for name, value in found.groupdict().items() if value}
    return None


def _earlier(pattern: str, logs: tuple[Log, ...], where: tuple[int, int]) -> dict[str, str] | None:
    """What the first line before this one says, or one of another log, whose lines have no order with these."""
    compiled = re.compile(pattern)
    for number, log in enumerate(logs):
        end = where[1] if number == where[0] else len(log.lines)
        for line in log.lines[max(0, end - BACK) : end]:
            found = compiled.search(line)
            if found:
                return {name: value for name, value in found.groupdict().items() if value}
    return None


def _time(log: Log, index: int) -> float | None:
    """When a line was written, at the earliest: its own time, or that of a line shortly before it."""
    near = reversed(log.lines[max(0, index - NEAR) : index + 1])
    return next((at for at in map(reading.stamp, near) if at is not None), None)


def _times(log: Log, index: int) -> tuple[float | None, float | None]:
    """(when a line was written, at the earliest). One without a time is a program's last word before the next line."""
    since = _time(log, index)
    ahead = (at for at in map(reading.stamp, log.lines[index : index + SOON]) if at is not None)
    return next(ahead, since), since


def _finished(found: Scan, log: Log) -> Scan:
    """With times, and without places where the engine may stall but has not stood for long enough."""

    def timed(hit: Hit) -> Hit:
        return replace(hit, at=_times(log, hit.index)[0])

    def moment(reached: Moment | None) -> Moment | None:
        return reached and replace(reached, at=_time(log, reached.index))

    here = {code: hit for code, hit in found.hits.items() if not hit.signature.stalls or _stalled(hit, log)}
    before = {code: hit for code, hit in found.before.items() if hit.signature.tells != "wait"}
    found.hits = {code: timed(hit) for code, hit in here.items()}
    found.before = {code: timed(hit) for code, hit in before.items()}
    for key, suspect in found.suspects.items():
        at, since = _times(log, suspect.index)
        found.suspects[key] = replace(suspect, at=at, since=since)
    found.served, found.answered = moment(found.served), moment(found.answered)
    found.halts = [(replace(since, at=_time(log, since.index)), moment(until)) for since, until in found.halts]
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
