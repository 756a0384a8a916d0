"""The checks before a start, as ``up``, ``plan`` and ``doctor`` share them: one look, the same words."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.doctor import rules
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight
from orchestrator.doctor.waive import waived
from orchestrator.facts.node import NodeFacts
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.resolved import Resolved
from orchestrator.run.catalog import Catalog
from orchestrator.verbs.running import Running


def sight(
    catalog: Catalog, resolved: Resolved, plan: LaunchPlan, facts: Mapping[str, NodeFacts], now: Running
) -> Sight:
    """What the rules look at before anybody asked a node for details."""
    ours = (*((now.plan,) if now.plan else ()), *now.others)
    return Sight(
        resolved.cluster, resolved.nodes, facts, table=catalog.known_bad(), resolved=resolved, plan=plan, ours=ours
    )


def fast(seen: Sight, more: tuple[Finding, ...] = ()) -> tuple[Finding, ...]:
    """What the plan and the nodes' first answers tell, and ``more`` that the caller knows; waivers applied."""
    waivers = seen.resolved.profile.waivers if seen.resolved else {}
    return (*rules.fast(seen), *waived(more, waivers))


def fails(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(each for each in findings if each.verdict == "fail")
