"""``ib_write_bw`` over every rail of a plan, one after the other, so that none shares its port or its memory bus."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from orchestrator.plan import rdma
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.rdma import Pair, RailTest
from orchestrator.plan.resolved import Resolved
from orchestrator.run.at_once import at_once
from orchestrator.run.transport import Transport

LOOK_DEADLINE_S = 60.0


def measure(
    resolved: Resolved,
    plan: LaunchPlan,
    seats: Mapping[str, Transport],
    expected: float | None,
    tell: Callable[[str], None],
) -> tuple[RailTest, ...]:
    """Each rail both ways, for an adapter can be slow in one; the slower counts. Raises what a node raises."""
    pairs = rdma.pairs(resolved.cluster.topology, resolved.nodes)
    units = {rank.node: rank.unit for rank in plan.ranks}
    nodes = [name for name in units if any(name in (pair.node, pair.writer) for pair in pairs)]
    found = at_once(
        lambda name: seats[name].run(rdma.look(units[name]), deadline_s=LOOK_DEADLINE_S).stdout, nodes, seats
    )
    turns = itertools.count()

    def one(pair: Pair) -> RailTest:
        at = rdma.port(resolved.profile.ports.rendezvous, next(turns))
        argv = rdma.commands(pair, rdma.way(pair, found), units, at)

        def run(node: str) -> str:
            result = seats[node].run(argv[node], deadline_s=rdma.DEADLINE_S + 15.0)
            return f"{result.stdout}{result.stderr}\n{rdma.OVERDUE if result.code in {124, 137} else ''}"

        return rdma.judge(pair, at_once(run, argv, seats), expected)

    tests = []
    for pair in pairs:
        if not rdma.way(pair, found):
            tests.append(rdma.unmeasured(pair, found, expected))
            continue
        tell(f"{pair.writer} {pair.writes.rdma} -> {pair.node} {pair.listens.rdma}, and back …")
        there = one(pair)
        tests.append(there if there.bytes_s is None else rdma.slower(there, one(pair.back())))
    return tuple(tests)
