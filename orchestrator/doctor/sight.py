"""What the doctor looks at: what the nodes answered and, where a profile was named, the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.facts.detail import Disk, ImageInside, Netdev, NodeDetail, RdmaDevice
from orchestrator.facts.node import NodeFacts
from orchestrator.plan.launch import ImageBits, LaunchPlan
from orchestrator.plan.resolved import Resolved
from orchestrator.spec.cluster import Cluster, Node
from orchestrator.spec.pins import KnownBadTable

SOURCE_LABEL = "sparkctl.source"
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Sight:
    """``nodes`` are the ones that were asked; one that did not answer is in neither ``facts`` nor ``details``.

    ``ours`` are plans that are recorded on the nodes. Without a profile ``resolved`` and ``plan`` are None.
    ``bus_bytes_s`` is what NCCL's all-gather moved over the whole fabric when it was last tested, None if it never was.
    """

    cluster: Cluster
    nodes: tuple[Node, ...]
    facts: Mapping[str, NodeFacts] = field(default_factory=dict)
    details: Mapping[str, NodeDetail] = field(default_factory=dict)
    table: KnownBadTable = field(default_factory=lambda: KnownBadTable(combinations=()))
    resolved: Resolved | None = None
    plan: LaunchPlan | None = None
    ours: tuple[LaunchPlan, ...] = ()
    bus_bytes_s: float | None = None

    def seen(self) -> Iterator[tuple[Node, NodeDetail]]:
        """Every node with what it told; nothing told is an empty detail, so that rules answer unknown."""
        for node in self.nodes:
            yield node, self.details.get(node.name) or NodeDetail(node.name)

    def on_wires(self) -> Iterator[tuple[Node, NodeDetail]]:
        """Nodes that reach one another over a network, whatever kind it is: all but loopback ones."""
        for node, detail in self.seen():
            if not node.rails[0].address.startswith("127."):
                yield node, detail

    def on_fabric(self) -> Iterator[tuple[Node, NodeDetail]]:
        """Of those, Sparks and nodes with RDMA devices named: what is true of ConnectX-7 ports is asked of them."""
        for node, detail in self.on_wires():
            if is_fabric(node):
                yield node, detail

    def image(self, detail: NodeDetail) -> ImageInside | None:
        """The planned engine image as the node holds it; None when it is not there or nobody could look."""
        bits = self.engine_image
        return next((each for each in detail.images if bits and is_image(bits, each)), None)

    @property
    def engine_image(self) -> ImageBits | None:
        if self.plan is None or self.resolved is None or self.resolved.stack.image is None:
            return None
        repository = self.resolved.stack.image.repository
        return next((each for each in self.plan.images if each.repository == repository), None)

    def serves(self, node: str) -> bool:
        """Whether the planned deployment itself runs on ``node``: its memory and its ports are then its own."""
        facts = self.facts.get(node)
        return (
            self.plan is not None
            and facts is not None
            and any(unit.running and unit.deployment == self.plan.deployment for unit in facts.units)
        )


def is_image(bits: ImageBits, image: ImageInside) -> bool:
    """By our own tag, by digest, or by the source that a copy recorded: an image that was loaded has no digest."""
    wanted = f"{bits.repository}@{bits.digest}"
    return (
        image.name == bits.local_tag
        or (bool(bits.digest) and wanted in {*image.digests, image.labels.get(SOURCE_LABEL, "")})
        or (not bits.digest and image.name.partition("@")[0].rpartition(":")[0] == bits.repository)
    )


def disk_of(detail: NodeDetail, path: str) -> Disk | None:
    """The filesystem that holds ``path``, among those that the node told."""
    holding = [each for each in detail.disks if f"{path}/".startswith(f"{each.path.rstrip('/')}/")]
    return max(holding, key=lambda each: len(each.path), default=None)


def is_fabric(node: Node) -> bool:
    return node.accelerator == "gb10" or any(rail.rdma for rail in node.rails)


def netdev(detail: NodeDetail, name: str) -> Netdev | None:
    return next((each for each in detail.netdevs or () if each.name == name), None)


def device(detail: NodeDetail, name: str) -> RdmaDevice | None:
    return next((each for each in detail.rdma or () if each.name == name), None)


def active(found: RdmaDevice) -> bool:
    return "ACTIVE" in found.state.upper().replace("INACTIVE", "")


def port_of(name: str, port: str) -> str:
    """The physical port; where the node does not tell, by the names of DGX OS: twins differ in the PCIe domain."""
    return port or re.sub(r"P\d+p", "p", name)


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
