"""Bytes of KV cache on one rank, from a card's rule and from what running engines showed. Pure.

The usual formula (two, times layers, heads and head size) is wrong by up to twelve times for the models that people
put on Sparks: latent attention keeps one row for all heads and keeps it on every tensor-parallel rank, many layers
keep none, some rows stand for several tokens. So the rule is data on the card. Where theory and measurement differ,
the measurement is used and both are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from orchestrator.spec.model import Kv, KvMeasured, KvRows


@dataclass(frozen=True, slots=True)
class Split:
    """How a model lies on its ranks; one rank a node. Measurements with one of ``stacks`` count first."""

    tensor: int
    pipeline: int = 1
    decode_context: int = 1
    expert_parallel: bool = False
    stacks: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class Cache:
    """Bytes on one rank: per token by ``rule`` and as ``measured``, and per sequence whatever its length.

    ``unknown`` says why there is neither; then every answer that needs one is unknown too.
    """

    dtype: str
    rule: float | None
    measured: KvMeasured | None
    state_bytes: float
    unknown: str = ""

    @property
    def bytes_per_token(self) -> float | None:
        return self.measured.bytes_per_token if self.measured else self.rule


def cache(kv: Kv, dtype: str | None, split: Split) -> Cache:
    """``dtype`` as on ``--kv-cache-dtype``; None is the first that the card names (what the model loads with).

    A measurement under ``auto`` is of what the model loads with too.
    """
    chosen = dtype or _first_dtype(kv)
    sizes = [row.bytes.get(chosen, row.bytes.get("any")) for row in kv.rows]
    unknown = kv.unknown or ""
    rule: float | None = None
    if kv.rows and all(size is not None for size in sizes):
        per_row = zip(kv.rows, (size for size in sizes if size is not None), strict=True)
        rule = sum(_per_token(row, size, split) for row, size in per_row) / split.pipeline
    elif kv.rows:
        known = sorted({name for row in kv.rows for name in row.bytes} - {"any"})
        unknown = f"the card has no row size for cache dtype {chosen}; it knows {', '.join(known)}"
    measured = _measured(kv, {chosen} if dtype else {chosen, "auto"}, split)
    state = sum(each.layers * each.bytes / (split.tensor if each.divided else 1) for each in kv.state)
    return Cache(chosen, rule, measured, state / split.pipeline, "" if measured or rule else unknown)


def _first_dtype(kv: Kv) -> str:
    named = [name for row in kv.rows for name in row.bytes if name != "any"]
    return named[0] if named else kv.measured[0].dtype if kv.measured else "auto"


def _per_token(row: KvRows, row_bytes: float, split: Split) -> float:
    """MLA rows are divided by decode-context parallel only, grouped heads by tensor parallel until one is left."""
    one_layer = row_bytes / row.tokens_per_row / split.decode_context
    if row.heads is not None:
        one_layer *= max(1, ceil(row.heads / split.tensor))
    return row.layers * one_layer


def _measured(kv: Kv, dtypes: set[str], split: Split) -> KvMeasured | None:
    """Of the same dtype and decode-context split; of the same stack if there is one, else the least favourable."""
    fitting = [
        each for each in kv.measured if each.dtype in dtypes and each.decode_context_parallel == split.decode_context
    ]
    own = [each for each in fitting if each.stack in split.stacks]
    return max(own or fitting, key=lambda each: each.bytes_per_token, default=None)
