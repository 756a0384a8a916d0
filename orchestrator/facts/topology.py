"""How the nodes are cabled, from proved links: direct, ring or switch; or in words why it is none of them. Pure.

Decided by ports and never by subnets or names: a switch is where one port of each node reaches one port of every other;
a ring is where every port that is cabled reaches exactly one other, and the cables close one circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from typing import Literal

from orchestrator.facts.detail import NodeDetail
from orchestrator.facts.fabric import End, Link, Port, ends, management, proved

Topology = Literal["direct", "ring", "switch"]


@dataclass(frozen=True, slots=True)
class Seat:
    """A rail as it was found. ``towards`` names the nodes that it reaches; empty for the rendezvous of a ring."""

    end: End
    towards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The decision. ``nodes`` are in the order of the file (of a ring: of the cables), ``why`` says how it was seen.

    ``topology`` is None where nothing was recognised; ``why`` then says what stood in the way.
    """

    topology: Topology | None
    why: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    seats: Mapping[str, tuple[Seat, ...]] = field(default_factory=dict)


def decide(details: Sequence[NodeDetail], links: Sequence[Link]) -> Found:
    """The topology of ``details`` (in the operator's order), given every pair with the answers of its pings."""
    names = [each.node for each in details]
    good = proved(links)
    if len(names) == 1:
        return _alone(details[0])
    if len(names) == 2:
        return _direct(names, good) if good else Found(None, _apart(names, good, links))
    whole = _switch(names, good)
    if whole:
        return whole
    order = _circle(names, good)
    return _ring(details, order, good) if order else Found(None, _apart(names, good, links))


def _alone(detail: NodeDetail) -> Found:
    here = [*ends(detail), *management(detail)]
    if not here:
        return Found(None, (f"{detail.node}: no netdev that is up has an IPv4 address",))
    why = "One node: nothing to pair. Its rail only says where its services listen."
    return Found("direct", (why,), (detail.node,), {detail.node: (Seat(here[0]),)})


def _direct(names: Sequence[str], good: Sequence[Link]) -> Found:
    cables = len({(link.one.port, link.other.port) for link in good})
    why = ["Two nodes that reach each other. A switch between two nodes looks the same and is set up the same."]
    if cables > 1:
        why.append(f"{cables} cables are in use. One carries the full bandwidth; a second adds no noticeable speed.")
    return Found("direct", tuple(why), tuple(names), _seats(names, good))


def _switch(names: Sequence[str], good: Sequence[Link]) -> Found | None:
    """One component of ports that joins every node with every other."""
    whole = [part for part in _components(good) if {node for node, _ in part} == set(names)]
    inside = [link for link in good if any(link.one.port in part for part in whole)]
    joined = {frozenset((link.one.node, link.other.node)) for link in inside}
    if not whole or any(frozenset(pair) not in joined for pair in combinations(names, 2)):
        return None
    seats = _seats(names, inside)
    first = {seats[name][0].end.network for name in names}
    why = [f"One port of each of the {len(names)} nodes reaches every other node: a switch."]
    if len(first) > 1:
        subnets = ", ".join(sorted(map(str, first)))
        return Found(None, (f"a switch, but no subnet holds one rail of every node; found {subnets}",))
    return Found("switch", tuple(why), tuple(names), seats)


def _components(good: Sequence[Link]) -> list[set[Port]]:
    parts: list[set[Port]] = []
    for link in good:
        pair = {link.one.port, link.other.port}
        touched = [part for part in parts if part & pair]
        parts = [part for part in parts if not part & pair]
        parts.append(pair.union(*touched))
    return parts


def _circle(names: Sequence[str], good: Sequence[Link]) -> tuple[str, ...]:
    """The nodes in the order of the cables, from the first towards the neighbour that comes first; empty if no ring."""
    if any(len(part) > 2 for part in _components(good)):
        return ()
    beside = {name: _neighbours(name, names, good) for name in names}
    if any(len(each) != 2 for each in beside.values()):
        return ()
    order = [names[0], beside[names[0]][0]]
    while len(order) <= len(names):
        onward = next(name for name in beside[order[-1]] if name != order[-2])
        if onward == order[0]:
            break
        order.append(onward)
    return tuple(order) if len(order) == len(names) else ()


def _neighbours(name: str, names: Sequence[str], good: Sequence[Link]) -> list[str]:
    pairs = [(link.one.node, link.other.node) for link in good]
    found = {other for pair in pairs if name in pair for other in pair if other != name}
    return [each for each in names if each in found]


def _ring(details: Sequence[NodeDetail], order: tuple[str, ...], good: Sequence[Link]) -> Found:
    """Rails towards the next neighbour first. No rail reaches all nodes, so management is the rendezvous."""
    by_name = {each.node: each for each in details}
    shared = _rendezvous([by_name[name] for name in order])
    if not shared:
        missing = (
            f"the cables close a ring ({' - '.join(order)}), but no rail of a ring reaches all nodes, and the nodes "
            "share no other subnet for their rendezvous; connect their RJ45 sockets to one network"
        )
        return Found(None, (missing,))
    seats = {}
    for index, name in enumerate(order):
        ahead = order[(index + 1) % len(order)]
        rails = sorted(_seats([name], good)[name], key=lambda seat: ahead not in seat.towards)
        seats[name] = (Seat(shared[name]), *rails)
    circle = " - ".join((*order, order[0]))
    why = (
        f"Every port reaches one other node, and the cables close a circle: {circle}. The nodes are in that order.",
        "No rail of a ring reaches all nodes, so the first entry of each node is its management netdev, without RDMA: "
        "the rendezvous. NCCL moves data over the others.",
    )
    return Found("ring", why, order, seats)


def _rendezvous(details: Sequence[NodeDetail]) -> dict[str, End]:
    """For each node a management address in one subnet that all of them have; wired before wireless."""
    offered = [management(each) for each in details]
    for first in offered[0]:
        same = [next((end for end in each if end.network == first.network), None) for each in offered]
        chosen = [end for end in same if end]
        if len(chosen) == len(details) == len({end.address for end in chosen}):
            return {end.node: end for end in chosen}
    return {}


def _seats(names: Sequence[str], links: Sequence[Link]) -> dict[str, tuple[Seat, ...]]:
    """One seat per netdev of each node. Subnets that most nodes share come first, so that the first rails meet."""
    towards: dict[str, dict[str, tuple[End, list[str]]]] = {}
    spread: dict[IPv4Network, set[str]] = {}
    for link in links:
        for near, far in ((link.one, link.other), (link.other, link.one)):
            spread.setdefault(near.network, set()).add(near.node)
            _, reached = towards.setdefault(near.node, {}).setdefault(near.netdev.name, (near, []))
            reached += [far.node] if far.node not in reached else []

    def order(seat: Seat) -> tuple[int, IPv4Network, IPv4Address]:
        return -len(spread[seat.end.network]), seat.end.network, IPv4Address(seat.end.address)

    return {
        name: tuple(sorted((Seat(end, tuple(reached)) for end, reached in towards[name].values()), key=order))
        for name in names
    }


def _apart(names: Sequence[str], good: Sequence[Link], links: Sequence[Link]) -> tuple[str, ...]:
    """What stood in the way, in sentences."""
    if not links:
        return ("no two nodes have addresses in the same subnet of the fabric",)
    beside = {name: _neighbours(name, names, good) for name in names}
    found = [
        f"{name} reaches {', '.join(beside[name])}" if beside[name] else f"{name} reaches no other node"
        for name in names
    ]
    held = {frozenset((link.one.node, link.other.node)) for link in good}
    mute = [link for link in links if frozenset((link.one.node, link.other.node)) not in held]
    found += [
        f"{link.one} and {link.other} are in one subnet, but no ping came back {_which_way(link)}" for link in mute[:8]
    ]
    if len(names) > 2:
        found.append("for a switch, every node must reach every other; for a ring, exactly two, in one circle")
    return tuple(found)


def _which_way(link: Link) -> str:
    if link.there is False and link.back is False:
        return "either way"
    return f"from {link.one.node}" if link.there is False else f"from {link.other.node}"
