"""Whether a plan that lies on a node may be acted on. ``down`` and ``up`` run what stands in it, and remove it. Pure.

A record is a file, and a file can be damaged, copied or edited. So it counts only when it is what its digest says, and
when every path and program in it is the one that the node's own answer leads to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from orchestrator.facts.node import NodeFacts
from orchestrator.plan.launch import Gateway, LaunchPlan, Rank, Unit, identity_of
from orchestrator.plan.seat import scratch, state_root


def disbelief(plan: LaunchPlan, deployment: str, facts: Mapping[str, NodeFacts]) -> str:
    """Why ``plan`` is not believed as a record of ``deployment`` on the nodes that answered; empty when it is."""
    return next(_doubts(plan, deployment, facts), "")


def _doubts(plan: LaunchPlan, deployment: str, facts: Mapping[str, NodeFacts]) -> Iterator[str]:
    if plan.deployment != deployment:
        yield f"its deployment should be {deployment}, found {plan.deployment}"
    if plan.generation < 1 or not plan.ranks:
        yield f"should have a generation and ranks, found generation {plan.generation} with {len(plan.ranks)} ranks"
    if identity_of(plan) != plan.digest:
        yield "it was changed after it was written: its digest does not fit"
    if not re.fullmatch(r"[0-9a-f]{64}", plan.agent_sha256):
        yield f"its agent should be named by a sha256, found {plan.agent_sha256[:80]}"
    owners: tuple[Rank | Gateway, ...] = (*plan.ranks, plan.gateway)
    for owner in owners:
        if owner.node not in plan.state or owner.unit.node != owner.node:
            yield f"{owner.unit.name[:80]} should be on a node of the plan, found {owner.unit.node[:80]}"
        yield from _misplaced(plan, owner)
        if owner.node in facts:
            yield from _foreign(plan, owner, facts[owner.node])
    for node, state in plan.state.items():
        own = state_root(facts[node], deployment) if node in facts else state
        if state != own:
            yield f"its state directory on {node} should be {own}, found {state[:120]}"


def _misplaced(plan: LaunchPlan, owner: Rank | Gateway) -> Iterator[str]:
    """What does not follow from the plan's own state directories: these are compared with the nodes' below."""
    unit, word = owner.unit, _word(owner)
    directory = f"{plan.state.get(owner.node)}/g{plan.generation}/{word}"
    if unit.directory != directory:
        yield f"the directory of {word} should be {directory}, found {unit.directory[:120]}"
    name = f"sparkctl-{plan.deployment}-g{plan.generation}-{word}"
    if unit.name != name or unit.rank != word.removeprefix("rank-"):
        yield f"{word} should be called {name}, found {unit.name[:80]}"
    if (unit.container is not None) != (plan.runtime == "docker"):
        yield f"{word} should run as the runtime {plan.runtime} says, found the other one"
    for path in (*(file.path for file in owner.files), *(file.path for file in owner.secrets)):
        if not path.startswith(f"{directory}/") or ".." in path.split("/"):
            yield f"a file of {word} should lie in {directory}, found {path[:120]}"


def _foreign(plan: LaunchPlan, owner: Rank | Gateway, node: NodeFacts) -> Iterator[str]:
    """Programs and directories that are not this node's. Inside a container there is nothing of the node to run."""
    unit, word = owner.unit, _word(owner)
    temporary = scratch(node, plan.deployment, owner.rank) if isinstance(owner, Rank) else ""
    if unit.scratch not in ("", temporary if unit.container is None else ""):
        yield f"the temporary directory of {word} should be {temporary or 'none'}, found {unit.scratch[:120]}"
    if unit.container is None:
        yield from _program(plan, owner, unit, node)


def _program(plan: LaunchPlan, owner: Rank | Gateway, unit: Unit, node: NodeFacts) -> Iterator[str]:
    agent = f"{plan.state.get(owner.node)}/agent/{plan.agent_sha256}.pyz"
    own = (node.python, agent, "run", f"{unit.directory}/rank.json") if isinstance(owner, Rank) else (node.haproxy,)
    if unit.argv[: len(own)] != own:
        yield f"{_word(owner)} should run {' '.join(own)}, found {' '.join(unit.argv)[:160]}"


def _word(owner: Rank | Gateway) -> str:
    return f"rank-{owner.rank}" if isinstance(owner, Rank) else "gateway"
