"""What runs now, read from the nodes' answers: the stored plan, its units, and every rank's own status. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.facts.node import NodeFacts
from orchestrator.plan.fold import DeploymentState, fold
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.load import plan_from_json, status_from_json
from orchestrator.plan.rankfile import RankStatus
from orchestrator.plan.seat import state_root
from orchestrator.run import store
from orchestrator.spec.cluster import Topology
from orchestrator.verbs import names
from orchestrator.verbs.records import disbelief


@dataclass(frozen=True, slots=True)
class Running:
    """The deployment as its nodes know it; each node keeps the plan of every generation that has files there.

    ``plan`` is the generation that runs (or ran last), None when nothing is recorded; ``others`` are generations that
    an interrupted ``up`` left behind. ``newest_generation`` is the highest number of which anything is on a node.
    ``recorded`` is the fold of the head's event log. ``differs`` says where the record and the nodes are not the same.

    ``unreadable`` are records that are not believed, with the node and why; ``remains`` is all that is there, while
    there is no ``plan``. ``last_words`` is the age (s) of the status of every rank that does not speak any more.
    ``changing`` is who is at work on the deployment just now, empty when nobody is.
    ``elsewhere`` are the nodes of a deployment of this name that is another cluster's.
    """

    plan: LaunchPlan | None
    others: tuple[LaunchPlan, ...]
    statuses: Mapping[int, RankStatus]
    differs: tuple[str, ...]
    newest_generation: int
    recorded: DeploymentState
    unreadable: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    last_words: Mapping[int, float] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    changing: str = ""

    @property
    def lost(self) -> bool:
        """Whether there is something of which nobody can tell what it should be."""
        return self.plan is None and bool(self.remains or self.unreadable)

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


def running(facts: Mapping[str, NodeFacts], deployment: str, topology: Topology) -> Running:
    """Put the nodes' answers together. Nodes that did not answer are simply not in ``facts``.

    ``topology`` is that of the cluster that was asked. A machine may be a node of the operator's cluster and, under
    other names, every node of the loopback one: one state directory, two worlds, told apart by the ranks' addresses.
    """
    facts = {name: _own(node, deployment) for name, node in facts.items()}
    plans, unreadable = _stored(facts, deployment)
    stored = {number: plan for number, plan in plans.items() if _loopback(plan) == (topology == "loopback")}
    if plans and not stored:
        nodes = tuple(dict.fromkeys(node for plan in plans.values() for node in plan.state))
        return Running(None, (), {}, (), 0, DeploymentState(), elsewhere=nodes)
    plan, *others = _by_life(stored, facts) or [None]
    statuses = _statuses(facts, plan.generation if plan else 0)
    newest = max((*plans, *_numbers(facts, deployment)), default=0)
    recorded = fold(store.parse("\n".join(line for node in facts.values() for line in node.events)).events)
    return Running(
        plan,
        tuple(each for each in others if each),
        statuses,
        _differences(plan, facts, statuses) if plan else (),
        newest,
        recorded,
        unreadable,
        remains=() if plan else remains(facts, deployment),
        last_words=_last_words(plan, facts, statuses) if plan else {},
        changing=next(filter(None, map(_holder, facts.values())), ""),
    )


def _holder(node: NodeFacts) -> str:
    """Who holds the deploy lock there and was heard of lately."""
    if len(node.lock) < 2:
        return ""
    from orchestrator.run import lock  # most often nobody does, and a plan need not wait for what it brings

    try:
        age_s = node.now - float(node.lock[0])
    except ValueError:
        return ""
    holder = lock.holder_from(node.lock[1])
    return str(holder) if holder and abs(age_s) <= lock.DEAD_AFTER_S else ""


def _loopback(plan: LaunchPlan) -> bool:
    return all(rank.address.startswith("127.") for rank in plan.ranks)


def remains(facts: Mapping[str, NodeFacts], deployment: str) -> tuple[str, ...]:
    """Every unit of the deployment that is on a node, and where its files lie if that is all there is; for people."""
    found = []
    for node in facts.values():
        units = [unit for unit in node.units if unit.deployment == deployment]
        found += [
            f"{node.node}: {unit.name} of generation {unit.generation} {'runs' if unit.running else 'is stopped'}"
            for unit in units
        ]
        if not units and deployment in names.recorded({node.node: node}):
            found.append(f"{node.node}: no units, found files in {state_root(node, deployment)}")
    return tuple(found)


def _numbers(facts: Mapping[str, NodeFacts], deployment: str) -> Iterator[int]:
    """Generations that have a unit or a file somewhere.

    An ``up`` that was killed may have left files alone: a new generation of the same number would be taken for them,
    and forgotten as soon as it serves.
    """
    for node in facts.values():
        yield from (unit.generation for unit in node.units)
        for path in node.generations:
            found = re.search(r"/([^/]+)/g(\d{1,9})$", path)
            if found and found[1] == deployment:
                yield int(found[2])


def _own(node: NodeFacts, deployment: str) -> NodeFacts:
    """A node shows the units of every deployment, and generations of two deployments have the same numbers."""
    return replace(node, units=tuple(unit for unit in node.units if unit.deployment == deployment))


def _stored(facts: Mapping[str, NodeFacts], deployment: str) -> tuple[dict[int, LaunchPlan], tuple[str, ...]]:
    """Every believed plan once, by generation, and the records that are not believed."""
    found: dict[int, LaunchPlan] = {}
    unreadable = []
    for node in facts.values():
        for line in node.plans:
            try:
                plan = plan_from_json(line)
                why = disbelief(plan, deployment, facts)
            except ValueError as error:
                why = f"damaged, or of another version of sparkctl: {error}"
            if why:
                unreadable.append(f"{node.node}: the plan stored there is not believed: {why}")
            else:
                found.setdefault(plan.generation, plan)
    return found, tuple(unreadable)


def _by_life(stored: Mapping[int, LaunchPlan], facts: Mapping[str, NodeFacts]) -> list[LaunchPlan | None]:
    """Those with a running unit first, then the newest first."""
    alive = {unit.generation for node in facts.values() for unit in node.units if unit.running}
    order = sorted(stored, key=lambda number: (number in alive, number), reverse=True)
    return [stored[number] for number in order]


def _statuses(facts: Mapping[str, NodeFacts], generation: int) -> dict[int, RankStatus]:
    found: dict[int, RankStatus] = {}
    for node in facts.values():
        for line in node.statuses:
            try:
                status = status_from_json(line)
            except ValueError:
                continue
            if status.generation == generation and status.node == node.node:
                found[status.rank] = status
    return found


def _last_words(
    plan: LaunchPlan, facts: Mapping[str, NodeFacts], statuses: Mapping[int, RankStatus]
) -> dict[int, float]:
    """A status file outlives its agent: it says something of now only if it is fresh and its unit runs."""
    found = {}
    for rank, status in statuses.items():
        age_s = facts[status.node].now - status.written_at
        running_there = {u.rank for u in facts[status.node].units if u.running and u.generation == plan.generation}
        if abs(age_s) > STALE_S or str(rank) not in running_there:
            found[rank] = age_s
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
        if plan.runtime == "docker" and node.docker is None:
            found.append(f"{unit.node}: UNKNOWN, {node.docker_problem} ({unit.name} should run there)")
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
        if abs(age_s) > STALE_S:
            found.append(
                f"{status.node}: the status of rank {rank} is {age_s:.0f} s old; its agent does not run or hangs"
            )
    return tuple(found)
