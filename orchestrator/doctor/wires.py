"""Which rails a cable joins, and which of them are dark: what the rules over rails and over paths both must know. Pure.

One cable that is out shows in many places: no carrier, a device that is down, pings that are lost, routes that go
elsewhere. LINK_DOWN says it once, and the other rules leave alone what it explains.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight, active, netdev, port_of
from orchestrator.facts.detail import Netdev, NodeDetail
from orchestrator.spec.cluster import Node, Rail

LINK_DOWN = Code(
    "LINK_DOWN",
    "a link on every rail",
    "Without a carrier the cable is out or broken, or the other end is off. NCCL passes over such a device, so a port "
    "that lost one of its two netdevs has half its speed, and a rail without a link ends a start.",
    "look at the cable between NODE and its neighbour or the switch: ip -br link show NETDEV",
)


@dataclass(frozen=True, slots=True)
class End:
    """One rail of a node, and its netdev where the node told it."""

    node: Node
    rail: Rail
    dev: Netdev | None
    index: int

    @property
    def place(self) -> tuple[str, int]:
        return self.node.name, self.index

    @property
    def dark(self) -> bool:
        return self.dev is not None and not self.dev.up

    @property
    def off(self) -> bool:
        """Switched off by hand, which also takes the carrier from the other end."""
        return self.dark and self.dev is not None and self.dev.enabled is False

    @property
    def port(self) -> tuple[str, str]:
        return self.node.name, port_of(self.rail.netdev, self.dev.port if self.dev else "")


class Wires:
    """The ends of all rails, and who talks to whom. Made once for a look: a cluster of 64 nodes has thousands of pairs.

    Ends face each other by the order of rails in the cluster file; in a ring, by the subnet that they share.
    """

    def __init__(self, sight: Sight) -> None:
        self.switched = sight.cluster.topology == "switch"
        self._ring = sight.cluster.topology == "ring"
        self.ends = tuple(
            End(node, rail, netdev(detail, rail.netdev), index)
            for node, detail in sight.on_wires()
            for index, rail in enumerate(node.rails)
        )
        self._networks = {each.place: _networks(each) for each in self.ends}
        self._by_index: dict[int, list[End]] = {}
        for each in self.ends:
            self._by_index.setdefault(each.index, []).append(each)
        self._astray = {each.place for each in self.ends if self._is_astray(each)}

    def of(self, node: Node) -> list[End]:
        return [each for each in self.ends if each.node.name == node.name]

    def facing(self, end: End) -> list[End]:
        same = self.ends if self._ring else self._by_index[end.index]
        others = [each for each in same if each.node.name != end.node.name]
        return [each for each in others if self._meet(each, end)] if self._ring else others

    def networks(self, ends: Iterable[End]) -> list[str]:
        return sorted({network for end in ends for network in self._networks[end.place]})

    def _meet(self, one: End, other: End) -> bool:
        return not self._networks[one.place].isdisjoint(self._networks[other.place])

    def _is_astray(self, end: End) -> bool:
        crowded = any(self._meet(end, each) for each in self.of(end.node) if each is not end)
        return crowded and any(not self._meet(end, other) for other in self.facing(end))

    def astray(self, node: Node) -> frozenset[str]:
        """Netdevs of ``node`` in the subnet of another of its rails, while those they talk to are elsewhere."""
        return frozenset(each.rail.netdev for each in self.of(node) if each.place in self._astray)

    def cut(self, node: Node) -> frozenset[str]:
        """Addresses that ``node`` cannot reach for a reason that is said elsewhere: an end that is dark or astray."""
        return frozenset(
            other.rail.address
            for end in self.of(node)
            for other in self.facing(end)
            if other.dark or end.dark or not self._astray.isdisjoint((end.place, other.place))
        )


def _networks(end: End) -> frozenset[str]:
    """The subnets that an end says it is in; where it told no address, a /24 around the one of the cluster file."""
    told = end.dev.addresses if end.dev else ()
    return frozenset(str(ipaddress.ip_interface(each).network) for each in told or (f"{end.rail.address}/24",))


def is_elsewhere(node: Node, detail: NodeDetail) -> bool:
    """Whether the cable sits in another cage than the cluster file says: as many devices are active that no rail names.

    Then names must be corrected and no cable looked at; HCA_NOT_ACTIVE says which.
    """
    out = [rail for rail in node.rails if (dev := netdev(detail, rail.netdev)) and not dev.up]
    named = {rail.rdma for rail in node.rails}
    spare = [each for each in detail.rdma or () if active(each) and each.name not in named]
    return bool(out) and len(spare) >= len(out)


def dark(node: Node, detail: NodeDetail) -> tuple[Rail, ...]:
    """The node's rails of which LINK_DOWN is said."""
    if is_elsewhere(node, detail):
        return ()
    return tuple(rail for rail in node.rails if (dev := netdev(detail, rail.netdev)) and not dev.up)


def findings(sight: Sight) -> Iterator[Finding]:
    out: list[End] = []
    wires = Wires(sight)
    for node, detail in sight.on_wires():
        if detail.netdevs is None:
            yield LINK_DOWN.unknown(node.name, "the node told no netdevs")
            continue
        rails = dark(node, detail)
        mine = [each for each in wires.of(node) if each.rail in rails]
        if not mine:
            yield LINK_DOWN.passed(node.name, ", ".join(rail.netdev for rail in node.rails))
        out += mine
    for end in out:
        if end.off:
            said = f"{end.rail.netdev} is switched off"
            yield LINK_DOWN.fail(end.node.name, said, f"on {end.node.name}: sudo ip link set {end.rail.netdev} up")
    cables: dict[frozenset[tuple[str, str]], list[End]] = {}
    for end in out:
        others = [] if wires.switched else wires.facing(end)
        if end.off or (others and all(each.off for each in others)):
            continue
        cable = {end.port} | {each.port for each in others}
        cables.setdefault(frozenset(cable), []).append(end)
    for same in cables.values():
        yield _cable(wires, same)


def _cable(wires: Wires, same: list[End]) -> Finding:
    """One cable that is out: by the node that lost its carrier; both ends dark are of no single node."""
    names = list(dict.fromkeys(each.node.name for each in same))
    said = " and ".join(f"{each.node.name} {each.rail.netdev}" for each in same)
    peers = dict.fromkeys(each.node.name for end in same for each in wires.facing(end))
    if wires.switched or not peers:
        between = f"{' and '.join(names)} and the switch"
    else:
        between = " and ".join(dict.fromkeys((*names, *peers)))
    look = "; ".join(f"ip -br link show {each.rail.netdev}" for each in same if each.node.name == names[0])
    remedy = f"look at the cable between {between}; on {names[0]}: {look}"
    return LINK_DOWN.fail(names[0] if len(names) == 1 else "", f"no carrier on {said}", remedy)
