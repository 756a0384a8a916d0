"""What ``init`` writes is what sparkctl reads, with a reason above every value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestrator.facts import cabling
from orchestrator.facts.detail import Gpu, NodeDetail
from orchestrator.plan.cluster_text import Known, cluster_text
from orchestrator.plan.network import environment
from orchestrator.spec.cluster import Cluster, Ssh
from orchestrator.spec.parsing import parse
from tests.unit.test_topology import answered, cabled, pair, ring, spark

GB10 = Gpu("NVIDIA GB10", "580.95.05")


def written(details: Sequence[NodeDetail], ssh: dict[str, Ssh] | None = None, config: str = "") -> tuple[str, Cluster]:
    details = [replace(each, gpu=GB10, user="me") for each in details]
    reached = ssh if ssh is not None else {each.node: Ssh(host=f"{each.node}.local") for each in details}
    found = cabled(details)
    remarks = cabling.remarks(found, details, answered(details))
    text = cluster_text(found, Known({each.node: each for each in details}, reached, config), remarks)
    assert all(len(line) <= 118 for line in text.splitlines())
    return text, parse(text, "cluster.yaml", Cluster)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_nodes_that_are_directly_connected_or_on_a_switch(count: int) -> None:
    text, cluster = written([pair(n) for n in range(1, count + 1)])
    assert cluster.topology == ("direct" if count == 2 else "switch")
    assert [node.rails[1].address for node in cluster.nodes] == [f"192.168.101.{10 + n}" for n in range(1, count + 1)]
    assert "physical port id p0, 192.168.100.0/24, 200 Gbit/s, MTU 9000" in text
    assert environment(cluster, cluster.nodes[0])["NCCL_IB_HCA"] == "roce0,roce1"


@pytest.mark.parametrize("count", [3, 4])
def test_a_ring_meets_over_management_and_moves_data_over_all_four_devices(count: int) -> None:
    text, cluster = written(ring(count))
    variables = environment(cluster, cluster.nodes[0])
    assert (cluster.topology, variables["NCCL_SOCKET_IFNAME"]) == ("ring", "enP7s7")
    assert variables["NCCL_IB_HCA"] == "roce0,roce1,roce2,roce3"
    assert "# rendezvous only:" in text


def test_how_a_node_is_reached_stands_there_as_it_was_typed() -> None:
    ssh = {"spark-1": Ssh(host="fe80::1%eth0", user="other", port=2222)}
    text, cluster = written([pair(1), pair(2)], ssh, config="~/my config")
    assert cluster.nodes[0].ssh == ssh["spark-1"]
    assert cluster.nodes[1].ssh is None
    assert "# No ssh entry: the machine that init ran on." in text
    assert cluster.ssh_config == "~/my config"


def test_the_user_that_answered_is_written_where_none_was_typed() -> None:
    _, cluster = written([pair(1), pair(2)])
    assert cluster.nodes[0].ssh == Ssh(host="spark-1.local", user="me")


@pytest.mark.parametrize("name", ["no", "0123", "1e3", "null", "a.b", "12"])
def test_names_that_yaml_reads_as_something_else_are_quoted(name: str) -> None:
    _, cluster = written([replace(pair(1), node=name), pair(2)])
    assert cluster.nodes[0].name == name


def test_remarks_stand_in_the_file() -> None:
    details = [spark(n, f"192.168.100.{n}/24", f"192.168.100.{n + 2}/24", mtu=1500) for n in (1, 2)]
    text, _ = written(details)
    assert "# To look at:\n# - spark-1: enp1s0f0np0 and enP2p1s0f0np0 are both in 192.168.100.0/24" in text
    assert "has MTU 1500" in text


def test_a_machine_without_a_gb10_is_no_gb10() -> None:
    details = [pair(1), pair(2)]
    found = cabled(details)
    text = cluster_text(found, Known({each.node: each for each in details}, {}), ())
    assert parse(text, "cluster.yaml", Cluster).nodes[0].accelerator == "none"
    assert "on a Spark repair its driver" in text
