"""Rules over the way between two nodes: answers to pings, GID tables, routes, and the cabling of a ring.

NCCL chooses per device the GID that is RoCE v2 and IPv4; its index differs between nodes and drifts, so only the table
is looked at and no index is ever set.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.frames import MTU_PATH_TOO_SMALL, by_address, fits
from orchestrator.doctor.sight import Sight, active, device, netdev, port_of
from orchestrator.doctor.wires import Wires
from orchestrator.facts.detail import Gid, NodeDetail
from orchestrator.spec.cluster import Node

PEER_UNREACHABLE = Code(
    "PEER_UNREACHABLE",
    "an answer from every other node on the fabric",
    "Ranks find each other by these addresses; nothing can start without them.",
    "look at the cable and at the addresses on both ends: ip -4 -o addr show; ping ADDRESS",
)
NO_ROCE_V2_GID = Code(
    "NO_ROCE_V2_GID",
    "a RoCE v2 GID with an IPv4 address on every RDMA device",
    "Without one NCCL takes a link-local GID: ibv_modify_qp fails after the model has been loaded, or the "
    "first collective "
    "hangs.",
    "give the device's netdev its IPv4 address (sudo netplan apply), then look at "
    "/sys/class/infiniband/DEVICE/ports/1/gids",
)
CONTROL_TRAFFIC_OFF_FABRIC = Code(
    "CONTROL_TRAFFIC_OFF_FABRIC",
    "control traffic of Gloo, TP and NCCL on the rails",
    "On another interface serving ends when that one goes, such as Wi-Fi, though the cable is well.",
    "sparkctl up PROFILE renders these variables from the rails in cluster.yaml; take them out of profile and image",
)
RING_CABLING = Code(
    "RING_CABLING",
    "a cable from every node to the next, from one port to the other",
    "In a ring every two neighbours share a subnet; a cable in the wrong cage leaves two nodes without a way.",
    "put the cables from port 0 of each node into port 1 of the next, in the order of cluster.yaml, with a "
    "subnet per link",
)


def findings(sight: Sight) -> Iterator[Finding]:
    wires, sizes = Wires(sight), by_address(sight)
    for node, detail in sight.on_wires():
        # What LINK_DOWN or TWINS_IN_ONE_SUBNET explains is not said again.
        explained = wires.cut(node)
        yield from _pings(sight, node, detail, explained, sizes)
        yield from _routes(sight, node, detail, explained)
    for node, detail in sight.on_fabric():
        yield from _gids(node, detail)
    yield from _ring(sight)


def _pings(
    sight: Sight, node: Node, detail: NodeDetail, explained: frozenset[str], sizes: Mapping[str, int]
) -> Iterator[Finding]:
    near = [
        address for address in dict.fromkeys(to for to, _ in detail.pings) if _is_near(sight, node, detail, address)
    ]
    if not near:
        yield PEER_UNREACHABLE.unknown(node.name, "nobody pinged from here")
        return
    by_size: dict[str, dict[int, bool]] = {}
    for (to, size), ok in detail.pings.items():
        by_size.setdefault(to, {})[size] = ok
    for address in [each for each in near if each not in explained]:
        answers = by_size[address]
        # 28 bytes of IP and ICMP come on top. What is larger than the MTU of an end cannot pass it, and MTU_1500 or
        # MTU_DIFFERS says so of that end: only what both should take is asked of the way between them.
        most = fits(node, detail, address, sizes)
        lost = [size for size, ok in answers.items() if not ok and (most is None or size + 28 <= most)]
        if not any(answers.values()):
            yield PEER_UNREACHABLE.fail(
                node.name, f"no answer from {address}", PEER_UNREACHABLE.remedy.replace("ADDRESS", address)
            )
        elif lost:
            said = f"{address} answers {max(size for size, ok in answers.items() if ok)} bytes and not {min(lost)}"
            yield MTU_PATH_TOO_SMALL.fail(node.name, said, MTU_PATH_TOO_SMALL.remedy.replace("ADDRESS", address))
        else:
            yield MTU_PATH_TOO_SMALL.passed(
                node.name, f"{address} answers {max(size for size, ok in answers.items() if ok)} bytes"
            )


def _is_near(sight: Sight, node: Node, detail: NodeDetail, address: str) -> bool:
    """Whether a cable leads there: in a ring only to the neighbours, whose subnets the node shares."""
    if sight.cluster.topology != "ring":
        return True
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(network) for network in _ports(node, detail))


def _is_roce_v2_ipv4(gid: Gid) -> bool:
    try:
        return "v2" in gid.kind.lower() and ipaddress.IPv6Address(gid.value).ipv4_mapped is not None
    except ValueError:
        return False


def usable_gids(detail: NodeDetail, name: str) -> frozenset[int]:
    """Indexes of device ``name`` that NCCL could use on RoCE: version 2 with an IPv4 address."""
    found = device(detail, name)
    return frozenset(gid.index for gid in (found.gids if found else ()) if _is_roce_v2_ipv4(gid))


def _gids(node: Node, detail: NodeDetail) -> Iterator[Finding]:
    for name in [rail.rdma for rail in node.rails if rail.rdma]:
        found = device(detail, name)
        if found is None or not found.gids:
            yield NO_ROCE_V2_GID.unknown(node.name, f"{name} told no GID table")
        elif not active(found):
            continue
        elif indexes := usable_gids(detail, name):
            yield NO_ROCE_V2_GID.passed(node.name, f"{name} at index {', '.join(map(str, sorted(indexes)))}")
        else:
            kinds = ", ".join(sorted({gid.kind for gid in found.gids}))
            remedy = NO_ROCE_V2_GID.remedy.replace("DEVICE", name)
            yield NO_ROCE_V2_GID.fail(node.name, f"{name} has {len(found.gids)} GIDs ({kinds}), none of them", remedy)


def _routes(sight: Sight, node: Node, detail: NodeDetail, explained: frozenset[str]) -> Iterator[Finding]:
    peers = {rail.address: other.name for other in sight.nodes if other.name != node.name for rail in other.rails[:1]}
    peers = {address: name for address, name in peers.items() if address not in explained}
    ways = {address: detail.routes[address] for address in peers if address in detail.routes}
    if not ways:
        if peers:
            yield CONTROL_TRAFFIC_OFF_FABRIC.unknown(node.name, "the node told no routes to the others")
        return
    rails = {rail.netdev for rail in node.rails}
    off = [f"{address} ({peers[address]}) over {dev}" for address, dev in ways.items() if dev not in rails]
    if off:
        remedy = (
            f"give {node.name} an address in the fabric's subnet, or correct rails in cluster.yaml: "
            f"ip route get {next(iter(ways))}"
        )
        yield CONTROL_TRAFFIC_OFF_FABRIC.fail(node.name, "; ".join(off), remedy)
    else:
        yield CONTROL_TRAFFIC_OFF_FABRIC.passed(node.name, f"the others over {', '.join(sorted(set(ways.values())))}")


def _ring(sight: Sight) -> Iterator[Finding]:
    nodes = list(sight.on_wires())
    if sight.cluster.topology != "ring" or len(nodes) < 3:
        return
    for (node, here), (other, there) in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
        if here.netdevs is None or there.netdevs is None:
            yield RING_CABLING.unknown(node.name, "the nodes told no netdevs")
            continue
        mine, theirs = _ports(node, here), _ports(other, there)
        shared = mine.keys() & theirs.keys()
        if not shared:
            yield RING_CABLING.fail(node.name, f"no subnet in common with {other.name}, the next in the ring")
        elif all(mine[each] == theirs[each] for each in shared):
            port = next(iter(mine[each] for each in shared))
            yield RING_CABLING.warn(node.name, f"the cable to {other.name} goes from port {port} to the same port")
        else:
            yield RING_CABLING.passed(node.name, f"{', '.join(sorted(shared))} to {other.name}")


def _ports(node: Node, detail: NodeDetail) -> dict[str, str]:
    """Subnet -> physical port of this node's rails."""
    found = {}
    for rail in node.rails:
        dev = netdev(detail, rail.netdev)
        for address in dev.addresses if dev else ():
            found[str(ipaddress.ip_interface(address).network)] = port_of(rail.netdev, dev.port if dev else "")
    return found
