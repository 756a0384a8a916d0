"""``fabric test``: measure what the ranks of a profile would have between them, and remember it with a date."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from orchestrator.doctor.finding import Finding
from orchestrator.facts.node import NodeFacts
from orchestrator.plan import fabric, rdma
from orchestrator.plan.events import LATEST
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.rdma import RailTest
from orchestrator.plan.resolved import Resolved
from orchestrator.run.at_once import at_once
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError, Transport
from orchestrator.verbs import world
from orchestrator.verbs.errors import RefusedError, VerbError
from orchestrator.verbs.plan import built
from orchestrator.verbs.rdma import measure
from orchestrator.verbs.running import running
from orchestrator.verbs.silent import told
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.world import Ask

KEPT = 50
DAY_S = 86400.0
VERDICTS = {"pass", "warn", "fail", "unknown"}


@dataclass(frozen=True, slots=True)
class Report:
    """One measurement: Unix time, the nodes by rank, bytes per second and direction of one rank, and the judgement.

    ``verdict`` is of all-gather and rails together (``rdma.together``), ``says`` of the all-gather. ``rails`` is empty
    where there is no RoCE, and in reports from before rails were measured one by one.
    """

    at: float
    cluster: str
    nodes: tuple[str, ...]
    size_bytes: int
    bus_bytes_s: float
    backend: str
    verdict: str
    says: str
    rails: tuple[RailTest, ...] = ()


def test(catalog: Catalog, ask: Ask, size_bytes: int, rounds: int, tell: Callable[[str], None]) -> Report:
    """Measure and remember; ``tell`` hears what is being measured.

    Raises ``RefusedError`` while something runs there or memory is short.
    """
    chosen = world.choose(catalog, ask, may_assume=False)
    resolved = chosen.resolved
    with sitting(world.seats(resolved.cluster, resolved.nodes)) as seats:
        answers = world.gather(seats, resolved.deployment)
        if answers.silent:
            raise VerbError(*told(answers.silent))
        plan = built(chosen, answers.facts, running(answers.facts, resolved.deployment, resolved.cluster.topology))
        _refuse(answers.facts, size_bytes)
        machine = catalog.machine("gb10")
        rails = measure(resolved, plan, seats, machine.rail_bytes_s, tell)
        tell(f"gathering {size_bytes // 2**20} MiB between all ranks, {rounds} times …")
        said = _run(plan, seats, (size_bytes, rounds, resolved.profile.ports.rendezvous))
    measured = fabric.parse(said[plan.head])
    if measured is None:
        words = [f"{node}: {_last(text)}" for node, text in said.items() if text.strip()]
        words += [f"{rail.device} of {rail.node}: {rail.says}" for rail in rails if rail.verdict != "pass"]
        raise VerbError("the test gave no result", *words, remedy="`sparkctl up` brings the image that it runs in")
    verdict, says = fabric.verdict(measured, machine.fabric_bytes_s, resolved.cluster.topology)
    names = tuple(node.name for node in resolved.nodes)
    whole = (measured.backend, rdma.together(verdict, rails), says, rails)
    report = Report(time.time(), resolved.cluster.name, names, size_bytes, measured.bus_bytes_s, *whole)
    try:
        _remember(report)
    except OSError as error:  # what took minutes to measure is worth showing without being kept
        tell(f"this result could not be kept: {error}")
    return report


def clusters() -> tuple[str, ...]:
    """Every cluster that something was measured on from here."""
    return tuple(sorted(path.stem for path in _file("any").parent.glob("*.json")))


def reports(cluster: str) -> tuple[Report, ...]:
    """What was measured on ``cluster`` from here, the oldest first; nothing when the file cannot be read."""
    try:
        found = _adapter().validate_json(_file(cluster).read_bytes())
    except (OSError, ValueError):
        return ()
    whole = all(0 <= each.at <= LATEST and _verdicts(each) <= VERDICTS for each in found)
    return found if whole else ()


def _verdicts(report: Report) -> set[str]:
    return {report.verdict, *(rail.verdict for rail in report.rails)}


@cache
def _adapter() -> TypeAdapter[tuple[Report, ...]]:
    return TypeAdapter(tuple[Report, ...])


def missing(resolved: Resolved, now: float) -> tuple[Finding, ...]:
    """What the profile's ``fabric_test_days`` asks for and is not there: a passed test of these nodes, that recent."""
    days, names = resolved.profile.fabric_test_days, tuple(node.name for node in resolved.nodes)
    if days is None:
        return ()
    passed = [each for each in reports(resolved.cluster.name) if each.nodes == names and each.verdict == "pass"]
    if passed and now - passed[-1].at <= days * DAY_S:
        return ()
    last = f"the last passed {(now - passed[-1].at) / DAY_S:.0f} days ago" if passed else "none that passed"
    return (
        Finding(
            "FABRIC_TEST_MISSING",
            "",
            last,
            f"a fabric test of {', '.join(names)} not older than {days} days",
            f"sparkctl fabric test {resolved.profile.name} --nodes {len(names)}",
            "a link that is up and slow is found by measuring only",
        ),
    )


def _refuse(facts: Mapping[str, NodeFacts], size_bytes: int) -> None:
    """Unified memory: a test that fills it freezes the box, and one beside a serving engine takes it down."""
    wanted = 2 * size_bytes + fabric.ROOM_BYTES
    said = []
    for name, node in facts.items():
        busy = sorted({unit.deployment for unit in node.units if unit.running})
        said += [f"{name}: should be free, found deployment {each}\n  -> sparkctl down {each}" for each in busy]
        if node.memory_available_bytes is not None and node.memory_available_bytes < wanted:
            free = node.memory_available_bytes / 1e9
            said.append(f"{name}: should have {wanted / 1e9:.1f} GB of memory available, found {free:.1f} GB")
    if said:
        raise RefusedError(*said)


def _run(plan: LaunchPlan, seats: Mapping[str, Transport], what: tuple[int, int, int]) -> dict[str, str]:
    """Every rank at once, because each waits for the others; node -> what it printed on both streams."""
    size_bytes, rounds, port = what

    ranks = {rank.node: rank for rank in plan.ranks}

    def one(node: str) -> str:
        rank = ranks[node]
        argv = fabric.command(plan, rank, size_bytes, rounds, port)
        try:
            result = seats[node].run(argv, deadline_s=fabric.DEADLINE_S + 30.0, stdin=fabric.PROGRAM.encode())
        except NodeError as error:
            return str(error)
        return result.stdout + result.stderr

    return at_once(one, ranks, seats)


def _last(text: str) -> str:
    return text.strip().splitlines()[-1][:300]


def _file(cluster: str) -> Path:
    root = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return root / "sparkctl-fabric" / f"{cluster}.json"


def _remember(report: Report) -> None:
    path = _file(report.cluster)
    rows = [asdict(each) for each in (*reports(report.cluster), report)][-KEPT:]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)
