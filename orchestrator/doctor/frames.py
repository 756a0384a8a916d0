"""Rules over the size of frames: of each end by itself, of the ends of one subnet against one another.

Where an end is wrong, that end is named and nothing else is suspected: a large ping that is lost then says nothing of
the way between. Only when both ends should take it, ``MTU_PATH_TOO_SMALL`` is said, by the rules over paths.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight, netdev
from orchestrator.facts.detail import NodeDetail
from orchestrator.spec.cluster import Node

MTU_1500 = Code(
    "MTU_1500",
    "an MTU of 9000 on every rail",
    "At 1500 RDMA uses frames of 1024 bytes and the link loses a fifth of its speed; ConnectX-7 starts with 1500, also "
    "after an update of its firmware.",
    "set mtu: 9000 for the rail in /etc/netplan/40-cx7.yaml on both ends (and on the switch): sudo netplan apply",
)
MTU_DIFFERS = Code(
    "MTU_DIFFERS",
    "the same MTU on all nodes of a rail",
    "The end with the smaller frames drops the larger ones: small messages pass, large ones end with "
    "IBV_WC_RETRY_EXC_ERR.",
    "set the same mtu in /etc/netplan/40-cx7.yaml on all nodes: sudo netplan apply",
)
MTU_PATH_TOO_SMALL = Code(
    "MTU_PATH_TOO_SMALL",
    "frames of the rails' own size from node to node",
    "Both ends take large frames and something between them does not: the start works and the first large "
    "transfer hangs.",
    "raise the MTU of the switch's ports: ping -M do -s 8972 ADDRESS",
)
# NVIDIA's performance guide and the networking page of eugr/spark-vllm-docker.
ADVICE_MTU = 9000


def findings(sight: Sight) -> Iterator[Finding]:
    sizes, wrong = _sizes(sight), dict[str, list[_Size]]()
    for each in (odd for same in sizes.values() for odd in _odd(same)):
        wrong.setdefault(each.node.name, []).append(each)
    for node, detail in sight.on_fabric():
        yield from _mtu(node, detail, frozenset(each.netdev for each in wrong.get(node.name, ())))
    yield from _mtus(sizes, wrong)


def _mtu(node: Node, detail: NodeDetail, told: frozenset[str]) -> Iterator[Finding]:
    """``told`` are netdevs that MTU_DIFFERS names already."""
    sizes = {rail.netdev: dev.mtu for rail in node.rails if (dev := netdev(detail, rail.netdev)) and dev.mtu}
    if not sizes:
        yield MTU_1500.unknown(node.name, "the node told no MTU")
        return
    said = ", ".join(f"{name} {size}" for name, size in sizes.items())
    small = [name for name, size in sizes.items() if size <= 1500 and name not in told]
    if small:
        yield MTU_1500.warn(node.name, said, _raise(node, small))
    elif not told:
        yield MTU_1500.passed(node.name, said)


def _raise(node: Node, netdevs: Iterable[str]) -> str:
    now = " && ".join(f"sudo ip link set {name} mtu {ADVICE_MTU}" for name in netdevs)
    return f"on {node.name}: {now}; to stay, mtu: {ADVICE_MTU} for it in /etc/netplan/40-cx7.yaml, and on the switch"


@dataclass(frozen=True, slots=True)
class _Size:
    """The MTU of one end of a rail, and the subnet that it talks in."""

    node: Node
    netdev: str
    network: str
    mtu: int


def _sizes(sight: Sight) -> dict[str, list[_Size]]:
    """By subnet: only ends that talk to each other must agree."""
    found: dict[str, list[_Size]] = {}
    for node, detail in sight.on_wires():
        for rail in node.rails:
            dev = netdev(detail, rail.netdev)
            for address in dev.addresses if dev and dev.mtu else ():
                if dev and dev.mtu:
                    network = str(ipaddress.ip_interface(address).network)
                    found.setdefault(network, []).append(_Size(node, dev.name, network, dev.mtu))
    return found


def _odd(same: list[_Size]) -> list[_Size]:
    """The ends that are wrong: those without the recommended size where one has it, else those that most are unlike.

    None where nothing tells which of them it is.
    """
    counted = Counter(each.mtu for each in same)
    if len(counted) < 2:
        return []
    (most, times), *_ = counted.most_common(1)
    right = ADVICE_MTU if ADVICE_MTU in counted else most if times * 2 > len(same) else None
    return [each for each in same if each.mtu != right] if right else []


def _mtus(sizes: Mapping[str, list[_Size]], wrong: Mapping[str, list[_Size]]) -> Iterator[Finding]:
    """One finding for each node whose size is the odd one; one for the subnet where nobody can tell whose it is."""
    for network, same in sizes.items():
        if len({each.node.name for each in same}) < 2:
            continue
        said = f"{network}: " + ", ".join(f"{each.node.name} {each.mtu}" for each in same)
        if len({each.mtu for each in same}) == 1:
            yield MTU_DIFFERS.passed("", said)
        elif not _odd(same):
            yield MTU_DIFFERS.fail("", said)
    for name, own in wrong.items():
        said = ", ".join(f"{each.netdev} {each.mtu} in {each.network}" for each in own)
        others = {other.mtu for each in own for other in sizes[each.network] if other.node.name != name}
        said += f" while the others have {' and '.join(map(str, sorted(others)))}"
        yield MTU_DIFFERS.fail(name, said, _raise(own[0].node, dict.fromkeys(each.netdev for each in own)))


def by_address(sight: Sight) -> dict[str, int]:
    """The MTU of the end that holds an address, for every rail of which it is known."""
    return {
        rail.address: dev.mtu
        for node, detail in sight.on_wires()
        for rail in node.rails
        if (dev := netdev(detail, rail.netdev)) and dev.mtu
    }


def fits(node: Node, detail: NodeDetail, address: str, sizes: Mapping[str, int]) -> int | None:
    """The largest frame that both ends of the way to ``address`` take; None where neither told."""
    own = [dev for rail in node.rails if (dev := netdev(detail, rail.netdev)) and dev.mtu]
    beside = [dev for dev in own if any(_holds(each, address) for each in dev.addresses)] or own
    ends = [max(dev.mtu or 0 for dev in beside)] if beside else []
    return min([*ends, sizes[address]] if address in sizes else ends, default=None)


def _holds(interface: str, address: str) -> bool:
    return _address(address) in _network(interface)


@cache
def _address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Kept, as each of 64 nodes asks for the same 128 addresses."""
    return ipaddress.ip_address(address)


@cache
def _network(interface: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_interface(interface).network
