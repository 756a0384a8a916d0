"""``down``: stop and leave bare nodes. A node that does not answer is UNKNOWN, and the others keep its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event as Flag

from orchestrator.facts.node import NodeFacts
from orchestrator.plan import phases, phases_unrecorded
from orchestrator.plan.actions import Phase
from orchestrator.plan.events import Event
from orchestrator.plan.judges import ALL
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.seat import state_root
from orchestrator.run import agentzip
from orchestrator.run.bits import Bits
from orchestrator.run.catalog import Catalog
from orchestrator.run.executor import Hands, execute
from orchestrator.run.transport import NodeError, Transport
from orchestrator.spec.cluster import Cluster
from orchestrator.verbs import names, world
from orchestrator.verbs.errors import VerbError
from orchestrator.verbs.running import Running, remains, running
from orchestrator.verbs.silent import unknown, unlisted
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.up import locked, raise_unless_ok


@dataclass(frozen=True, slots=True)
class Stopped:
    """``plans`` is what was recorded of the deployment, newest life first. ``unrecorded`` is what was there without a
    record that is believed. Both are empty when every node said that there is none of that name; ``others`` names what
    is recorded then instead.
    """

    plans: tuple[LaunchPlan, ...]
    others: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()


def down(catalog: Catalog, name: str, sink: Callable[[Event], None], cancel: Flag) -> Stopped:
    """Stop deployment ``name``, on the first cluster that has a record of it: the operator's, then this machine's own.

    A name that is recorded nowhere is no error, unlike in ``status`` and ``logs``: what ``down`` promises is true
    already, and a script that says it twice must not fail. Raises ``VerbError`` when a node that may hold a part of it
    did not answer, and ``UsageError`` for words that are no name.
    """
    names.check(name, "NAME")
    silent: dict[str, NodeError] = {}
    others: list[str] = []
    for cluster in world.clusters(catalog):
        with sitting(world.seats(cluster)) as seats:
            answers = world.gather(seats, name)
            now = running(answers.facts, name, cluster.topology)
            if now.plan is not None or now.lost:
                answers = world.Answers(answers.facts, {**answers.silent, **unlisted(now, cluster)})
                todo = _Todo(cluster, seats, name, now, answers)
                _carry_out(todo, sink, cancel)
                _say_unknown(todo)
                _say_remains(todo)
                return Stopped(todo.plans, unrecorded=(*now.unreadable, *now.remains))
            silent |= answers.silent
            others += names.recorded(answers.facts)
    if silent:
        raise VerbError(*unknown(silent, name), remedy=f"when they answer again, run `sparkctl down {name}` once more")
    return Stopped((), tuple(others))


@dataclass(frozen=True, slots=True)
class _Todo:
    """What is to be stopped, where, and which nodes answered."""

    cluster: Cluster
    seats: Mapping[str, Transport]
    name: str
    now: Running
    answers: world.Answers

    @property
    def plans(self) -> tuple[LaunchPlan, ...]:
        return (*((self.now.plan,) if self.now.plan else ()), *self.now.others)

    @property
    def facts(self) -> Mapping[str, NodeFacts]:
        return self.answers.facts

    @property
    def lock_at(self) -> str:
        """Where whoever else works on this deployment holds the lock; without a record, where something is of it."""
        newest = self.now.plan
        named = (*newest.nodes, newest.gateway.node) if newest else ()
        answered = [node for node in named if node in self.facts]
        recorded = (node for node, facts in self.facts.items() if self.name in names.recorded({node: facts}))
        return answered[0] if answered else next(recorded)


def _carry_out(todo: _Todo, sink: Callable[[Event], None], cancel: Flag) -> None:
    generation = todo.plans[0].generation if todo.plans else todo.now.newest_generation
    hands = Hands(todo.seats, Bits(todo.cluster, files=world.ssh_files(todo.cluster)), ALL, sink, generation)
    at = todo.lock_at
    with locked(todo.seats[at], state_root(todo.facts[at], todo.name), "down", cancel):
        raise_unless_ok(execute(_steps(todo), hands, cancel), f"put that right, then: sparkctl down {todo.name}")


def _steps(todo: _Todo) -> tuple[Phase, ...]:
    """What is recorded ends by its record. What is not goes after it, unless a silent node still needs the record."""
    reachable = frozenset(todo.facts)
    steps = tuple(phase for plan in todo.plans for phase in phases.down(plan, reachable))
    needed = any(node in todo.answers.silent for plan in todo.plans for node in plan.state)
    if todo.plans and (needed or not (todo.now.unreadable or _more_than_recorded(todo))):
        return steps
    built = agentzip.build()
    agent = phases_unrecorded.Agent(built.content, built.sha256)
    return (*steps, *phases_unrecorded.down(todo.name, todo.facts, agent, todo.cluster.topology))


def _more_than_recorded(todo: _Todo) -> bool:
    """Whether a node shows a generation that no believed plan is of."""
    known = {plan.generation for plan in todo.plans}
    units = (unit for node in todo.facts.values() for unit in node.units if unit.deployment == todo.name)
    paths = (path.split("/")[-2:] for node in todo.facts.values() for path in node.generations)
    return any(unit.generation not in known for unit in units) or any(
        name == todo.name and number not in {f"g{each}" for each in known} for name, number in paths
    )


def _say_unknown(todo: _Todo) -> None:
    """Never claim bare nodes where nobody could look."""
    lines: list[str] = []
    for node, error in todo.answers.silent.items():
        ours = [unit.name for plan in todo.plans for unit in plan.units if unit.node == node]
        if ours or not todo.plans:
            lines += unknown({node: error}, ", ".join(ours) or todo.name)
    if lines:
        raise VerbError(*lines, remedy="when the node answers again, run the same `sparkctl down` once more")


def _say_remains(todo: _Todo) -> None:
    """Look once more: what was to end may have been more than was known of it."""
    after = world.gather({node: todo.seats[node] for node in todo.facts}, todo.name)
    left = remains(after.facts, todo.name)
    if left or after.silent:
        lines = (*(f"{line}, should be gone" for line in left), *unknown(after.silent, todo.name))
        raise VerbError(*lines, remedy=f"run `sparkctl down {todo.name}` once more")
