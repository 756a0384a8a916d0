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
_HINTS = ("rror", "ERR", "atal", "FATAL", "CRITICAL", "PANIC", "xcept", "Exit", "fault", "bort", "not found")
_MORE_HINTS = ("Exhausted", "terminate", "free", "malloc", "llegal", "E ")


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
    if named:
        return Diagnosis(named[0], named[1:], warnings)
    return Diagnosis(warnings=warnings, first_fatal=_first_fatal(logs, scans, ordered))


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


Key = tuple[int, float, int, int, int]


def _order(hits: list[Hit], *, several: bool) -> Callable[[Hit], Key]:
    """By what a line tells, then by time if every hit of that kind has one, else by phase, log and line."""
    timed = {
        tells: all(hit.at is not None for hit in hits if hit.signature.tells == tells)
        for tells in {hit.signature.tells for hit in hits}
    }

    def key(hit: Hit) -> Key:
        tells = hit.signature.tells
        at = hit.at if several and timed[tells] and hit.at is not None else 0.0
        phase = ORDER[hit.signature.phase] if several else 0
        return (_WEIGHT[tells], at, phase, hit.index, hit.log)

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


def _first_fatal(logs: tuple[Log, ...], scans: tuple[Scan, ...], wrappers: list[Hit]) -> Witness | None:
    """The first line that looks fatal by name, else one at the level of an error, else one that points elsewhere."""
    best: tuple[int, Witness] | None = None
    known = {(hit.log, hit.index) for hit in wrappers}
    for number, (log, seen) in enumerate(zip(logs, scans, strict=True)):
        shrugged = False
        for index in range(seen.served_index + 1, len(log.lines)):
            line = log.lines[index][: reading.LOOKED_AT]
            shrugged = shrugged or any(text in line for text in _SHRUG)
            if not any(text in line for text in (*_HINTS, *_MORE_HINTS)) or index in seen.silent:
                continue
            weight = 0 if (number, index) in known else reading.weigh(reading.clean(line))
            if weight == 2 and shrugged:
                shrugged = False
            elif weight and (best is None or weight > best[0]):
                best = weight, _witness(log, index)
            if best is not None and best[0] == 2:
                return best[1]
    if best is None and wrappers and not wrappers[0].outlived:
        return _witness(logs[wrappers[0].log], wrappers[0].index)
    return best[1] if best else None
