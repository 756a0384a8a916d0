"""Nodes that did not answer, in words: what runs there is UNKNOWN, and every node has a way out of its own."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.run.transport import NodeError


def told(silent: Mapping[str, NodeError]) -> tuple[str, ...]:
    """For each node why it did not answer and, on a line below it, that node's own next step."""
    return tuple(_with_remedy(str(error), error) for error in silent.values())


def unknown(silent: Mapping[str, NodeError], what: str) -> tuple[str, ...]:
    """For each node that ``what`` may run there, why nobody knows, and that node's own next step."""
    return tuple(
        _with_remedy(f"{node}: UNKNOWN, {what} may run there ({error.what})", error) for node, error in silent.items()
    )


def _with_remedy(line: str, error: NodeError) -> str:
    return f"{line}\n  -> {error.remedy}" if error.remedy else line
