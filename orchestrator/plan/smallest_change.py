"""What would make it fit, the smallest change first: a setting, another split, more boxes, a smaller build. Pure."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.plan.ceilings import legal_counts
from orchestrator.plan.kv import Cache, cache
from orchestrator.plan.memory import Load, needs, weights
from orchestrator.spec.machine import Machine
from orchestrator.spec.model import Build, Model

MOST_NODES = 24


def changes(load: Load, model: Model, machine: Machine, total_bytes: float) -> tuple[str, ...]:
    """Changes to ``load`` as an operator would write them; ``total_bytes`` is a node's MemTotal."""
    found = [*_settings(load, model, machine, total_bytes), *_smaller_rows(load, model, machine, total_bytes)]
    if not load.tables_on_disk and model.tables is not None:
        found.append(f"leave {model.tables.what} on disk ({model.tables.bytes / 1e9:.1f} GB less in memory)")
    counts = legal_counts(model.architecture, expert_parallel=load.split.expert_parallel, most=MOST_NODES)
    for count in (each for each in counts if each > load.split.nodes):
        wider = replace(load, split=replace(load.split, tensor=count, pipeline=1))
        if needs(wider, model, machine).known_bytes <= machine.most_utilization * total_bytes:
            return (*found, f"--nodes {count}")
    smaller = [f"{build.name} ({build.weights_gb:g} GB)" for build in _smaller_builds(model)]
    return (*found, *([f"a smaller build: {', '.join(smaller[:3])}"] if smaller else []))


def _settings(load: Load, model: Model, machine: Machine, total_bytes: float) -> list[str]:
    """More memory for the engine, or a shorter context: both need no other machine."""
    now = needs(load, model, machine)
    given, fixed, kept = load.utilization * total_bytes, now.fixed_bytes, now.cache.bytes
    if fixed is None or kept is None or load.context_tokens is None:
        return []
    found = []
    if given < fixed + kept <= machine.most_utilization * total_bytes:
        found.append(f"memory_utilization {(fixed + kept) / total_bytes + 0.0005:.3f}")
    tokens = _longest(given - fixed, now.rows, load.sequences)
    return [*found, *([f"--context {tokens}"] if 1024 <= tokens < load.context_tokens else [])]


def _longest(room_bytes: float, kept: Cache, sequences: int) -> int:
    """The longest context, in whole thousands of tokens, that as many sequences can have at once."""
    per_token = kept.bytes_per_token or 1.0
    return int((room_bytes / sequences - kept.state_bytes) / per_token) // 1024 * 1024


def _smaller_rows(load: Load, model: Model, machine: Machine, total_bytes: float) -> list[str]:
    """Another cache dtype of the card, or its rows divided by decode-context parallel."""
    given, now = load.utilization * total_bytes, needs(load, model, machine).rows
    others = sorted({name for row in model.kv.rows for name in row.bytes} - {"any", now.dtype})
    found = []
    for dtype in others:
        smaller = (cache(model.kv, dtype, load.split).rule or 0) < (now.rule or 0)
        if smaller and needs(replace(load, dtype=dtype), model, machine).known_bytes <= given:
            found.append(f"cache dtype {dtype}")
            break
    tensor = load.split.tensor
    divided = replace(load, split=replace(load.split, decode_context=tensor))
    can = tensor > 1 and load.split.decode_context == 1 and any(row.heads is None for row in model.kv.rows)
    if can and needs(divided, model, machine).known_bytes <= given:
        found.append(f"decode_context_parallel {tensor}")
    return found


def _smaller_builds(model: Model) -> list[Build]:
    size = weights(model)
    return sorted(
        (build for build in model.builds if size and build.weights_gb * 1e9 < 0.98 * size[0]),
        key=lambda build: -build.weights_gb,
    )
