"""``down``: stop and leave bare nodes. A node that does not answer is UNKNOWN, and the others keep its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event as Flag

from orchestrator.plan import phases
from orchestrator.plan.events import Event
from orchestrator.plan.judges import ALL
from orchestrator.plan.launch import LaunchPlan
from orchestrator.run.bits import Bits
from orchestrator.run.catalog import Catalog
from orchestrator.run.executor import Hands, execute
from orchestrator.run.transport import NodeError
from orchestrator.verbs import names, world
from orchestrator.verbs.errors import VerbError
from orchestrator.verbs.running import running
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.up import locked, raise_unless_ok


def down(catalog: Catalog, name: str, sink: Callable[[Event], None], cancel: Flag) -> tuple[LaunchPlan, ...]:
    """Stop deployment ``name``; answers with what was recorded of it, newest life first, or nothing if it did not run.

    Raises ``VerbError`` when a node that may hold a part of it did not answer.
    """
    names.check(name, "NAME")
    for cluster in world.clusters(catalog):
        with sitting(world.seats(cluster)) as seats:
            answers = world.gather(seats, name)
            now = running(answers.facts, name)
            plans = (*((now.plan,) if now.plan else ()), *now.others)
            if not plans:
                continue
            hands = Hands(seats, Bits(cluster, files=world.ssh_files(cluster)), ALL, sink, plans[0].generation)
            reachable = frozenset(answers.facts)
            lock_at = next(node for node in plans[0].nodes if node in reachable)
            with locked(seats[lock_at], plans[0].state[lock_at], "down", cancel):
                todo = tuple(phase for plan in plans for phase in phases.down(plan, reachable))
                raise_unless_ok(execute(todo, hands, cancel))
            _say_unknown(plans, answers.silent)
            return plans
    return ()


def _say_unknown(plans: tuple[LaunchPlan, ...], silent: Mapping[str, NodeError]) -> None:
    """Never claim bare nodes where nobody could look."""
    units = [unit for plan in plans for unit in plan.units if unit.node in silent]
    if units:
        lines = [f"{unit.node}: UNKNOWN, {unit.name} may still run there ({silent[unit.node].what})" for unit in units]
        raise VerbError(*lines, remedy="when the node answers again, run the same `sparkctl down` once more")
