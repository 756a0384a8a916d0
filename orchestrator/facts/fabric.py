"""Which ends of the fabric belong together: candidates by sysfs, pairs by subnet, proof by pings. Pure.

A cable is known only by its effect: two addresses of one subnet, on two nodes, that answer each other's pings out of
exactly those netdevs, in both directions.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from orchestrator.facts.detail import Netdev, NodeDetail
from orchestrator.facts.reach import Ping

Port = tuple[str, str]  # node, physical port
Reached = Mapping[str, Mapping[Ping, bool]]  # by node that sent them


@dataclass(frozen=True, slots=True)
class End:
    """One address of one netdev that may be of the fabric; ``network`` is its subnet, ``rdma`` its device, if any."""

    node: str
    netdev: Netdev
    address: str
    network: ipaddress.IPv4Network
    rdma: str = ""

    @property
    def port(self) -> Port:
        """The node and the physical port; a netdev of no known port is one of its own."""
        return self.node, self.netdev.port or self.netdev.name

    def __str__(self) -> str:
        return f"{self.node} {self.netdev.name} ({self.address})"


@dataclass(frozen=True, slots=True)
class Link:
    """Two ends in one subnet. ``there`` and ``back`` are the pings' answers; None where none could be sent."""

    one: End
    other: End
    there: bool | None = None
    back: bool | None = None


def fabric_netdevs(detail: NodeDetail) -> tuple[Netdev, ...]:
    """The netdevs that can be rails: those of RDMA devices, up or down.

    Where a node has no RDMA device at all: what is wired and neither loopback nor the way our SSH came in.
    """
    own = {each.netdev for each in detail.rdma or ()}
    netdevs = [each for each in detail.netdevs or () if not each.wireless]
    if own:
        return tuple(each for each in netdevs if each.name in own)
    return tuple(each for each in netdevs if not _elsewhere(each, detail.reached_at))


def _elsewhere(netdev: Netdev, reached_at: str) -> bool:
    here = [each.partition("/")[0] for each in netdev.addresses]
    return reached_at in here or not here or here[0].startswith("127.")


def ends(detail: NodeDetail) -> tuple[End, ...]:
    """Every IPv4 address of every fabric netdev that is up."""
    return _addressed(detail, fabric_netdevs(detail))


def management(detail: NodeDetail) -> tuple[End, ...]:
    """Addresses beside the fabric, of netdevs that are up: the way that SSH came in first, wired before wireless."""
    fabric = {each.name for each in fabric_netdevs(detail)}
    rest = [each for each in detail.netdevs or () if each.name not in fabric]
    found = [end for end in _addressed(detail, rest) if not end.address.startswith("127.")]
    return tuple(sorted(found, key=lambda end: (end.netdev.wireless, end.address != detail.reached_at)))


def _addressed(detail: NodeDetail, netdevs: Iterable[Netdev]) -> tuple[End, ...]:
    rdma = {each.netdev: each.name for each in detail.rdma or ()}
    found = []
    for netdev in netdevs:
        for written in netdev.addresses if netdev.up else ():
            at = ipaddress.IPv4Interface(written)
            found.append(End(detail.node, netdev, str(at.ip), at.network, rdma.get(netdev.name, "")))
    return tuple(found)


def pairs(details: Sequence[NodeDetail]) -> tuple[Link, ...]:
    """Ends of two nodes with different addresses in one subnet; nothing is proved yet.

    Equal addresses on two nodes are no pair: every node has the same ``docker0``.
    """
    return tuple(
        Link(one, other)
        for a, b in combinations(details, 2)
        for one in ends(a)
        for other in ends(b)
        if one.network == other.network and one.address != other.address
    )


def pings(links: Iterable[Link]) -> dict[str, tuple[Ping, ...]]:
    """What each node is to send so that every pair is tried in both directions."""
    found: dict[str, dict[Ping, None]] = {}
    for link in links:
        for near, far in ((link.one, link.other), (link.other, link.one)):
            found.setdefault(near.node, {})[Ping(far.address, near.netdev.name)] = None
    return {node: tuple(sent) for node, sent in found.items()}


def tried(links: Iterable[Link], reached: Reached) -> tuple[Link, ...]:
    """The links with the answers of their pings."""

    def came(near: End, far: End) -> bool | None:
        return reached.get(near.node, {}).get(Ping(far.address, near.netdev.name))

    return tuple(Link(x.one, x.other, came(x.one, x.other), came(x.other, x.one)) for x in links)


def proved(links: Sequence[Link]) -> tuple[Link, ...]:
    """The links that hold. Twins in one subnet are judged together.

    Where both twins of a port share a subnet, the kernel answers out of either, so single pings fail at random although
    the cable is good: there one ping each way between the two ports is proof for all of them. A node that cannot send
    pings (None) proves nothing and refutes nothing.
    """
    groups: dict[tuple[Port, Port, str], list[Link]] = {}
    for link in links:
        groups.setdefault((link.one.port, link.other.port, str(link.one.network)), []).append(link)
    good = [group for group in groups.values() if _holds(group)]
    return tuple(link for group in good for link in group)


def _holds(group: Sequence[Link]) -> bool:
    there, back = [link.there for link in group], [link.back for link in group]
    return all(any(way) or all(answer is None for answer in way) for way in (there, back))
