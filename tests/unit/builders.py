"""Small values for tests of pure code, built from the shipped profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.facts.node import NodeFacts
from orchestrator.plan.build import Operator, build
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.resolve import Wish, resolve
from orchestrator.plan.resolved import Resolved
from orchestrator.plan.seat import assumed_facts
from orchestrator.run.catalog import Catalog
from orchestrator.spec.cluster import Cluster
from orchestrator.spec.profile import Executor, Profile
from orchestrator.verbs.world import EMBEDDED, EXAMPLE, pins_of

SHIPPED = Catalog((), shipped=Path(__file__).parent.parent.parent)
OPERATOR = Operator(home="/home/operator", agent_sha256="b" * 64)


def profile(name: str = "deepseek-v4-flash", **changes: Any) -> Profile:
    """A shipped profile with some fields changed; nested fields are named ``engine__context_tokens``."""
    value = SHIPPED.profile(name).model_dump()
    for path, change in changes.items():
        *parents, last = path.split("__")
        place = value
        for parent in parents:
            place = place[parent]
        place[last] = change
    return Profile.model_validate(value, strict=False)


def resolved(
    of: Profile,
    nodes: int | None = None,
    executor: Executor | None = None,
    cluster: Cluster | None = None,
    name: str | None = None,
) -> Resolved:
    where = cluster or (EMBEDDED if of.runtime == "process" else EXAMPLE)
    return resolve(Wish(of, nodes, executor, name), where, pins_of(SHIPPED, of))


def facts(of: Resolved, **changes: Any) -> dict[str, NodeFacts]:
    """Healthy nodes: docker answers, the rails have their addresses and nothing listens."""
    found = {}
    for node in of.nodes:
        held = {rail.address: rail.netdev for rail in node.rails}
        healthy = {"docker": "28.0.1", "arch": "aarch64", "addresses": held}
        found[node.name] = replace(assumed_facts(node), **{**healthy, **changes})
    return found


def plan(of: Resolved, generation: int = 1) -> LaunchPlan:
    return build(of, facts(of), OPERATOR, generation)
