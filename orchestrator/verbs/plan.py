"""``plan``: the chain cut before ``execute``. Reads files, asks nodes read-only questions, and has no other effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.doctor.finding import Finding
from orchestrator.facts.node import NodeFacts
from orchestrator.plan import known_bad
from orchestrator.plan.build import Operator, build
from orchestrator.plan.diff import Change, changes, summary
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.resolved import Resolved
from orchestrator.run import agentzip
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError
from orchestrator.spec.pins import KnownBad
from orchestrator.verbs import names, world
from orchestrator.verbs.fit import refuse_impossible
from orchestrator.verbs.running import Running, running
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.world import Ask, Chosen


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it was compared with. ``now`` is None when nothing was asked; ``silent`` nodes did not answer.

    ``known_bad`` are combinations that the pinned stack meets; ``obstacles`` are what ``up`` would refuse for.
    """

    plan: LaunchPlan
    chosen: Chosen
    now: Running | None
    silent: Mapping[str, NodeError]
    known_bad: tuple[KnownBad, ...] = ()
    obstacles: tuple[Finding, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """Against what runs; nothing when a silent node may be the one that knows what runs."""
        if self.silent and (self.now is None or self.now.plan is None):
            return ()
        return changes(self.now.plan if self.now else None, self.plan)

    @property
    def summary(self) -> tuple[str, ...]:
        """``changes`` for people: a line per rank."""
        return summary(self.now.plan if self.now else None, self.plan) if self.changes else ()


def plan(catalog: Catalog, ask: Ask, *, offline: bool = False) -> Planned:
    """Plan ``ask``; unless ``offline``, also ask the nodes what runs, so that the difference can be shown."""
    names.check(ask.name, "--name")
    chosen = world.choose(catalog, ask, may_assume=True)
    resolved = chosen.resolved
    if offline or chosen.example:
        refuse_impossible(catalog, resolved, {})
        own = {node.name: world.local_facts(node) for node in resolved.nodes if node.ssh is None}
        return Planned(_built(chosen, own, 1), chosen, None, {}, _met(catalog, resolved))
    from orchestrator.verbs import checks  # the doctor's rules need nodes that were asked

    with sitting(world.seats(resolved.cluster, resolved.nodes)) as seats:
        answers = world.gather(seats, resolved.deployment)
    refuse_impossible(catalog, resolved, answers.facts)
    now = running(answers.facts, resolved.deployment, resolved.cluster.topology)
    found = built(chosen, answers.facts, now)
    running_already = now.plan is not None and now.plan.digest == found.digest
    whole = not answers.silent and not running_already
    looked = checks.fast(checks.sight(catalog, resolved, found, answers.facts, now)) if whole else ()
    obstacles = (*_lost(now, resolved.deployment), *checks.fails(looked))
    return Planned(found, chosen, now, answers.silent, _met(catalog, resolved), obstacles)


def _lost(now: Running, deployment: str) -> tuple[Finding, ...]:
    if now.elsewhere:
        found, wanted = f"a deployment of that name on {', '.join(now.elsewhere)}", f"{deployment} as a name of its own"
        return (Finding("NAME_TAKEN", "", found, wanted, f"--name {deployment}-2"),)
    if not now.lost:
        return ()
    there = "; ".join((*now.unreadable, *now.remains))
    expected = f"a record of {deployment} that can be believed"
    return (Finding("UNRECORDED", "", there, expected, f"sparkctl down {deployment}"),)


def _met(catalog: Catalog, resolved: Resolved) -> tuple[KnownBad, ...]:
    if resolved.profile.accelerator != "gb10":
        return ()
    return known_bad.met(catalog.known_bad(), known_bad.of_stack(resolved.stack), known_bad.GB10)


def built(chosen: Chosen, facts: Mapping[str, NodeFacts], now: Running) -> LaunchPlan:
    """The plan that ``up`` would carry out: the running generation if it is the same plan, otherwise the next one."""
    same = _built(chosen, facts, now.plan.generation) if now.plan else None
    if same is not None and now.plan is not None and same.digest == now.plan.digest:
        return same
    return _built(chosen, facts, now.newest_generation + 1)


def anew(chosen: Chosen, facts: Mapping[str, NodeFacts], now: Running) -> LaunchPlan:
    """The same plan as a new generation: for a gang that gave up, or whose units are gone."""
    return _built(chosen, facts, now.newest_generation + 1)


def _built(chosen: Chosen, facts: Mapping[str, NodeFacts], generation: int) -> LaunchPlan:
    return build(chosen.resolved, facts, Operator(str(Path.home()), agentzip.build().sha256), generation)
