"""The machine that a memory sum is made for, as data with sources: ``pins/machines/gb10.yaml``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.spec.cluster import Name, Spec

Positive = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]


class Power(Spec):
    """Watts of one machine, and what a kilowatt-hour costs in the sums."""

    measured_w: Positive
    idle_w: Positive
    usd_per_kwh: Positive


class Machine(Spec):
    """One node. ``memory_label_bytes`` is what the box says (a conservative budget), ``memory_total_bytes`` MemTotal.

    ``memory_generous_bytes`` reads the label as GiB: what does not fit into that fits nowhere.
    ``weights_rule_bytes`` is the most weights per node that owners report working, and ``steps`` the cluster sizes
    that people build. ``runtime_bytes`` is what an engine takes beside weights and cache where a card has no figure
    of its own, and ``head_extra_bytes`` what a head rank took beyond the others. ``utilization`` is the share of
    MemTotal that engines are given where a profile says nothing, ``most_utilization`` the largest that was seen to be
    free while weights load. ``fabric_bytes_s`` is the all-gather bus bandwidth to expect by topology, ``rail_bytes_s``
    what RDMA must write over one rail alone. ``warnings`` are true of every sum over several nodes.
    """

    name: Name
    about: str
    memory_label_bytes: Bytes
    memory_generous_bytes: Bytes
    memory_total_bytes: Bytes
    weights_rule_bytes: Bytes
    careful_share: Annotated[float, Field(gt=0, le=1)]
    utilization: Annotated[float, Field(gt=0, le=1)]
    most_utilization: Annotated[float, Field(gt=0, le=1)]
    runtime_bytes: Bytes
    head_extra_bytes: Bytes
    memory_bandwidth_bytes_s: Bytes
    fabric_bytes_s: dict[str, Positive] = {}
    rail_bytes_s: Positive | None = None
    ssd_bytes_s: Bytes
    ssd_bytes: Bytes
    steps: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    power: Power
    price_usd: Positive
    sources: tuple[str, ...] = Field(min_length=1)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
