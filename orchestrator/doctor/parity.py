"""Rules over what should be equal on all nodes: driver, kernel, firmware of the network cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight, device

DRIVERS_DIFFER = Code(
    "DRIVERS_DIFFER",
    "the same NVIDIA driver on all nodes",
    "A fault that only one node has is looked for in the wrong place; updates of DGX OS often reach one node first.",
    "sudo apt-get update && sudo apt-get dist-upgrade on the older one, then restart it",
)
KERNELS_DIFFER = Code(
    "KERNELS_DIFFER",
    "the same kernel on all nodes",
    "Registering memory for RDMA works with some kernels and not with others, so one node of a pair may refuse.",
    "restart the node that has not booted its newest kernel, or bring all to the same: uname -r",
)
FIRMWARE_DIFFERS = Code(
    "FIRMWARE_DIFFERS",
    "the same firmware in all network cards of the fabric",
    "Firmware decides link speed and congestion control; mixed pairs were seen at half of their speed.",
    "fwupdmgr refresh && fwupdmgr update on the older one, then shut it down and start it again",
)


def findings(sight: Sight) -> Iterator[Finding]:
    details = {node.name: detail for node, detail in sight.seen() if node.accelerator == "gb10"}
    drivers = {name: detail.gpu.driver if detail.gpu else "" for name, detail in details.items()}
    kernels = {name: detail.kernel for name, detail in details.items()}
    yield from _equal(DRIVERS_DIFFER, drivers)
    yield from _equal(KERNELS_DIFFER, kernels)
    firmware = {}
    for node, detail in sight.on_fabric():
        found = (device(detail, rail.rdma) for rail in node.rails if rail.rdma)
        firmware[node.name] = ", ".join(sorted({each.firmware for each in found if each and each.firmware}))
    yield from _equal(FIRMWARE_DIFFERS, firmware)


def _equal(code: Code, values: Mapping[str, str]) -> Iterator[Finding]:
    """One finding over all nodes; a node that did not tell makes it unknown, unless the others differ already."""
    if len(values) < 2:
        return
    told = {name: value for name, value in values.items() if value}
    said = ", ".join(f"{name} {value}" for name, value in told.items())
    if len(set(told.values())) > 1:
        yield code.warn("", said)
    elif len(told) < len(values):
        yield code.unknown("", f"{', '.join(name for name in values if name not in told)} did not tell")
    else:
        yield code.passed("", said)
