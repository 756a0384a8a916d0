"""``down``: stop and leave bare nodes. A node that does not answer is UNKNOWN, and the others keep its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event as Flag

from orchestrator.plan import phases
from orchestrator.plan.events import Event
from orchestrator.plan.judges import ALL
from orchestrator.plan.launch import LaunchPlan
from orchestrator.run.bits import Bits
from orchestrator.run.catalog import Catalog
from orchestrator.run.executor import Hands, execute
from orchestrator.run.transport import NodeError, Transport
from orchestrator.spec.cluster import Cluster
from orchestrator.verbs import names, world
from orchestrator.verbs.errors import VerbError
from orchestrator.verbs.running import running
from orchestrator.verbs.silent import unknown
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.up import locked, raise_unless_ok


@dataclass(frozen=True, slots=True)
class Stopped:
    """``plans`` is what was recorded of the deployment, newest life first; empty when every node said that there is
    none of that name. ``others`` names what is recorded then instead.
    """

    plans: tuple[LaunchPlan, ...]
    others: tuple[str, ...] = ()


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
            now = running(answers.facts, name)
            plans = (*((now.plan,) if now.plan else ()), *now.others)
            if plans:
                todo = _Todo(cluster, seats, plans, frozenset(answers.facts))
                _carry_out(todo, sink, cancel)
                _say_unknown(plans, answers.silent)
                return Stopped(plans)
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
    plans: tuple[LaunchPlan, ...]
    reachable: frozenset[str]


def _carry_out(todo: _Todo, sink: Callable[[Event], None], cancel: Flag) -> None:
    newest = todo.plans[0]
    hands = Hands(todo.seats, Bits(todo.cluster, files=world.ssh_files(todo.cluster)), ALL, sink, newest.generation)
    lock_at = next(node for node in (*newest.nodes, newest.gateway.node) if node in todo.reachable)
    with locked(todo.seats[lock_at], newest.state[lock_at], "down", cancel):
        steps = tuple(phase for plan in todo.plans for phase in phases.down(plan, todo.reachable))
        raise_unless_ok(execute(steps, hands, cancel))


def _say_unknown(plans: tuple[LaunchPlan, ...], silent: Mapping[str, NodeError]) -> None:
    """Never claim bare nodes where nobody could look."""
    lines: list[str] = []
    for node, error in silent.items():
        ours = [unit.name for plan in plans for unit in plan.units if unit.node == node]
        lines += unknown({node: error}, ", ".join(ours)) if ours else ()
    if lines:
        raise VerbError(*lines, remedy="when the node answers again, run the same `sparkctl down` once more")
