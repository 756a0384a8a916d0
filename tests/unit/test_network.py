"""The network environment of a rank in a ring: what NCCL needs beside the devices, and how a cable is told."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.plan.network import environment, prefix_length
from orchestrator.spec.cluster import Cluster, Node, Rail, Ssh
from tests.unit.patients import fabric

DEVICES = ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1")


def ring(count: int, form: str) -> Cluster:
    """``form`` makes an address of {cable} (both twins of every cable have one) and {end}, 1 or 2."""
    nodes = []
    for number in range(count):
        before = (number - 1) % count
        cables = ((2 * number, 1), (2 * number + 1, 1), (2 * before, 2), (2 * before + 1, 2))
        rails = tuple(
            Rail(netdev=f"en{index}", rdma=device, address=form.format(cable=cable, end=end, low=4 * cable + end))
            for index, (device, (cable, end)) in enumerate(zip(DEVICES, cables, strict=True))
        )
        nodes.append(Node(name=f"node-{number}", ssh=Ssh(host=f"node-{number}", user="spark"), rails=rails))
    return Cluster.model_validate({"topology": "ring", "nodes": tuple(nodes)}, strict=False)


def test_three_nodes_in_a_ring() -> None:
    of = ring(3, "192.168.{cable}.{end}")
    variables = environment(of, of.nodes[0])
    assert variables["NCCL_IB_HCA"] == ",".join(DEVICES)
    assert variables["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert variables["NCCL_IB_MERGE_NICS"] == "0"
    assert variables["NCCL_NET_PLUGIN"] == "none"
    assert "NCCL_ALGO" not in variables
    assert "NCCL_IB_SUBNET_PREFIX_LEN" not in variables
    assert "NCCL_IB_GID_INDEX" not in variables


@pytest.mark.parametrize("count", [4, 5, 8])
def test_from_four_nodes_on_only_the_ring_algorithm_keeps_to_the_cables(count: int) -> None:
    of = ring(count, "192.168.{cable}.{end}")
    assert environment(of, of.nodes[-1])["NCCL_ALGO"] == "Ring"


@pytest.mark.parametrize("topology", ["direct", "switch"])
def test_no_other_topology_has_any_of_them(topology: Any) -> None:
    of = fabric(topology=topology)
    ringed = {"NCCL_IB_SUBNET_AWARE_ROUTING", "NCCL_IB_MERGE_NICS", "NCCL_NET_PLUGIN", "NCCL_ALGO"}
    assert not (ringed | {"NCCL_IB_SUBNET_PREFIX_LEN"}) & set(environment(of, of.nodes[0]))


@pytest.mark.parametrize(
    ("form", "length"),
    [
        ("192.168.{cable}.{end}", 24),
        ("10.{cable}.{end}.{end}", 22),
        ("192.168.100.{low}", 30),
    ],
)
def test_rails_that_are_no_24_say_so_to_nccl(form: str, length: int) -> None:
    of = ring(4, form)
    found = prefix_length(of)
    assert found == length  # of several that part the cables, the longest
    told = environment(of, of.nodes[0]).get("NCCL_IB_SUBNET_PREFIX_LEN")
    assert told == (None if length == 24 else str(found))


def test_addresses_that_fit_no_ring_leave_nccls_own() -> None:
    of = ring(4, "192.168.100.{low}")
    twice = of.model_copy(
        update={"nodes": (*of.nodes[:3], of.nodes[3].model_copy(update={"rails": of.nodes[0].rails}))}
    )
    assert prefix_length(twice) == 24
