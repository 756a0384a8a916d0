"""How nodes are cabled is found from what they say and from pings, whatever their netdevs are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from orchestrator.facts import cabling, fabric
from orchestrator.facts.detail import Netdev, NodeDetail, RdmaDevice
from orchestrator.facts.reach import Ping
from orchestrator.facts.topology import Found, decide

NVIDIA = ("enp1s0f{0}np{0}", "enP2p1s0f{0}np{0}")


def spark(
    number: int, *addresses: str, names: Sequence[str] = NVIDIA, mtu: int = 9000, speed: int = 200_000
) -> NodeDetail:
    """A node with two ports of two netdevs. ``addresses`` fill port 0, then port 1; a netdev without one is down."""
    shapes = [(names[half].format(port), f"id p{port}") for port in (0, 1) for half in (0, 1)]
    given = [*addresses, *[""] * (4 - len(addresses))]
    fabric_devs = [
        Netdev(name, bool(address), mtu, speed if address else None, (address,) if address else (), port, "mlx5_core")
        for (name, port), address in zip(shapes, given, strict=True)
    ]
    rdma = [RdmaDevice(f"roce{i}", each.name, "ACTIVE", each.port) for i, each in enumerate(fabric_devs)]
    others = [
        Netdev("lo", True, 65536, None, ("127.0.0.1/8",)),
        Netdev("docker0", True, 1500, None, ("172.17.0.1/16",)),
        Netdev("enP7s7", True, 1500, 1000, (f"10.0.0.{number}/24",), "r8127 01:00.0", "r8127"),
        Netdev("wlP9s9", True, 1500, None, (f"10.0.1.{number}/24",), "mt7925e 01:00.0", "mt7925e", wireless=True),
    ]
    reached_at = f"10.0.0.{number}"
    return NodeDetail(f"spark-{number}", netdevs=(*fabric_devs, *others), rdma=tuple(rdma), reached_at=reached_at)


def subnets(number: int, *third: int) -> tuple[str, ...]:
    return tuple(f"192.168.{each}.{10 + number}/24" for each in third)


def pair(number: int, mtu: int = 9000, speed: int = 200_000) -> NodeDetail:
    return spark(number, *subnets(number, 100, 101), mtu=mtu, speed=speed)


def ring(count: int) -> list[NodeDetail]:
    """Port 0 of each node leads to port 1 of the next; cable n has the subnets 2n and 2n + 1."""
    cables = [((n - 1) % count, n) for n in range(count)]
    return [
        spark(n + 1, *subnets(n + 1, 2 * ahead, 2 * ahead + 1, 2 * behind, 2 * behind + 1))
        for n, (behind, ahead) in enumerate(cables)
    ]


def cabled(details: Sequence[NodeDetail], broken: Iterable[str] = ()) -> Found:
    return decide(details, answered(details, broken))


def answered(details: Sequence[NodeDetail], broken: Iterable[str] = ()) -> tuple[fabric.Link, ...]:
    """Every ping comes back, except to the addresses in ``broken``."""
    links = fabric.pairs(details)
    lost = set(broken)
    sent = fabric.pings(links)
    return fabric.tried(links, {node: {ping: ping.address not in lost for ping in own} for node, own in sent.items()})


def rails(found: Found, node: str) -> list[str]:
    return [f"{seat.end.netdev.name} {seat.end.address}" for seat in found.seats[node]]


def told(found: Found, details: Sequence[NodeDetail]) -> str:
    return "\n".join(cabling.remarks(found, details, answered(details)))


def test_two_nodes_and_one_cable() -> None:
    details = [pair(1), pair(2)]
    found = cabled(details)
    assert (found.topology, found.nodes) == ("direct", ("spark-1", "spark-2"))
    assert rails(found, "spark-1") == ["enp1s0f0np0 192.168.100.11", "enP2p1s0f0np0 192.168.101.11"]
    assert rails(found, "spark-2") == ["enp1s0f0np0 192.168.100.12", "enP2p1s0f0np0 192.168.101.12"]
    assert [seat.end.rdma for seat in found.seats["spark-1"]] == ["roce0", "roce1"]
    assert found.seats["spark-1"][0].towards == ("spark-2",)
    assert told(found, details) == ""


def test_two_nodes_and_two_cables() -> None:
    found = cabled([spark(n, *subnets(n, 100, 101, 102, 103)) for n in (1, 2)])
    assert found.topology == "direct"
    assert len(found.seats["spark-1"]) == 4
    assert "2 cables" in found.why[1]


def test_a_cable_between_different_ports_pairs_by_subnet() -> None:
    found = cabled([pair(1), spark(2, "", "", *subnets(2, 100, 101))])
    assert rails(found, "spark-2") == ["enp1s0f1np1 192.168.100.12", "enP2p1s0f1np1 192.168.101.12"]


@pytest.mark.parametrize("count", [3, 4])
def test_a_ring(count: int) -> None:
    found = cabled(ring(count))
    assert found.topology == "ring"
    assert found.nodes == tuple(f"spark-{n}" for n in range(1, count + 1))
    first = found.seats["spark-1"]
    assert [seat.end.netdev.name for seat in first][:1] == ["enP7s7"]
    assert [seat.towards for seat in first] == [
        (),
        ("spark-2",),
        ("spark-2",),
        (f"spark-{count}",),
        (f"spark-{count}",),
    ]


def test_a_ring_is_in_the_order_of_its_cables_not_of_the_command_line() -> None:
    one, two, three, four = ring(4)
    assert cabled([one, three, two, four]).nodes == ("spark-1", "spark-2", "spark-3", "spark-4")


def test_a_ring_without_a_common_management_subnet_is_refused_with_the_way_out() -> None:
    details = ring(3)
    kept = tuple(each for each in details[2].netdevs or () if each.name not in {"enP7s7", "wlP9s9"})
    details[2] = replace(details[2], netdevs=kept)
    found = cabled(details)
    assert found.topology is None
    assert "connect their RJ45 sockets" in found.why[0]


def test_a_ring_that_shares_only_wifi_meets_there_with_a_remark() -> None:
    details = [
        replace(each, netdevs=tuple(n for n in each.netdevs or () if n.name != "enP7s7"), reached_at="")
        for each in ring(3)
    ]
    found = cabled(details)
    assert found.seats["spark-1"][0].end.netdev.name == "wlP9s9"
    assert "spark-1: the rendezvous of the ring is wlP9s9, which is Wi-Fi" in told(found, details)


def test_a_ring_over_link_local_addresses_is_told_by_its_ports() -> None:
    """All netdevs in 169.254/16: subnets tell nothing; only the neighbours on a cable answer."""
    details = [spark(n, *(f"169.254.{port}.{n}/16" for port in range(4))) for n in (1, 2, 3)]
    links = fabric.pairs(details)
    cables = {(("spark-1", "id p0"), ("spark-2", "id p1")), (("spark-2", "id p0"), ("spark-3", "id p1"))}
    cables |= {(("spark-3", "id p0"), ("spark-1", "id p1"))}
    both = {frozenset(cable) for cable in cables}
    came = [frozenset((link.one.port, link.other.port)) in both for link in links]
    found = decide(
        details, [replace(link, there=answer, back=answer) for link, answer in zip(links, came, strict=True)]
    )
    assert found.topology == "ring"
    assert "a ping cannot tell a ring from a switch" in "\n".join(cabling.remarks(found, details, links))


@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_switch(count: int) -> None:
    found = cabled([pair(n) for n in range(1, count + 1)])
    assert found.topology == "switch"
    assert len(found.nodes) == count
    assert all(len(found.seats[name]) == 2 for name in found.nodes)
    assert {str(found.seats[name][0].end.network) for name in found.nodes} == {"192.168.100.0/24"}


def test_on_a_switch_the_first_rails_share_a_subnet_that_every_node_has() -> None:
    details = [pair(1), spark(2, "", subnets(2, 101)[0]), pair(3)]
    found = cabled(details)
    assert found.topology == "switch"
    assert {str(found.seats[name][0].end.network) for name in found.nodes} == {"192.168.101.0/24"}
    assert "spark-2: enp1s0f0np0 is the other half of a port in use but is down" in told(found, details)


def test_twins_in_one_subnet_are_found_and_remarked_on() -> None:
    """As NVIDIA's own script leaves them; of the pings out of the second twins none comes back."""
    details = [spark(n, f"192.168.100.{n}/24", f"192.168.100.{n + 2}/24") for n in (1, 2)]
    found = cabled(details, broken=["192.168.100.3", "192.168.100.4"])
    assert found.topology == "direct"
    assert rails(found, "spark-1") == ["enp1s0f0np0 192.168.100.1", "enP2p1s0f0np0 192.168.100.3"]
    assert "enp1s0f0np0 and enP2p1s0f0np0 are both in 192.168.100.0/24" in told(found, details)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # (netdev, address) that came back, as Linux 6.18 answered with both twins of two nodes on one wire
        ({("0", 2), ("0", 4), ("1", 2), ("1", 4)}, {("1", 1), ("1", 3)}),  # rp_filter 0 and 2
        ({("0", 2), ("0", 4)}, {("0", 1)}),  # rp_filter 1
    ],
)
def test_twins_in_one_subnet_answer_only_some_pings(first: set[tuple[str, int]], second: set[tuple[str, int]]) -> None:
    details = [spark(n, f"192.168.100.{n}/24", f"192.168.100.{n + 2}/24", names=("a{0}", "b{0}")) for n in (1, 2)]
    links = fabric.pairs(details)
    twin = {"a0": "0", "b0": "1"}
    came = {"spark-1": first, "spark-2": second}
    reached = {
        node: {ping: (twin[ping.netdev], int(ping.address.rpartition(".")[2])) in came[node] for ping in sent}
        for node, sent in fabric.pings(links).items()
    }
    found = decide(details, fabric.tried(links, reached))
    assert found.topology == "direct"
    assert [len(found.seats[node]) for node in found.nodes] == [2, 2]


def test_twins_in_one_subnet_on_a_switch() -> None:
    details = [spark(n, f"192.168.1.{8 + 2 * n}/24", f"192.168.1.{9 + 2 * n}/24") for n in (1, 2, 3, 4)]
    found = cabled(details)
    assert found.topology == "switch"
    assert "a ring from a switch" not in told(found, details)


def test_two_nodes_with_the_link_down_say_what_was_seen() -> None:
    found = cabled([pair(1), pair(2)], broken=["192.168.100.12", "192.168.101.12"])
    assert found.topology is None
    assert found.why[0] == "spark-1 reaches no other node"
    assert (
        "spark-1 enp1s0f0np0 (192.168.100.11) and spark-2 enp1s0f0np0 (192.168.100.12) are in one subnet, "
        "but no ping came back from spark-1"
    ) in found.why


def test_one_of_two_twins_that_does_not_answer_is_left_out_with_a_remark() -> None:
    details = [pair(1), pair(2)]
    found = cabled(details, broken=["192.168.101.12"])
    assert rails(found, "spark-2") == ["enp1s0f0np0 192.168.100.12"]
    assert "spark-2: enP2p1s0f0np0 is the other half of a port in use but answers no ping" in told(found, details)


def test_a_ring_with_one_cable_out_is_no_ring() -> None:
    details = ring(4)
    details[3] = spark(4, "", "", *subnets(4, 4, 5))
    details[0] = spark(1, *subnets(1, 0, 1))
    found = cabled(details)
    assert found.topology is None
    assert found.why[:2] == ("spark-1 reaches spark-2", "spark-2 reaches spark-1, spark-3")
    assert "for a ring, exactly two" in found.why[-1]


def test_a_node_that_is_not_cabled_is_named() -> None:
    found = cabled([pair(1), pair(2), spark(3)])
    assert found.topology is None
    assert "spark-3 reaches no other node" in found.why


def test_nothing_in_one_subnet() -> None:
    details = [pair(1), spark(2, *subnets(2, 110, 111))]
    found = cabled(details)
    assert found.why == ("no two nodes have addresses in the same subnet of the fabric",)
    assert cabling.seen(details[1])[0] == "spark-2: enp1s0f0np0 up, 192.168.110.12/24, port id p0"
    assert "down (no cable, or the other side is off), no IPv4 address" in cabling.seen(details[1])[2]


def test_management_and_wifi_share_subnets_and_are_never_paired() -> None:
    links = fabric.pairs([pair(1), pair(2)])
    used = {end.netdev.name for link in links for end in (link.one, link.other)}
    assert used == {"enp1s0f0np0", "enP2p1s0f0np0"}


def test_names_of_other_makers_change_nothing() -> None:
    details = [
        spark(1, *subnets(1, 100, 101), names=("fabric{0}a", "fabric{0}b")),
        spark(2, *subnets(2, 100, 101), names=("ens{0}", "eth1{0}")),
    ]
    found = cabled(details)
    assert found.topology == "direct"
    assert rails(found, "spark-2") == ["ens0 192.168.100.12", "eth10 192.168.101.12"]


def test_without_rdma_devices_the_wired_netdevs_beside_management_are_taken() -> None:
    details = [replace(pair(n), rdma=()) for n in (1, 2)]
    found = cabled(details)
    assert rails(found, "spark-1") == ["enp1s0f0np0 192.168.100.11", "enP2p1s0f0np0 192.168.101.11"]
    assert "there are no RDMA devices" in told(found, details)


def test_small_mtu_and_low_speed_are_remarked_on() -> None:
    details = [pair(1, mtu=1500), pair(2, speed=100_000)]
    said = told(cabled(details), details)
    assert "spark-1: enp1s0f0np0 has MTU 1500" in said
    assert "spark-2: enp1s0f0np0 runs at 100000 Mbit/s" in said


def test_nodes_without_ping_are_paired_by_subnet_and_it_is_said() -> None:
    details = [pair(1), pair(2)]
    links = fabric.pairs(details)
    found = decide(details, links)
    assert found.topology == "direct"
    assert "pairs were taken by subnet alone" in "\n".join(cabling.remarks(found, details, links))


def test_each_pair_is_tried_in_both_directions_out_of_its_own_netdev() -> None:
    assert fabric.pings(fabric.pairs([pair(1), pair(2)])) == {
        "spark-1": (Ping("192.168.100.12", "enp1s0f0np0"), Ping("192.168.101.12", "enP2p1s0f0np0")),
        "spark-2": (Ping("192.168.100.11", "enp1s0f0np0"), Ping("192.168.101.11", "enP2p1s0f0np0")),
    }


def test_a_ping_that_comes_back_one_way_only_is_no_link() -> None:
    links = [replace(link, there=True, back=False) for link in fabric.pairs([pair(1), pair(2)])]
    assert fabric.proved(links) == ()


def test_one_node_alone() -> None:
    assert rails(cabled([pair(1)]), "spark-1") == ["enp1s0f0np0 192.168.100.11"]
    assert rails(cabled([spark(1)]), "spark-1") == ["enP7s7 10.0.0.1"]
    assert cabled([NodeDetail("spark-1")]).topology is None
