"""From logs to the first cause: not the loudest line, and not the last one. Pure.

What decides, in this order: what the engine outlived counts least; a line that names a cause beats what it led to on
any rank, that beats what others only waited for, and a line that points elsewhere never wins. Among equals the earliest
wins, by time where every line has one; without times by phase across logs, and by order within a log. An error that
nobody knows beats what came after it and names no reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from orchestrator.doctor.derived import DERIVED, fill
from orchestrator.doctor.incident import Diagnosis, Incident, Log, Witness
from orchestrator.doctor.lines import detail, host, record, weigh
from orchestrator.doctor.redact import redact
from orchestrator.doctor.scan import ORDER, Hit, Moment, Scan, Suspect, scan
from orchestrator.doctor.wrapping import parts
from orchestrator.spec.signatures import SignatureTable, Tells

LIMIT = 500
"""The longest text of a witness, in characters."""
SKEW_S = 2.0
"""How far the clocks of two machines may be apart: what differs by less has no order."""
MESSAGE = 3
"""How many lines what an error says is long."""
NEAR_S = 600.0
"""How long before or after a death of an engine a machine may say why, in seconds."""

_WEIGHT: dict[Tells, int] = {"cause": 0, "lost": 1, "echo": 2, "wait": 3, "wrapper": 4, "warning": 5, "benign": 6}


def diagnose(logs: tuple[Log, ...], table: SignatureTable) -> Diagnosis:
    """The first cause that ``logs`` tell of, by ``table``, what it led to, and warnings.

    Takes about ten seconds for a hundred megabytes of an ordinary log, and a minute where every line looks fatal. Of a
    line the first ``wrapping.LOOKED_AT`` characters are looked at.
    """
    logs = tuple(part for log in logs for part in parts(log))
    scans = tuple(scan(logs, number, table) for number in range(len(logs)))
    hits, suspects = _settled(scans)
    deaths = [hit for hit in hits if hit.signature.tells != "warning"]
    if suspects or any(not hit.outlived for hit in deaths):
        deaths = [hit for hit in deaths if not hit.outlived]
    ordered = sorted(deaths, key=_order(deaths, several=len(logs) > 1))
    known = [hit for hit in ordered if hit.signature.tells != "wrapper"]
    named = tuple(_incidents(known, logs))
    warnings = tuple(_incidents([hit for hit in hits if hit.signature.tells == "warning"], logs))
    if not known:
        fatal = _first(suspects) or next((hit for hit in ordered if not hit.outlived), None)
        return Diagnosis(warnings=warnings, first_fatal=_witness(logs, fatal) if fatal else None)
    errors = [each for each in suspects if each.named]
    first = _first(each for each in errors if _earlier(each, known[0]))
    if first and named[0].tells != "cause":
        return Diagnosis(None, named, warnings, _witness(logs, first))
    if first and _one_message(logs, first, known[0]):
        first = None
    beside = first or _first(each for each in errors if _may_explain(each, known[0]))
    return Diagnosis(named[0], named[1:], warnings, _witness(logs, beside) if beside else None)


def explain(line: str, table: SignatureTable, *, node: str = "", rank: str = "") -> Incident | None:
    """What the table says of a single line; None when it does not know it."""
    return diagnose((Log("", tuple(line.split("\n")), node, rank),), table).cause


def _settled(scans: tuple[Scan, ...]) -> tuple[list[Hit], list[Suspect]]:
    """What counts when all logs are seen together; a log without an engine of its own goes by the times of the others.

    A hit from before the engine served is outlived. Void are a wait from before that, what was lost while the engine
    had ended in order, and a suspect that was followed by an answer, unless what did not name its cause came after.
    """
    served = max(_times(each.served for each in scans), default=None)
    answered = max(_times(each.answered for each in scans), default=None)
    hits: list[Hit] = []
    for each in scans:
        halts = [halt for other in scans if other is not each for halt in other.halts]
        hits += [hit for code, hit in each.before.items() if code not in each.hits]
        for hit in each.hits.values():
            tells, late = hit.signature.tells, not each.served and _ordered(hit.at, served)
            gone = tells in ("lost", "echo") and any(_within(hit.at, *halt) for halt in halts)
            if not gone and not (late and tells == "wait"):
                hits.append(replace(hit, outlived=late))
    deaths = [hit for hit in hits if hit.proves_death and not hit.outlived]
    riddle = bool(deaths) and not any(hit.signature.tells == "cause" for hit in deaths)
    suspects: list[Suspect] = []
    for each in scans:
        for one in each.suspects.values():
            survived = one.survived or (not each.answered and _ordered(one.at, answered))
            outlived = not each.served and _ordered(one.at, served)
            if not outlived and (riddle or not survived):
                suspects.append(one)
    hits = [hit for hit in hits if not hit.signature.beside_death or _beside(hit, [*deaths, *suspects], scans)]
    return hits, suspects


def _beside(hit: Hit, deaths: list[Hit | Suspect], scans: tuple[Scan, ...]) -> bool:
    """Whether an engine may have died when the machine said this; a log of a machine has no order with an engine's."""
    if hit.at_boot:
        return False
    if scans[hit.log].engine or not deaths:
        return scans[hit.log].engine or not any(each.served for each in scans)
    times = [each.at for each in deaths if each.at is not None]
    return hit.at is None or not times or any(abs(hit.at - at) < NEAR_S for at in times)


def _times(moments: Iterable[Moment | None]) -> Iterator[float]:
    return (each.at for each in moments if each and each.at is not None)


def _ordered(one: float | None, other: float | None) -> bool:
    """Whether both times are known, and the one is no later than the other."""
    return one is not None and other is not None and one <= other


def _within(at: float | None, since: Moment, until: Moment | None) -> bool:
    return _ordered(since.at, at) and (until is None or _ordered(at, until.at))


def _earlier(suspect: Suspect, hit: Hit) -> bool:
    """Whether it is sure that the suspect came before the hit."""
    if suspect.log == hit.log:
        return suspect.index < hit.index
    return suspect.at is not None and hit.at is not None and suspect.at + SKEW_S < hit.at


def _one_message(logs: tuple[Log, ...], suspect: Suspect, hit: Hit) -> bool:
    """Whether both are of one message: lines with the same front, or an error and what it says on its next lines."""
    if suspect.log != hit.log:
        return False
    one, other = (logs[hit.log].lines[index] for index in (suspect.index, hit.index))
    goes_on = hit.index - suspect.index <= MESSAGE and (detail(other) or not weigh(other))
    return goes_on or record(one) == record(other) != ""


def _may_explain(suspect: Suspect, hit: Hit) -> bool:
    """Whether a line that nobody knows may be the reason for one that names none, though nothing says it came first."""
    if hit.signature.tells == "lost":
        later = suspect.since is not None and hit.at is not None and hit.at + SKEW_S < suspect.since
        return suspect.log != hit.log and not later
    return hit.signature.tells in ("echo", "wait")


def _first(suspects: Iterable[Suspect]) -> Suspect | None:
    """An error with a name before all others; then by time where all have one, else by log."""
    found = list(suspects)
    timed = all(each.at is not None for each in found)
    return min(found, key=lambda each: (not each.named, (timed and each.at) or 0.0, each.log, each.index), default=None)


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
            tuple(_witness(logs, hit) for hit in same),
            all(hit.outlived for hit in same),
        )


def _witness(logs: tuple[Log, ...], where: Hit | Suspect) -> Witness:
    log = logs[where.log]
    line = log.lines[where.index]
    number = log.numbers[where.index] if log.numbers else where.index + 1
    return Witness(log.name, log.node or host(line), log.rank, number, redact(line.strip())[:LIMIT])
