"""Rules over rails and over the way between two nodes: what each finds, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.doctor.rules import everything
from orchestrator.doctor.sight import Sight
from orchestrator.facts.detail import Gid, Netdev, RdmaDevice
from orchestrator.plan.rdma import RailTest
from orchestrator.spec.cluster import Cluster, Node
from orchestrator.verbs.doctor import of_each_rail
from tests.unit.patients import alarms, detail, fabric, gids, image, netdev, rdma, said, sight, spark

OF = spark()


HERE, THERE = OF.nodes


def met(**node_b: Any) -> list[tuple[str, str, str]]:
    """Alarms of a healthy pair of which node-b is changed."""
    return alarms(sight(OF, node_b=node_b))


# --- rails


def rails(**changes: Any) -> tuple[Netdev, ...]:
    return tuple(netdev(rail, **changes) for rail in THERE.rails)


def devices(**changes: Any) -> tuple[RdmaDevice, ...]:
    return tuple(rdma(rail, **changes) for rail in THERE.rails)


@pytest.mark.parametrize("state", ["1: DOWN", "2: INIT", "INACTIVE"])
def test_a_device_that_is_not_active(state: str) -> None:
    assert met(rdma=devices(state=state)) == [("fail", "HCA_NOT_ACTIVE", "node-b")]


def test_devices_by_other_names_are_offered() -> None:
    other = tuple(replace(each, name=each.name.replace("p1s0", "p7s0")) for each in devices())
    (found,) = [each for each in everything(sight(OF, node_b={"rdma": other})) if each.verdict == "fail"]
    assert "node-b rocep7s0f0,roceP2p7s0f0" in found.remedy
    assert "not there" in found.observed


def test_a_netdev_that_the_node_does_not_have() -> None:
    away = (replace(rails()[0], name="enp9s0"), rails()[1])
    (found,) = [each for each in everything(sight(OF, node_b={"netdevs": away})) if each.code == "RAIL_NOT_ON_NODE"][1:]
    assert found.verdict == "fail"
    assert "enp9s0 for 192.168.100.12" in found.remedy


def test_twins_are_told_by_port_where_names_say_nothing() -> None:
    spare = RdmaDevice("mlx5_9", "ens9", "4: ACTIVE", port=devices()[0].port, gids=gids("10.0.0.1"))
    assert met(rdma=(*devices(), spare)) == [("warn", "HALF_PORT_ONLY", "node-b")]
    assert met(rdma=(*devices(), replace(spare, port="another"))) == []
    assert met(rdma=(*devices(), replace(spare, state="1: DOWN"))) == []


def test_twins_in_one_subnet() -> None:
    shared = (rails()[0], replace(rails()[1], addresses=("192.168.100.12/24", "192.168.101.12/24")))
    assert ("warn", "TWINS_IN_ONE_SUBNET", "node-b") in met(netdevs=shared)


def test_a_twin_that_strayed_into_the_subnet_of_the_other_is_one_finding() -> None:
    """Its peer cannot answer it any more: that follows, and is not said again."""
    stray = (rails()[0], replace(rails()[1], addresses=("192.168.100.99/24",)))
    of = THERE.model_copy(
        update={"rails": (THERE.rails[0], THERE.rails[1].model_copy(update={"address": "192.168.100.99"}))}
    )
    moved = OF.cluster.model_copy(update={"nodes": (HERE, of)})
    b = {"netdevs": stray, "pings": unanswered(HERE, 1)}
    a = {"pings": unanswered(of, 1)}
    (found,) = said(sight(spark(cluster=moved), node_a=a, node_b=b))
    assert (found.verdict, found.code, found.node) == ("fail", "TWINS_IN_ONE_SUBNET", "node-b")
    assert found.remedy.startswith(
        "on node-b: sudo ip addr del 192.168.100.99/24 dev enP2p1s0f0np0 && "
        "sudo ip addr add 192.168.101.12/24 dev enP2p1s0f0np0;"
    )


def test_a_twin_that_no_rail_names_counts_for_subnets_too() -> None:
    one = spark(cluster=fabric(node_a=("rocep1s0f0",), node_b=("rocep1s0f0",)))
    both = (*(netdev(rail) for rail in one.nodes[1].rails), replace(rails()[1], addresses=("192.168.100.99/24",)))
    assert alarms(sight(one, node_b={"netdevs": both})) == [("warn", "TWINS_IN_ONE_SUBNET", "node-b")]


def test_a_remedy_names_the_profile_and_is_no_template() -> None:
    (found,) = [
        each
        for each in everything(sight(OF, node_b={"images": (image(OF, layers=("x",)),)}))
        if each.code == "IMAGES_DIFFER"
    ]
    assert found.remedy.startswith("sparkctl up deepseek-v4-flash")


@pytest.mark.parametrize(
    ("topology", "speed", "bad"),
    [
        ("direct", 200_000, False),
        ("direct", 100_000, True),
        ("switch", 100_000, False),
        ("switch", 40_000, True),
    ],
)
def test_a_slow_link_unless_it_is_a_breakout(topology: str, speed: int, bad: bool) -> None:
    of = spark(cluster=fabric(topology=topology))
    slow = {"netdevs": tuple(netdev(rail, speed_mbit=speed) for rail in of.nodes[1].rails), "measured_gbit": {}}
    assert alarms(sight(of, node_b=slow)) == [("warn", "LINK_SLOW", "node-b")] * (2 if bad else 0)


def test_a_rail_is_judged_by_what_it_moved() -> None:
    assert met(measured_gbit={"rocep1s0f0": 97.0, "roceP2p1s0f0": 12.9}) == [("warn", "RAIL_DEGRADED", "node-b")]
    assert met(measured_gbit={}) == []


# --- links


def dark(node: Node, *which: int, **changes: Any) -> dict[str, Any]:
    """What a node tells whose rails ``which`` have no carrier: devices down, pings lost, and a route elsewhere."""
    other = THERE if node == HERE else HERE
    return {
        "netdevs": tuple(
            netdev(rail, up=False, speed_mbit=None, addresses=(), **changes) if at in which else netdev(rail)
            for at, rail in enumerate(node.rails)
        ),
        "rdma": tuple(
            rdma(rail, state="1: DOWN", gids=()) if at in which else rdma(rail) for at, rail in enumerate(node.rails)
        ),
        "pings": unanswered(other, *which),
        "routes": {rail.address: "wlP9s9" if at in which else rail.netdev for at, rail in enumerate(other.rails)},
    }


def unanswered(of: Node, *which: int) -> dict[tuple[str, int], bool]:
    return {(rail.address, size): at not in which for at, rail in enumerate(of.rails) for size in (56, 8972)}


def test_one_twin_without_a_link_is_one_finding_that_names_the_cable() -> None:
    (found,) = said(sight(OF, node_a={"pings": unanswered(THERE, 1)}, node_b=dark(THERE, 1)))
    assert (found.verdict, found.code, found.node) == ("fail", "LINK_DOWN", "node-b")
    assert found.observed == "no carrier on node-b enP2p1s0f0np0"
    assert found.remedy == ("look at the cable between node-b and node-a; on node-b: ip -br link show enP2p1s0f0np0")


def test_a_cable_that_is_out_darkens_both_ends_and_is_one_finding() -> None:
    (found,) = said(sight(OF, node_a=dark(HERE, 0, 1), node_b=dark(THERE, 0, 1)))
    assert (found.code, found.node) == ("LINK_DOWN", "")
    assert "node-a enp1s0f0np0" in found.observed
    assert "node-b enP2p1s0f0np0" in found.observed
    assert "the cable between node-a and node-b" in found.remedy


def test_an_end_that_is_switched_off_explains_the_other() -> None:
    (found,) = said(sight(OF, node_a=dark(HERE, 0, enabled=False), node_b=dark(THERE, 0, enabled=True)))
    assert (found.code, found.node, found.observed) == ("LINK_DOWN", "node-a", "enp1s0f0np0 is switched off")
    assert found.remedy == "on node-a: sudo ip link set enp1s0f0np0 up"


def test_at_a_switch_the_cable_leads_to_the_switch() -> None:
    of = spark(cluster=fabric(("node-a", "node-b", "node-c", "node-d"), "switch"), nodes=4)
    out: dict[str, Any] = {
        "netdevs": tuple(netdev(rail, up=False, addresses=()) for rail in of.nodes[2].rails),
        "pings": {},
    }
    out |= {"rdma": tuple(rdma(rail, state="1: DOWN") for rail in of.nodes[2].rails)}
    (found,) = said(sight(of, node_c=out))
    assert (found.code, found.node) == ("LINK_DOWN", "node-c")
    assert "between node-c and the switch" in found.remedy


def test_a_cable_in_the_other_cage_is_a_matter_of_names_and_of_no_cable() -> None:
    there = tuple(replace(each, name=f"{each.name[:-1]}1", port="port-1") for each in devices())
    found = met(**dark(THERE, 0, 1) | {"rdma": (*(replace(each, state="1: DOWN") for each in devices()), *there)})
    assert found == [("fail", "HCA_NOT_ACTIVE", "node-b")]


def test_no_remedy_gives_half_a_port_away() -> None:
    (found,) = said(sight(OF, node_b={"rdma": (devices()[0], replace(devices()[1], state="1: DOWN"))}))
    assert (found.code, found.node) == ("HCA_NOT_ACTIVE", "node-b")
    assert "cluster.yaml" not in found.remedy
    assert "ip -br link show enP2p1s0f0np0" in found.remedy


@pytest.mark.parametrize(
    ("topology", "bus", "said_of"),
    [
        ("direct", 18.94e9, ""),  # two Sparks at an MTU of 1500
        ("switch", 17.57e9, ""),  # eight Sparks at a switch
        ("direct", 23.74e9, ""),
        ("ring", 10.0e9, ""),  # what NVIDIA's script asks of a ring
        ("direct", 12.25e9, "one of the two devices"),
        ("direct", 3.04e9, "sockets"),
        ("ring", 3.0e9, "sockets"),
    ],
)
def test_a_fabric_is_judged_by_published_figures(topology: str, bus: float, said_of: str) -> None:
    names = ("node-a", "node-b", "node-c") if topology == "ring" else ("node-a", "node-b")
    seen = replace(sight(OF), cluster=fabric(names, topology), bus_bytes_s=bus)
    found = [each for each in said(seen) if each.code in {"FABRIC_SLOW", "RAIL_DEGRADED"}]
    assert [said_of in each.observed for each in found] == [True] * bool(said_of)


def test_the_sum_of_all_rails_says_nothing_of_one_of_them() -> None:
    assert of_each_rail((), "node-b") == {}
    tests = [RailTest("node-a", "rocep1s0f0", "node-b", "rocep1s0f0", 1.7e9, None, "unknown", "")]
    tests += [RailTest("node-a", "rocep1s0f0", "node-c", "rocep1s0f0", 12.1e9, None, "unknown", "")]
    tests += [RailTest("node-a", "roceP2p1s0f0", "node-b", "roceP2p1s0f0", None, None, "unknown", "")]
    assert of_each_rail(tests, "node-a") == {"rocep1s0f0": 96.8}
    assert of_each_rail(tests, "node-b") == {"rocep1s0f0": 13.6}


# --- paths


def test_an_mtu_of_1500_on_both_ends() -> None:
    small = {"netdevs": rails(mtu=1500), "pings": {("192.168.100.11", 56): True, ("192.168.100.11", 8972): False}}
    found = alarms(sight(OF, node_a={"netdevs": tuple(netdev(rail, mtu=1500) for rail in HERE.rails)}, node_b=small))
    assert found == [("warn", "MTU_1500", "node-a"), ("warn", "MTU_1500", "node-b")]


def lost(address: str) -> dict[tuple[str, int], bool]:
    return {(address, 56): True, (address, 8972): False}


@pytest.mark.parametrize("size", [1500, 4200])
@pytest.mark.parametrize("odd", ["node-a", "node-b"])
def test_an_mtu_that_only_one_end_has_is_said_of_that_end_alone(odd: str, size: int) -> None:
    """Both ends lose large pings, and only one of them has to be touched."""
    own = HERE if odd == "node-a" else THERE
    a: dict[str, Any] = {"pings": lost("192.168.100.12")}
    b: dict[str, Any] = {"pings": lost("192.168.100.11")}
    (a if odd == "node-a" else b)["netdevs"] = (netdev(own.rails[0], mtu=size), netdev(own.rails[1]))
    (found,) = said(sight(OF, node_a=a, node_b=b))
    assert (found.verdict, found.code, found.node) == ("fail", "MTU_DIFFERS", odd)
    assert found.remedy.startswith(f"on {odd}: sudo ip link set enp1s0f0np0 mtu 9000;")
    assert "netplan" in found.remedy


def test_both_twins_of_an_end_are_one_finding() -> None:
    (found,) = said(sight(OF, node_b={"netdevs": rails(mtu=1500), "pings": {}}))
    assert (found.code, found.node) == ("MTU_DIFFERS", "node-b")
    assert "enp1s0f0np0 1500" in found.observed
    assert "sudo ip link set enP2p1s0f0np0 mtu 9000" in found.remedy


def test_two_sizes_of_which_neither_is_the_recommended_one_are_of_no_single_node() -> None:
    a = {"netdevs": tuple(netdev(rail, mtu=4200) for rail in HERE.rails), "pings": {}}
    found = alarms(sight(OF, node_a=a, node_b={"netdevs": rails(mtu=2000), "pings": {}}))
    assert found == [("fail", "MTU_DIFFERS", "")] * 2


def test_the_one_that_most_are_unlike_is_named() -> None:
    of = spark(cluster=fabric(("node-a", "node-b", "node-c", "node-d"), "switch"), nodes=4)
    small = {
        f"node_{name}": {"netdevs": tuple(netdev(rail, mtu=mtu) for rail in node.rails), "pings": {}}
        for name, mtu, node in zip("abcd", (4200, 4200, 2000, 4200), of.nodes, strict=True)
    }
    assert alarms(sight(of, **small)) == [("fail", "MTU_DIFFERS", "node-c")]


def test_a_switch_that_drops_large_frames() -> None:
    pings = {("192.168.100.11", 56): True, ("192.168.100.11", 8972): False}
    (found,) = said(sight(OF, node_b={"pings": pings}))
    assert (found.verdict, found.code, found.node) == ("fail", "MTU_PATH_TOO_SMALL", "node-b")
    assert found.remedy == "raise the MTU of the switch's ports: ping -M do -s 8972 192.168.100.11"


def test_a_peer_that_does_not_answer() -> None:
    pings = {("192.168.100.11", size): False for size in (56, 8972)}
    assert met(pings=pings) == [("fail", "PEER_UNREACHABLE", "node-b")]


def test_a_device_without_a_usable_gid() -> None:
    local = tuple(gid for gid in gids("10.0.0.2") if gid.index < 3)
    assert met(rdma=(devices()[0], replace(devices()[1], gids=local))) == [("fail", "NO_ROCE_V2_GID", "node-b")]
    moved = tuple(Gid(gid.index + 2, gid.value, gid.kind) for gid in gids("10.0.0.2"))
    assert met(rdma=(devices()[0], replace(devices()[1], gids=moved))) == []


def test_a_route_over_wifi() -> None:
    assert met(routes={"192.168.100.11": "wlP9s9"}) == [("fail", "CONTROL_TRAFFIC_OFF_FABRIC", "node-b")]
    assert met(routes={"192.168.100.11": "enp1s0f0np0", "8.8.8.8": "wlP9s9"}) == []


RING = ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1")


def ring(links: dict[str, dict[str, int]]) -> list[tuple[str, str, str]]:
    """``links``: node -> port -> number of its link; the twins of a link have subnets of their own."""
    cluster = fabric(tuple(links), "ring", **{name.replace("-", "_"): RING for name in links})
    value = cluster.model_dump()
    for number, (node, ports) in enumerate(zip(value["nodes"], links.values(), strict=True)):
        for rail in node["rails"]:
            twin = 100 if "P2p" in rail["rdma"] else 0
            rail["address"] = f"10.{twin}.{ports[rail['netdev'][-1]]}.{number + 1}"
    of = spark(cluster=Cluster.model_validate(value, strict=False))
    seen = Sight(of.cluster, of.cluster.nodes, {}, {n.name: _bare(n) for n in of.cluster.nodes})
    return [each for each in alarms(seen) if each[1] == "RING_CABLING"]


def _bare(node: Node) -> Any:
    return replace(detail(node, OF), pings={}, routes={})


def test_a_ring_whose_cables_go_round() -> None:
    good = {"node-a": {"0": 1, "1": 3}, "node-b": {"0": 2, "1": 1}, "node-c": {"0": 3, "1": 2}}
    assert ring(good) == []


def test_a_ring_with_a_cable_in_the_wrong_place() -> None:
    crossed = {"node-a": {"0": 1, "1": 3}, "node-b": {"0": 1, "1": 2}, "node-c": {"0": 3, "1": 2}}
    assert ("warn", "RING_CABLING", "node-a") in ring(crossed)
    open_ring = {"node-a": {"0": 1, "1": 9}, "node-b": {"0": 2, "1": 1}, "node-c": {"0": 3, "1": 2}}
    assert ring(open_ring) == [("fail", "RING_CABLING", "node-c")]
