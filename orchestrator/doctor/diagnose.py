"""From logs to the first cause: not the loudest line, and not the last one. Pure.

What decides, in this order: what the engine outlived counts least; a line that names a cause beats what it led to on
any rank, that beats what others only waited for, and a line that points elsewhere never wins. Among equals the earliest
wins, by time where every line has one; without times by phase across logs, and by order within a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from orchestrator.doctor import lines as reading
from orchestrator.doctor.derived import DERIVED, fill
from orchestrator.doctor.incident import Diagnosis, Incident, Log, Witness
from orchestrator.doctor.redact import redact
from orchestrator.doctor.scan import ORDER, Hit, Scan, scan
from orchestrator.spec.signatures import SignatureTable, Tells

LIMIT = 500
"""The longest text of a witness, in characters."""

_WEIGHT: dict[Tells, int] = {"cause": 0, "lost": 1, "echo": 2, "wait": 3, "wrapper": 4, "warning": 5, "benign": 6}
# An exception follows that ended nothing: one while Python tidies up, one that ended a single request.
_SHRUG = ("Exception ignored in", "Exception in ASGI application")
# What every line that looks fatal has one of; most lines are not looked at any closer.
_NAMES = ("rror", "ERR", "atal", "FATAL", "CRITICAL", "PANIC", "xcept", "Exit", "fault", "bort", "not found")
_HINTS = (*_NAMES, "sparkctl: attempt", "Exhausted", "terminate", "free", "malloc", "llegal", "E ")
BY_NAME = 2
"""What ``lines.weigh`` says of an error that has a name."""


def diagnose(logs: tuple[Log, ...], table: SignatureTable) -> Diagnosis:
    """The first cause that ``logs`` tell of, by ``table``, what it led to, and warnings.

    Takes seconds for a hundred megabytes; only the first ``lines.LOOKED_AT`` characters of a line are looked at.
    """
    scans = tuple(scan(logs, number, table) for number in range(len(logs)))
    hits = _settled(scans)
    deaths = [hit for hit in hits if hit.signature.tells != "warning"]
    if any(not hit.outlived for hit in deaths):
        deaths = [hit for hit in deaths if not hit.outlived]
    ordered = sorted(deaths, key=_order(deaths, several=len(logs) > 1))
    named = tuple(_incidents([hit for hit in ordered if hit.signature.tells != "wrapper"], logs))
    warnings = tuple(_incidents([hit for hit in hits if hit.signature.tells == "warning"], logs))
    if named and named[0].tells in ("cause", "lost"):
        return Diagnosis(named[0], named[1:], warnings)
    unknown = _first_fatal(logs, scans, ordered)
    if named:
        return Diagnosis(named[0], named[1:], warnings, unknown[1] if unknown and unknown[0] == BY_NAME else None)
    if unknown is None and ordered and not ordered[0].outlived:
        unknown = (0, _witness(logs[ordered[0].log], ordered[0].index))
    return Diagnosis(warnings=warnings, first_fatal=unknown[1] if unknown else None)


def explain(line: str, table: SignatureTable, *, node: str = "", rank: str = "") -> Incident | None:
    """What the table says of a single line; None when it does not know it."""
    return diagnose((Log("", tuple(line.split("\n")), node, rank),), table).cause


def _settled(scans: tuple[Scan, ...]) -> list[Hit]:
    """All hits; one of a log that never says that the engine serves is outlived by the time of a log that does."""
    served = max((each.served_at for each in scans if each.served_at is not None), default=None)
    found: list[Hit] = []
    for each in scans:
        found += [hit for code, hit in each.before.items() if code not in each.hits]
        for hit in each.hits.values():
            late = each.served_index < 0 and served is not None and hit.at is not None and hit.at < served
            if not (late and hit.signature.tells == "wait"):
                found.append(replace(hit, outlived=late))
    return found


Key = tuple[int, bool, float, int, int, int]


def _order(hits: list[Hit], *, several: bool) -> Callable[[Hit], Key]:
    """By what a line tells; what a rank said itself first; by time if all of a kind have one, else by phase, line."""
    timed = {
        tells: all(hit.at is not None for hit in hits if hit.signature.tells == tells)
        for tells in {hit.signature.tells for hit in hits}
    }

    def key(hit: Hit) -> Key:
        tells = hit.signature.tells
        at = hit.at if several and timed[tells] and hit.at is not None else 0.0
        phase = ORDER[hit.signature.phase] if several else 0
        return (_WEIGHT[tells], hit.relayed, at, phase, hit.index, hit.log)

    return key


def _incidents(hits: Iterable[Hit], logs: tuple[Log, ...]) -> Iterator[Incident]:
    """One incident a code, in the order of the first hit; the same fault seen by two ranks is one."""
    by_code: dict[str, list[Hit]] = {}
    for hit in hits:
        by_code.setdefault(hit.signature.code, []).append(hit)
    for same in by_code.values():
        kind = same[0].signature
        seen = {name: value for hit in reversed(same) for name, value in hit.seen.items()}
        if kind.adds:
            seen[kind.adds] = DERIVED[kind.adds](seen)
        yield Incident(
            kind.code,
            kind.tells,
            kind.phase,
            fill(kind.says, seen),
            fill(kind.remedy, seen),
            kind.rules_out,
            kind.sources,
            tuple(_witness(logs[hit.log], hit.index) for hit in same),
            all(hit.outlived for hit in same),
        )


def _witness(log: Log, index: int) -> Witness:
    line = reading.clean(log.lines[index])
    node, rank, rest = ("", "", line) if log.node else reading.owner(line)
    node = node or reading.host(rest)
    return Witness(log.name, log.node or node, log.rank or rank, index + 1, redact(rest.strip())[:LIMIT])


def _first_fatal(logs: tuple[Log, ...], scans: tuple[Scan, ...], known: list[Hit]) -> tuple[int, Witness] | None:
    """The first line that looks fatal and that the table does not know, one by name before all others."""
    best: tuple[int, Witness] | None = None
    for number, log in enumerate(logs):
        aside = scans[number].silent | {hit.index for hit in known if hit.log == number}
        for index, weight in _fatal_looking(log, scans[number].served_index + 1, aside):
            if best is None or weight > best[0]:
                best = weight, _witness(log, index)
            if weight == BY_NAME:
                return best
    return best


def _fatal_looking(log: Log, start: int, aside: set[int]) -> Iterator[tuple[int, int]]:
    """(index, weight) of the lines from ``start`` on that look fatal, without ``aside`` and what ended nothing."""
    shrugged = False
    for index in range(start, len(log.lines)):
        line = log.lines[index][: reading.LOOKED_AT]
        shrugged = shrugged or any(text in line for text in _SHRUG)
        if index in aside or not any(text in line for text in _HINTS):
            continue
        weight = reading.weigh(reading.clean(line))
        if weight == BY_NAME and shrugged:
            shrugged = False
        elif weight:
            yield index, weight
