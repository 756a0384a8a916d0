"""Nodes that did not answer, in words: what runs there is UNKNOWN, and every node has a way out of its own."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.run.transport import NodeError
from orchestrator.spec.cluster import Cluster
from orchestrator.verbs.running import Running


def told(silent: Mapping[str, NodeError]) -> tuple[str, ...]:
    """For each node why it did not answer and, on a line below it, that node's own next step."""
    return tuple(_with_remedy(str(error), error) for error in silent.values())


def unknown(silent: Mapping[str, NodeError], what: str) -> tuple[str, ...]:
    """For each node that ``what`` may run there, why nobody knows, and that node's own next step."""
    return tuple(
        _with_remedy(f"{node}: UNKNOWN, {what} may run there ({error.what})", error) for node, error in silent.items()
    )


def unlisted(now: Running, cluster: Cluster) -> dict[str, NodeError]:
    """Nodes that a record is of and the cluster file does not name any more: nobody can ask them."""
    plans = (*((now.plan,) if now.plan else ()), *now.others)
    known = {node.name for node in cluster.nodes}
    return {
        node: NodeError(
            node,
            f"should be a node of the cluster file, for generation {plan.generation} of {plan.deployment} is there",
            f"name it in the cluster file as it was, then: sparkctl down {plan.deployment}",
        )
        for plan in plans
        for node in plan.state
        if node not in known
    }


def _with_remedy(line: str, error: NodeError) -> str:
    return f"{line}\n  -> {error.remedy}" if error.remedy else line
