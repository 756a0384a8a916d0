"""Will it fit? A memory sum per node with every term shown, a verdict, and the smallest change that would help. Pure.

What is arithmetic, what somebody reported and what is assumed is kept apart: a term carries where it comes from, and
an assumption alone never makes ``up`` refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.plan.ceilings import GIB, legal_counts, smallest
from orchestrator.plan.kv import Cache
from orchestrator.plan.memory import Load, Needs, Term, needs, weights
from orchestrator.plan.smallest_change import MOST_NODES, changes
from orchestrator.spec.machine import Machine
from orchestrator.spec.model import Model

Verdict = Literal["fits", "at the edge", "does not fit", "unknown"]

# Below this share of a node left over, the next start may fail: runs of one configuration differ by this much.
CLOSE = 0.02


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer for one node count. Bytes are per node unless the name says cluster.

    ``usable_bytes`` is the share of MemTotal that the engine is given; ``headroom_bytes`` is what of it is left.
    ``cluster_headroom_bytes`` is weights against the label and nothing else: the sum that articles publish.
    ``pool_tokens`` is the cache that would be left for tokens, ``full_sequences`` how many whole contexts that holds.
    ``impossible`` is stronger than "does not fit": no assumption is part of it.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    load: Load
    needs: Needs
    usable_bytes: float
    headroom_bytes: float | None
    cluster_headroom_bytes: float | None
    pool_tokens: int | None
    full_sequences: int | None
    impossible: bool

    @property
    def nodes(self) -> int:
        return self.load.split.nodes

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.needs.terms

    @property
    def cache(self) -> Cache:
        return self.needs.rows


@dataclass(frozen=True, slots=True)
class Budget:
    """The smallest cluster by weights alone under one budget per node; ``legal`` also divides heads (and experts);
    None when no count up to 24 does, or when the number of heads is not known."""

    name: str
    bytes_per_node: float
    smallest: int
    legal: int | None


def budgets(
    model: Model, machine: Machine, *, expert_parallel: bool, tables_on_disk: bool = False
) -> tuple[Budget, ...]:
    """The three budgets that owners plan with; empty when the size of the weights is unknown."""
    size = weights(model, tables_on_disk=tables_on_disk)
    if size is None:
        return ()
    counts = legal_counts(model.architecture, expert_parallel=expert_parallel, most=MOST_NODES)
    found = []
    for name, per_node in (
        ("what the label says", float(machine.memory_label_bytes)),
        (f"{machine.careful_share:.0%} of it", machine.careful_share * machine.memory_label_bytes),
        ("weights that owners report working", float(machine.weights_rule_bytes)),
    ):
        least = smallest(size[0], per_node)
        legal = next((count for count in counts if count >= least), None)
        found.append(Budget(name, per_node, least, legal if model.architecture.heads else None))
    return tuple(found)


def fit(model: Model, load: Load, machine: Machine, memory_total_bytes: float | None = None) -> Fit:
    """The sum for ``load``; ``memory_total_bytes`` is a real node's MemTotal, the smallest of them."""
    total = memory_total_bytes or machine.memory_total_bytes
    size = weights(model, tables_on_disk=load.tables_on_disk)
    parts, usable = needs(load, model, machine), load.utilization * total
    fixed, cached = parts.fixed_bytes, parts.cache.bytes
    left = None if fixed is None or cached is None else usable - fixed - cached
    pool = None if fixed is None else _pool(usable - fixed, parts.rows, load)
    answer = Fit(
        verdict="unknown",
        reasons=(),
        changes=(),
        load=load,
        needs=parts,
        usable_bytes=usable,
        headroom_bytes=left,
        cluster_headroom_bytes=load.split.nodes * machine.memory_label_bytes - size[0] if size else None,
        pool_tokens=pool,
        full_sequences=pool // load.context_tokens if pool is not None and load.context_tokens else None,
        impossible=False,
    )
    return _judged(answer, model, machine, total)


def _pool(room: float, rows: Cache, load: Load) -> int | None:
    if rows.bytes_per_token is None:
        return None
    return max(0, int((room - load.sequences * rows.state_bytes) / rows.bytes_per_token))


def _judged(answer: Fit, model: Model, machine: Machine, total: float) -> Fit:
    weights_term = answer.terms[0]
    if weights_term.bytes is None:
        return replace(answer, reasons=(weights_term.says,))
    certain = sum(term.bytes or 0 for term in answer.needs.fixed if term.basis != "assumed")
    most = machine.most_utilization * total
    if weights_term.bytes > machine.memory_label_bytes or certain > total:
        return _refused(answer, model, machine, total, impossible=True)
    known = answer.needs.known_bytes
    if known > most:
        return _refused(answer, model, machine, total, impossible=False)
    if answer.headroom_bytes is None:
        left = (answer.usable_bytes - known) / 1e9
        missing = "; ".join(f"{term.name}: {term.says}" for term in answer.terms if term.bytes is None)
        return replace(answer, reasons=(f"what is known leaves {left:.3f} GB a node for what is not: {missing}",))
    close = _edges(answer, machine, known / total)
    ways = changes(answer.load, model, machine, total) if close else ()
    return replace(answer, verdict="at the edge" if close else "fits", reasons=close, changes=ways)


def _edges(answer: Fit, machine: Machine, share: float) -> tuple[str, ...]:
    """Why a sum that can work out is nevertheless close."""
    load, pool = answer.load, answer.pool_tokens or 0
    found = []
    if share > load.utilization:
        found.append(f"the sum needs {share:.3f} of MemTotal and {load.utilization:.2f} is given: give it more")
        if load.context_tokens and pool < load.context_tokens:
            found.append(f"the cache holds {pool:,} tokens, the context is {load.context_tokens:,}")
    elif answer.headroom_bytes is not None and answer.headroom_bytes < CLOSE * answer.usable_bytes:
        found.append(f"only {answer.headroom_bytes / 1e9:.3f} GB a node are left")
    elif answer.headroom_bytes is not None and answer.nodes > 1 and answer.headroom_bytes < machine.head_extra_bytes:
        more, left = machine.head_extra_bytes / 1e9, answer.headroom_bytes / 1e9
        found.append(
            f"{left:.3f} GB a node are left, and one owner's head rank needed {more:.3f} GB more than the others"
        )
    weights_bytes = answer.terms[0].bytes or 0
    if weights_bytes > machine.weights_rule_bytes:
        rule = machine.weights_rule_bytes / 1e9
        found.append(f"{weights_bytes / 1e9:.1f} GB of weights a node; {rule:.0f} GB is the most that owners report")
    return tuple(found)


def _refused(answer: Fit, model: Model, machine: Machine, total: float, *, impossible: bool) -> Fit:
    nodes, weights_bytes = answer.nodes, answer.terms[0].bytes or 0.0
    reasons = []
    whole = model.weights_bytes or weights_bytes * nodes
    generous = nodes * machine.memory_generous_bytes
    if whole > generous and not answer.load.tables_on_disk:
        reasons.append(
            f"short by {(whole - generous) / GIB:.3f} GiB even if all {generous / GIB:.0f} GiB could be used: the "
            f"checkpoint is {whole / GIB:.3f} GiB, {whole / generous:.3f} times that"
        )
    elif impossible:
        reasons.append(f"{weights_bytes / 1e9:.3f} GB of weights a node do not fit into its memory")
    else:
        needed = answer.needs.known_bytes
        reasons.append(
            f"a node needs {needed / 1e9:.3f} GB, {needed / total:.3f} of its memory; about "
            f"{machine.most_utilization} is the most that is free while weights load"
        )
    ways = changes(answer.load, model, machine, total)
    return replace(answer, verdict="does not fit", reasons=tuple(reasons), changes=ways, impossible=impossible)
