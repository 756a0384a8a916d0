"""What runs now, read from the nodes' answers: the stored plan, its units, and every rank's own status. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.facts.node import NodeFacts
from orchestrator.plan.fold import DeploymentState, fold
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.load import plan_from_json
from orchestrator.plan.rankfile import RankStatus
from orchestrator.run import store
from orchestrator.verbs.errors import VerbError


@dataclass(frozen=True, slots=True)
class Running:
    """The deployment as its nodes know it; each node keeps the plan of every generation that has files there.

    ``plan`` is the generation that runs (or ran last), None when nothing is recorded; ``others`` are generations that
    an interrupted ``up`` left behind. ``recorded`` is the fold of the head's event log. ``differs`` says where the
    record and the nodes are not the same.
    """

    plan: LaunchPlan | None
    others: tuple[LaunchPlan, ...]
    statuses: Mapping[int, RankStatus]
    differs: tuple[str, ...]
    newest_generation: int
    recorded: DeploymentState

    @property
    def ready(self) -> bool:
        return not self.differs and 0 in self.statuses and self.statuses[0].ready

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Where the log of events names another generation than the one that runs: worth a line, not a restart."""
        if self.plan is None or self.recorded.serving in (0, self.plan.generation):
            return ()
        head, recorded = self.plan.head, self.recorded.serving
        return (f"{head}: generation {recorded} serves by the record, found generation {self.plan.generation}",)

    @property
    def broken(self) -> bool:
        return 0 in self.statuses and self.statuses[0].state in {"broken", "stopped"}


STALE_S = 15.0


def running(facts: Mapping[str, NodeFacts], deployment: str) -> Running:
    """Put the nodes' answers together. Nodes that did not answer are simply not in ``facts``.

    Raises ``VerbError`` for a stored plan that this version cannot read.
    """
    facts = {name: _own(node, deployment) for name, node in facts.items()}
    plan, *others = _by_life(facts) or [None]
    generation = plan.generation if plan else 0
    statuses = _statuses(facts, generation)
    newest = max([generation, *(unit.generation for node in facts.values() for unit in node.units)], default=0)
    recorded = fold(store.parse("\n".join(line for node in facts.values() for line in node.events)).events)
    differs = _differences(plan, facts, statuses) if plan else ()
    return Running(plan, tuple(each for each in others if each), statuses, differs, newest, recorded)


def _own(node: NodeFacts, deployment: str) -> NodeFacts:
    """A node shows the units of every deployment, and generations of two deployments have the same numbers."""
    return replace(node, units=tuple(unit for unit in node.units if unit.deployment == deployment))


def _by_life(facts: Mapping[str, NodeFacts]) -> list[LaunchPlan | None]:
    """Every stored plan once: those with a running unit first, then the newest first."""
    stored: dict[int, LaunchPlan] = {}
    for node in facts.values():
        for line in node.plans:
            plan = _readable(node.node, line)
            stored.setdefault(plan.generation, plan)
    alive = {unit.generation for node in facts.values() for unit in node.units if unit.running}
    order = sorted(stored, key=lambda number: (number in alive, number), reverse=True)
    return [stored[number] for number in order]


def _readable(node: str, line: str) -> LaunchPlan:
    """A record that cannot be read is not ignored: what it describes may be running."""
    try:
        return plan_from_json(line)
    except ValueError as error:
        raise VerbError(
            f"{node}: the plan stored there is of another version of sparkctl, or damaged: {error}",
            remedy="run `sparkctl down` with the version that started it",
        ) from None


def _statuses(facts: Mapping[str, NodeFacts], generation: int) -> dict[int, RankStatus]:
    found: dict[int, RankStatus] = {}
    for node in facts.values():
        for line in node.statuses:
            try:
                status = RankStatus.from_json(line)
            except (ValueError, json.JSONDecodeError):
                continue
            if status.generation == generation and status.node == node.node:
                found[status.rank] = status
    return found


def _differences(
    plan: LaunchPlan, facts: Mapping[str, NodeFacts], statuses: Mapping[int, RankStatus]
) -> tuple[str, ...]:
    """Where the stored plan and what the nodes show are not the same."""
    found = []
    for unit in plan.units:
        node = facts.get(unit.node)
        if node is None:
            found.append(f"{unit.node}: UNKNOWN, the node did not answer ({unit.name} should run there)")
            continue
        seen = [u for u in node.units if u.generation == plan.generation and u.rank == unit.rank]
        if not any(u.running for u in seen):
            found.append(f"{unit.node}: {unit.name} should run, found it {'stopped' if seen else 'absent'}")
        found += [
            f"{unit.node}: {u.name} should carry plan {plan.digest[:19]}, found {u.plan_digest[:19]}"
            for u in seen
            if u.plan_digest and u.plan_digest != plan.digest
        ]
    for rank, status in statuses.items():
        age_s = facts[status.node].now - status.written_at
        if age_s > STALE_S:
            found.append(
                f"{status.node}: the status of rank {rank} is {age_s:.0f} s old; its agent does not run or hangs"
            )
    return tuple(found)
