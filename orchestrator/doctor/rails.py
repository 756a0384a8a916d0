"""Rules over the rails of each node: is every named device there, active, whole, fast and of the right size?

Facts of hardware: one QSFP port of a Spark is two PCIe functions of about 100 Gbit/s each (NVIDIA, dgx-spark-playbooks,
connect-two-sparks); both must be used, each in a subnet of its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight, active, device, netdev, port_of
from orchestrator.doctor.wires import Wires, dark
from orchestrator.facts.detail import Netdev, NodeDetail
from orchestrator.spec.cluster import Node

RAIL_NOT_ON_NODE = Code(
    "RAIL_NOT_ON_NODE",
    "the netdev and the address that the cluster file names",
    "Addresses and interface names of every rank come from the cluster file; a name that is not there ends in Gloo's "
    '"Unable to find address" or in a rendezvous that waits for ever.',
    "correct rails in cluster.yaml, or give the netdev its address: ip -4 -o addr show",
)
HCA_NOT_ACTIVE = Code(
    "HCA_NOT_ACTIVE",
    "an ACTIVE RDMA device for every rail",
    "Device names follow the cage that the cable is in, so they differ between nodes; NCCL ends with invalid usage, or "
    "falls back to sockets.",
    "name each node's own active devices in cluster.yaml: ibdev2netdev shows them",
)
HALF_PORT_ONLY = Code(
    "HALF_PORT_ONLY",
    "both RDMA devices of a port among the rails",
    "One port is two PCIe functions of about 100 Gbit/s each; with one of them the link has half its speed "
    "and no error "
    "says so (NVIDIA/dgx-spark-playbooks issue 102).",
    "add the other device of the port as a rail in cluster.yaml, with an address in a subnet of its own",
)
TWINS_IN_ONE_SUBNET = Code(
    "TWINS_IN_ONE_SUBNET",
    "rails in different subnets",
    "Two interfaces of one node in one subnet send by whichever the kernel picks, and RDMA connections fail "
    "or go one way. "
    "NVIDIA's own set-up script leaves clusters like this.",
    "sudo ip addr replace 192.168.101.NUMBER/24 dev NETDEV; to stay, a subnet of its own for each rail, in "
    "/etc/netplan/40-cx7.yaml and in cluster.yaml",
)
LINK_SLOW = Code(
    "LINK_SLOW",
    "a link of 200 Gbit/s",
    "A link at 100 Gbit/s or less means that auto-negotiation failed or that the cable is another one. Breakouts of a "
    "switch run at 100 Gbit/s by design.",
    "ethtool NETDEV; set the port of the switch to 200G, or state topology: switch in cluster.yaml for a breakout",
)
RAIL_DEGRADED = Code(
    "RAIL_DEGRADED",
    "a measured bandwidth that fits the link",
    "A ConnectX-7 that started degraded says 200 Gbit/s and moves a tenth, with clean counters; no software cures it "
    "(NVIDIA/dgx-spark-playbooks pull request 108).",
    "shut the node down, take its power away for a minute, start it again and measure again",
)

FABRIC_SLOW = Code(
    "FABRIC_SLOW",
    "the bandwidth of a fabric that is set up as it should be",
    "All-gather moved about 3 GB/s over sockets or with another build of NCCL (NVIDIA/dgx-spark-playbooks issues 102 "
    "and 103), and 98 Gbit/s with one of the two devices of a port "
    "(tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark issue 35). Healthy ones were seen from "
    "17.57 GB/s (eight nodes at a switch) to 23.74 GB/s; a figure over all rails does not tell which of them is slow.",
    "sparkctl logs PROFILE | grep -E 'Using network|NET/IB : Using': IB, and both devices of the port, should be there",
)

# Above the 3.04 GB/s that sockets and a wrong build gave, far below anything healthy.
SOCKET_BYTES_S = 3.5e9
# 98 Gbit/s: what one of two twins moved. A ring is whole with 10 GB/s (NVIDIA's own script), so it is not judged so.
ONE_TWIN_BYTES_S = 12.25e9
ADVICE_SPEED_MBIT = 200_000
# One twin moves 92 to 112 of the 200 Gbit/s that its link says (NVIDIA's performance guide), so half is healthy.
HEALTHY_SHARE = 0.4


def findings(sight: Sight) -> Iterator[Finding]:
    wires = Wires(sight)
    for node, detail in sight.on_wires():
        yield _on_node(sight, node, detail)
        there = {end.rail.netdev: wires.networks(wires.facing(end)) for end in wires.of(node)}
        yield _subnets(node, detail, wires.astray(node), there)
    for node, detail in sight.on_fabric():
        yield from _active(sight, node, detail)
        yield from _whole(node, detail)
        yield from _speed(sight, node, detail)
        yield from _measured(node, detail)
    yield from _whole_fabric(sight)


def _on_node(sight: Sight, node: Node, detail: NodeDetail) -> Finding:
    facts = sight.facts.get(node.name)
    held = dict(facts.addresses) if facts else {}
    held |= {each.partition("/")[0]: dev.name for dev in detail.netdevs or () for each in dev.addresses}
    if not held and detail.netdevs is None:
        return RAIL_NOT_ON_NODE.unknown(node.name, "the node told no addresses")
    names = {dev.name for dev in detail.netdevs or ()} | set(held.values())
    # A node that told netdevs but no address of any of them did not tell addresses at all; a netdev without a link may
    # have lost its address with it.
    wrong = [
        rail
        for rail in node.rails
        if rail.netdev not in names
        or (held and held.get(rail.address) != rail.netdev and rail not in dark(node, detail))
    ]
    if not wrong:
        return RAIL_NOT_ON_NODE.passed(node.name, ", ".join(f"{rail.address} on {rail.netdev}" for rail in node.rails))
    said = [
        f"{rail.address} on {held[rail.address]}, not on {rail.netdev}"
        if rail.address in held
        else f"no netdev {rail.netdev}"
        if rail.netdev not in names
        else f"no {rail.address} on {rail.netdev}"
        for rail in wrong
    ]
    moved = [f"{held[rail.address]} for {rail.address}" for rail in wrong if rail.address in held]
    remedy = f"in cluster.yaml nodes/{node.name}/rails name {', '.join(moved)}" if moved else ""
    return RAIL_NOT_ON_NODE.fail(node.name, "; ".join(said), remedy)


def _active(sight: Sight, node: Node, detail: NodeDetail) -> Iterator[Finding]:
    wanted = [rail.rdma for rail in node.rails if rail.rdma]
    if not wanted:
        return
    if detail.rdma is None:
        yield HCA_NOT_ACTIVE.unknown(node.name, "the node told no RDMA devices")
        return
    bad = []
    out = {rail.rdma for rail in dark(node, detail)}
    for name in wanted:
        if name in out:
            continue
        found = device(detail, name)
        if found is None or not active(found):
            bad.append(f"{name} is {found.state if found else 'not there'}")
    if bad:
        yield HCA_NOT_ACTIVE.fail(node.name, "; ".join(bad), _offer(sight, node))
    elif set(wanted) - out:
        yield HCA_NOT_ACTIVE.passed(node.name, ", ".join(name for name in wanted if name not in out))


def _offer(sight: Sight, broken: Node) -> str:
    """Each node's own active devices, so that the values can be copied from the finding.

    Never fewer than the node has rails: who copied that would give away half a port for a device that needs a look.
    """
    wanted = [rail for rail in broken.rails if rail.rdma]
    there = [each for node, detail in sight.on_fabric() if node.name == broken.name for each in detail.rdma or ()]
    if 0 < sum(map(active, there)) < len(wanted):
        idle = next((each for each in there if not active(each) and each.name in {rail.rdma for rail in wanted}), None)
        name = idle.netdev or wanted[0].netdev if idle else wanted[0].netdev
        return f"on {broken.name}: rdma link show; ip -br link show {name}; sudo dmesg | grep -i mlx5 | tail"
    offers = []
    for node, detail in sight.on_fabric():
        names = [each.name for each in detail.rdma or () if active(each)]
        if names:
            offers.append(f"{node.name} {','.join(names)}")
    if not any(offer.startswith(f"{broken.name} ") for offer in offers):
        return f"{broken.name} has no active RDMA device: plug the cable in, then ibdev2netdev on {broken.name}"
    return f"in cluster.yaml set nodes/*/rails/*/rdma per node: {' / '.join(offers)}"


def _whole(node: Node, detail: NodeDetail) -> Iterator[Finding]:
    used = {rail.rdma for rail in node.rails if rail.rdma}
    if not used:
        return
    if detail.rdma is None:
        yield HALF_PORT_ONLY.unknown(node.name, "the node told no RDMA devices")
        return
    live = [each for each in detail.rdma if active(each)]
    ports = {port_of(each.name, each.port) for each in live if each.name in used}
    missing = [each for each in live if each.name not in used and port_of(each.name, each.port) in ports]
    if missing:
        names = ", ".join(f"{each.name} ({each.netdev})" for each in missing)
        yield HALF_PORT_ONLY.warn(
            node.name,
            f"{', '.join(sorted(used))} without {names}",
            f"in cluster.yaml add to nodes/{node.name}/rails: {names}, with an address in a subnet of its own",
        )
    elif ports:
        yield HALF_PORT_ONLY.passed(node.name, ", ".join(sorted(used)))


def _subnets(node: Node, detail: NodeDetail, astray: frozenset[str], there: Mapping[str, Iterable[str]]) -> Finding:
    """The rails and their twins, whether or not the cluster file names those."""
    if detail.netdevs is None:
        return TWINS_IN_ONE_SUBNET.unknown(node.name, "the node told no netdevs")
    rails = {rail.netdev for rail in node.rails}
    ports = {port_of(dev.name, dev.port) for dev in detail.netdevs if dev.name in rails}
    seen: dict[str, str] = {}
    for dev in detail.netdevs:
        if not dev.up or port_of(dev.name, dev.port) not in ports:
            continue
        for network in {str(ipaddress.ip_interface(each).network) for each in dev.addresses}:
            if network in seen:
                said = f"{seen[network]} and {dev.name} both in {network}"
                # Where all nodes are like that it may work; where one is, its twin has nobody to talk to.
                lost = {seen[network], dev.name} & astray
                remedy = _part(node, dev, network, there.get(dev.name, ()))
                if lost:
                    return TWINS_IN_ONE_SUBNET.fail(node.name, said, remedy)
                return TWINS_IN_ONE_SUBNET.warn(node.name, said, remedy)
            seen[network] = dev.name
    return TWINS_IN_ONE_SUBNET.passed(node.name, ", ".join(seen) or "no addresses")


def _part(node: Node, dev: Netdev, crowded: str, there: Iterable[str]) -> str:
    """Commands that move ``dev`` into the subnet of the ends that it talks to, or into one that nobody is in."""
    old = next(each for each in dev.addresses if str(ipaddress.ip_interface(each).network) == crowded)
    free = next((each for each in there if each != crowded), "192.168.101.0/24")
    network = ipaddress.ip_network(free)
    # The number of the node's first rail is its own in that subnet, and so most likely in this one.
    new = f"{network[int(ipaddress.ip_address(node.rails[0].address)) % network.num_addresses]}/{network.prefixlen}"
    return (
        f"on {node.name}: sudo ip addr del {old} dev {dev.name} && sudo ip addr add {new} dev {dev.name}; to stay, a "
        "subnet of its own for it in /etc/netplan/40-cx7.yaml, and the address in cluster.yaml"
    )


def _speed(sight: Sight, node: Node, detail: NodeDetail) -> Iterator[Finding]:
    least = ADVICE_SPEED_MBIT // 2 if sight.cluster.topology == "switch" else ADVICE_SPEED_MBIT
    for rail in node.rails:
        dev = netdev(detail, rail.netdev)
        if dev is None or dev.speed_mbit is None:
            yield LINK_SLOW.unknown(node.name, f"{rail.netdev} told no speed")
        elif dev.speed_mbit < least:
            said = f"{rail.netdev} at {dev.speed_mbit // 1000} Gbit/s"
            yield LINK_SLOW.warn(node.name, said, LINK_SLOW.remedy.replace("NETDEV", rail.netdev))
        else:
            yield LINK_SLOW.passed(node.name, f"{rail.netdev} at {dev.speed_mbit // 1000} Gbit/s")


def _whole_fabric(sight: Sight) -> Iterator[Finding]:
    nodes = list(sight.on_fabric())
    if len(nodes) < 2 or sight.plan is None:
        return
    if sight.bus_bytes_s is None:
        yield FABRIC_SLOW.unknown("", "nobody measured these nodes together with NCCL")
        return
    said = f"all-gather at {sight.bus_bytes_s / 1e9:.2f} GB/s"
    halves = sight.cluster.topology != "ring" and all(len(devices(node)) > 1 for node, _ in nodes)
    if sight.bus_bytes_s < SOCKET_BYTES_S:
        yield FABRIC_SLOW.warn("", f"{said}, as over sockets or with another build of NCCL")
    elif halves and sight.bus_bytes_s <= ONE_TWIN_BYTES_S:
        yield FABRIC_SLOW.warn("", f"{said}, as with one of the two devices of a port")
    else:
        yield FABRIC_SLOW.passed("", said)


def devices(node: Node) -> list[str]:
    return [rail.rdma for rail in node.rails if rail.rdma]


def _measured(node: Node, detail: NodeDetail) -> Iterator[Finding]:
    """By a measurement only: the speed of the link says nothing about it."""
    for rail in node.rails:
        names = {rail.netdev, rail.rdma}
        values = [value for name, value in detail.measured_gbit.items() if name in names]
        if not values:
            yield RAIL_DEGRADED.unknown(node.name, f"nobody measured {rail.rdma or rail.netdev}")
            continue
        dev = netdev(detail, rail.netdev)
        link = (dev.speed_mbit if dev and dev.speed_mbit else ADVICE_SPEED_MBIT) / 1000
        said = f"{rail.rdma or rail.netdev} {min(values):g} of {link:g} Gbit/s"
        bad = min(values) < HEALTHY_SHARE * link
        yield RAIL_DEGRADED.warn(node.name, said) if bad else RAIL_DEGRADED.passed(node.name, said)
