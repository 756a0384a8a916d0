"""The memory sum of one node, term by term, each with where it comes from. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.plan.ceilings import GIB
from orchestrator.plan.kv import Cache, Split, cache
from orchestrator.spec.machine import Machine
from orchestrator.spec.model import Measured, Model

Basis = Literal["exact", "rounded", "reported", "rule", "assumed", "unknown"]


@dataclass(frozen=True, slots=True)
class Drafter:
    """A second checkpoint that drafts: None bytes are unknown, ``whole`` ones are not divided over the ranks."""

    name: str
    size: tuple[float, Basis] | None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be served on every node; where nobody named a context, the card's is taken."""

    split: Split
    context_tokens: int | None
    sequences: int
    dtype: str | None
    utilization: float
    tables_on_disk: bool = False
    draft: Drafter | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One line of the sum, on one node. ``bytes`` is None when it is not known."""

    name: str
    bytes: float | None
    basis: Basis
    says: str


@dataclass(frozen=True, slots=True)
class Needs:
    """The terms of one node. ``fixed`` are weights, a draft of its own if there is one, and runtime, in this order."""

    fixed: tuple[Term, ...]
    cache: Term
    rows: Cache

    @property
    def terms(self) -> tuple[Term, ...]:
        return (*self.fixed, self.cache)

    @property
    def known_bytes(self) -> float:
        return _known(self.terms)

    @property
    def fixed_bytes(self) -> float | None:
        """None when one of them is not known."""
        return None if any(term.bytes is None for term in self.fixed) else _known(self.fixed)


def _known(found: tuple[Term, ...]) -> float:
    return sum(term.bytes or 0 for term in found)


def weights(model: Model, *, tables_on_disk: bool = False) -> tuple[float, Basis] | None:
    """Bytes of tensors that memory must hold, best figure first; None when nobody published a size."""
    off = model.tables.bytes if tables_on_disk and model.tables else 0
    for size in (model.tensor_bytes, model.weights_bytes, model.repo_bytes):
        if size is not None:
            return size - off, "exact"
    return (model.weights_gb * 1e9 - off, "rounded") if model.weights_gb is not None else None


def needs(load: Load, model: Model, machine: Machine) -> Needs:
    """What one node must hold, and the cache rule that the last term follows."""
    size = weights(model, tables_on_disk=load.tables_on_disk)
    rows = cache(model.kv, load.dtype, load.split)
    drafts = () if load.draft is None else (_draft_term(load.draft, load.split.tensor),)
    fixed = (_weights_term(model, load, size), *drafts, _runtime_term(model, load, machine))
    return Needs(fixed, _cache_term(rows, load), rows)


def _pick(found: tuple[Measured, ...], load: Load) -> Measured | None:
    """Of the same stack if there is one, else the largest; a figure for another node count does not count."""
    fitting = [each for each in found if each.nodes in (None, load.split.nodes)]
    own = [each for each in fitting if each.stack in load.split.stacks]
    return max(own or fitting, key=lambda each: each.bytes, default=None)


def _weights_term(model: Model, load: Load, size: tuple[float, Basis] | None) -> Term:
    if size is None:
        return Term("weights", None, "unknown", "nobody published the size of this checkpoint")
    share, nodes = size[0] / load.split.nodes, load.split.nodes
    on_disk = f", {model.tables.what} on disk" if load.tables_on_disk and model.tables else ""
    arithmetic = f"{size[0] / 1e9:,.3f} GB / {nodes}{on_disk}"
    loaded = _pick(tuple(each for each in model.loaded if each.tables_on_disk == load.tables_on_disk), load)
    if loaded is not None and loaded.bytes > share:
        says = f"{loaded.source}; by arithmetic {arithmetic} = {share / 1e9:.3f} GB"
        return Term("weights", loaded.bytes, "reported", says)
    return Term("weights", share, size[1], arithmetic)


def _draft_term(draft: Drafter, tensor: int) -> Term:
    if draft.size is None:
        return Term("draft", None, "unknown", f"nobody published the size of {draft.name}")
    (size, basis), says = draft.size, f"{draft.size[0] / 1e9:,.3f} GB of {draft.name}"
    if draft.whole:
        return Term("draft", size, basis, f"{says}, whole on every rank")
    return Term("draft", size / tensor, basis, f"{says} / {tensor}")


def _runtime_term(model: Model, load: Load, machine: Machine) -> Term:
    seen = _pick(model.runtime, load)
    if seen is not None:
        return Term("runtime", seen.bytes, "reported", seen.source)
    says = f"{machine.runtime_bytes / GIB:.1f} GiB as measured with another model"
    return Term("runtime", machine.runtime_bytes, "assumed", says)


def _cache_term(kept: Cache, load: Load) -> Term:
    per_token, context = kept.bytes_per_token, load.context_tokens
    if per_token is None:
        return Term("KV cache", None, "unknown", kept.unknown)
    if context is None:
        return Term("KV cache", None, "unknown", "the model's context length is not known; name one with --context")
    needed = load.sequences * (context * per_token + kept.state_bytes)
    basis: Basis = "reported" if kept.measured else "rule"
    says = f"{load.sequences} x {context:,} tokens at {per_token:,.0f} B ({kept.dtype})"
    if kept.measured and kept.rule:
        says += f", measured; the rule says {kept.rule:,.0f} B"
    return Term("KV cache", needed, basis, says)
