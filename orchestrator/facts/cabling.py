"""What a person should know about the cabling that was found: what works but not well, and what was seen where nothing
pairs. Words only; pure.

Sources of the rules: NVIDIA's dgx-spark-playbooks (connect-two-sparks, its performance guide) and the networking page
of eugr/spark-vllm-docker: both twins of a port, each in a subnet of its own; MTU 9000 on both ends and on the switch.
NVIDIA's own detect_and_configure_cluster_networking.py puts both twins into one subnet, so that state is common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.facts.detail import Netdev, NodeDetail
from orchestrator.facts.fabric import End, Link, fabric_netdevs
from orchestrator.facts.topology import Found, Seat

MTU = 9000

RULES = (
    "give each of the two netdevs of a cabled port an IPv4 address, each in a subnet of its own: on the first node "
    "192.168.100.11/24 and 192.168.101.11/24, on the second 192.168.100.12/24 and 192.168.101.12/24, and so on "
    "(a ring needs two subnets for each cable); set MTU 9000 on all of them and on the switch. On DGX OS this is "
    "written in /etc/netplan/40-cx7.yaml (mode 0600) and takes effect with: sudo netplan apply"
)


def remarks(found: Found, details: Iterable[NodeDetail], links: Sequence[Link]) -> tuple[str, ...]:
    """One sentence for each thing that should be better, in the order of the nodes."""
    said: list[str] = []
    by_name = {each.node: each for each in details}
    for name in found.nodes:
        rails = [seat for seat in found.seats[name] if seat.towards]
        said += _subnets(name, rails, many=len(found.nodes) > 2)
        said += _halves(by_name[name], rails)
        said += _settings(name, rails)
        said += [
            f"{name}: the rendezvous of the ring is {seat.end.netdev.name}, which is Wi-Fi; connect the RJ45 socket"
            for seat in found.seats[name]
            if seat.end.netdev.wireless
        ]
    if any(link.there is None or link.back is None for link in links):
        said.append("some node could not send pings (is ping installed?): pairs were taken by subnet alone")
    return tuple(said)


def _subnets(name: str, rails: Sequence[Seat], *, many: bool) -> list[str]:
    shared: dict[str, list[End]] = {}
    for seat in rails:
        shared.setdefault(str(seat.end.network), []).append(seat.end)
    found = []
    for network, own in shared.items():
        netdevs = " and ".join(end.netdev.name for end in own)
        if len(own) > 1:
            found.append(
                f"{name}: {netdevs} are both in {network}; give each a subnet of its own, or the kernel sends the "
                "traffic of both out of one of them"
            )
        if many and len({end.port for end in own}) > 1:
            found.append(
                f"{name}: two ports are in {network}, and then a ping cannot tell a ring from a switch; look at the "
                "cables and correct `topology` if it is wrong"
            )
    return found


def _halves(detail: NodeDetail, rails: Sequence[Seat]) -> list[str]:
    """Twins of a rail that are no rails themselves."""
    used = {seat.end.netdev.name for seat in rails}
    ports = {seat.end.netdev.port for seat in rails if seat.end.netdev.port}
    left = [each for each in fabric_netdevs(detail) if each.port in ports and each.name not in used]
    return [
        f"{detail.node}: {each.name} is the other half of a port in use but {_why_not(each)}; "
        "without it the port has half its bandwidth"
        for each in left
    ]


def _why_not(netdev: Netdev) -> str:
    if not netdev.up:
        return "is down"
    return "answers no ping" if netdev.addresses else "has no IPv4 address"


def _settings(name: str, rails: Sequence[Seat]) -> list[str]:
    found = []
    for netdev in (seat.end.netdev for seat in rails):
        if netdev.mtu is not None and netdev.mtu < MTU:
            found.append(f"{name}: {netdev.name} has MTU {netdev.mtu}; set 9000 on both ends and on the switch")
        if netdev.speed_mbit is not None and netdev.speed_mbit < 200_000:
            found.append(
                f"{name}: {netdev.name} runs at {netdev.speed_mbit} Mbit/s, not 200000; right where one switch port "
                "is broken out to several nodes, otherwise a failed auto-negotiation"
            )
    if rails and not any(seat.end.rdma for seat in rails):
        found.append(f"{name}: there are no RDMA devices, so NCCL would use TCP; on a Spark: sudo modprobe mlx5_ib")
    return found


def seen(detail: NodeDetail) -> tuple[str, ...]:
    """What the fabric of one node looks like: a line for each netdev."""
    netdevs = fabric_netdevs(detail)
    if not netdevs:
        return (f"{detail.node}: no RDMA device and no second wired netdev with an address",)
    return tuple(f"{detail.node}: {_line(each)}" for each in netdevs)


def _line(netdev: Netdev) -> str:
    state = "up" if netdev.up else "down (no cable, or the other side is off)"
    where = ", ".join(netdev.addresses) or "no IPv4 address"
    return f"{netdev.name} {state}, {where}{f', port {netdev.port}' if netdev.port else ''}"
