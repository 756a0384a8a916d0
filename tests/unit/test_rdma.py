"""RDMA over each rail: who writes to whom, what runs there, and what is made of the words of ``ib_write_bw``."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.fabric import command
from orchestrator.plan import rdma
from orchestrator.plan.launch import Unit
from orchestrator.plan.rdma import Pair, RailTest
from orchestrator.plan.resolved import Resolved
from orchestrator.run.local import LocalTransport
from orchestrator.spec.cluster import Cluster, Node, Rail, Ssh
from orchestrator.verbs import fabric as verb
from orchestrator.verbs.fabric import Report
from orchestrator.verbs.rdma import measure
from tests.unit.builders import SHIPPED, plan, profile, resolved

FLOOR = SHIPPED.machine("gb10").rail_bytes_s
TOOL = "ib_write_bw"

# The client's words in NVIDIA's performance guide of the DGX Spark (perftest of Ubuntu 24.04), one row of its five.
HEALTHY = """\
  WARNING: BW peak won't be measured in this run.
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF            Device         : rocep1s0f0
 Number of qps   : 1              Transport type : IB
 Connection type : RC             Using SRQ      : OFF
 Mtu             : 1024[B]
 Link type       : Ethernet
 GID index       : 3
---------------------------------------------------------------------------------------
 local address:  LID 0000 QPN 0x0129 PSN 0x57279d RKey 0x184300 VAddr 0x00ec99bedad000
 GID:            00:00:00:00:00:00:00:00:00:00:255:255:192:168:200:13
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]    MsgRate[Mpps]
 65536      882805           0.00               92.57                0.176554
---------------------------------------------------------------------------------------
"""
# A container whose device had no GID (Mellanox/k8s-rdma-shared-dev-plugin issue 72).
NO_GID = """\
 GID: 00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00
Failed to modify QP 59 to RTR
 Unable to Connect the HCA's through the link
"""
# Nothing listens (linux-rdma/perftest pull request 228), and packets that never arrive (issue 262).
REFUSED = """\
Couldn't connect to 192.168.125.211:18515
Unable to open file descriptor for socket connection Unable to init the socket connection
"""
LOST = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n"
NO_DEVICE = (
    " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n"
)


def spark(number: int, *thirds: int, networks: str = "192.168") -> Node:
    """A node with a rail in each of these subnets, each with a device of its own."""
    rails = [
        Rail(netdev=f"enp{i}", rdma=f"roce{i}", address=f"{networks}.{third}.{10 + number}")
        for i, third in enumerate(thirds)
    ]
    return Node(name=f"spark-{number}", ssh=Ssh(host=f"spark-{number}"), rails=tuple(rails))


def ring(count: int) -> tuple[Node, ...]:
    """Cable n, from node n to the next, has the subnets 2n and 2n + 1; the first rail of a node is its rendezvous."""
    nodes = []
    for n in range(count):
        behind = (n - 1) % count
        node = spark(n + 1, 2 * n, 2 * n + 1, 2 * behind, 2 * behind + 1)
        nodes.append(replace_rails(node, Rail(netdev="enP7s7", address=f"10.0.0.{n + 1}"), *node.rails))
    return tuple(nodes)


def replace_rails(node: Node, *rails: Rail) -> Node:
    return node.model_copy(update={"rails": rails})


def ends(pairs: tuple[Pair, ...]) -> list[tuple[str, str, str]]:
    subnets = [{rail.address.rpartition(".")[0] for rail in (pair.writes, pair.listens)} for pair in pairs]
    return [(pair.writer, pair.node, *subnet) for pair, subnet in zip(pairs, subnets, strict=True)]  # type: ignore[misc]


def test_each_rail_between_cabled_neighbours() -> None:
    direct = (spark(1, 100, 101), spark(2, 101, 100))  # the other order in the file changes nothing
    assert ends(rdma.pairs("direct", direct)) == [
        ("spark-1", "spark-2", "192.168.100"),
        ("spark-1", "spark-2", "192.168.101"),
    ]
    switch = tuple(spark(n, 100, 101) for n in range(1, 5))
    assert [pair[:2] for pair in ends(rdma.pairs("switch", switch))] == [
        ("spark-1", f"spark-{n}") for n in (2, 3, 4) for _ in range(2)
    ]
    for count in (3, 4):
        found = ends(rdma.pairs("ring", ring(count)))
        cables = [(n, n % count + 1) for n in range(1, count + 1)]
        assert found == [
            (f"spark-{one}", f"spark-{other}", f"192.168.{2 * (one - 1) + half}")
            for one, other in cables
            for half in (0, 1)
        ]
    assert ends(rdma.pairs("ring", ring(4)[:3])) == ends(rdma.pairs("ring", ring(4)))[:4], (
        "no cable, nothing to measure"
    )
    assert rdma.pairs("direct", direct[:1]) == ()
    without = Node(name="cpu-1", rails=direct[1].rails, accelerator="none")
    assert rdma.pairs("direct", (direct[0], without)) == ()


def here() -> Resolved:
    nodes = (spark(1, 1, 2), spark(2, 1, 2))
    return resolved(profile(), executor="mp", cluster=Cluster(topology="direct", nodes=nodes))


def units(of: Resolved) -> dict[str, Unit]:
    return {rank.node: rank.unit for rank in plan(of).ranks}


def test_both_ends_in_the_pinned_image_without_gpu_and_with_an_end() -> None:
    of = here()
    pair = rdma.pairs("direct", of.nodes)[1]
    argv = rdma.commands(pair, "image", units(of), 25001)
    assert list(argv) == ["spark-2", "spark-1"], "who listens is started first"
    for node, words in argv.items():
        text = " ".join(words)
        assert text.startswith("docker run --rm --interactive --pull never --network host")
        assert "--gpus" not in words
        assert "--device /dev/infiniband" in text
        assert "--cap-add IPC_LOCK" in text
        assert "--ulimit memlock=-1:-1" in text
        assert f"--entrypoint timeout {units(of)[node].container.image} -k 2 30 " in text  # type: ignore[union-attr]
    test = (TOOL, "-F", "--report_gbits", "-s", "65536", "-D", "4", "-p", "25001", "-d", "roce1")
    on_node = rdma.commands(pair, "node", units(of), 25001)
    assert on_node["spark-2"] == ("timeout", "-k", "2", "30", *test)
    assert on_node["spark-1"] == ("timeout", "-k", "2", "30", "sh", "-c", rdma.RETRY, *test, "192.168.2.12")
    back = rdma.commands(pair.back(), "node", units(of), 25001)
    assert list(back) == ["spark-1", "spark-2"]
    assert back["spark-2"][-1] == "192.168.2.11"


def test_every_turn_has_a_port_of_its_own() -> None:
    for rendezvous in (1, 25000, 65535):
        ports = [rdma.port(rendezvous, turn) for turn in range(300)]
        assert len(set(ports)) == 300
        assert rendezvous not in ports
        assert all(1024 <= each <= 65535 for each in ports)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("image\nnode\n", "image\n", "image"), ("image\nnode\n", "node\n", "node"), ("node\n", "", ""), ("", "", "")],
)
def test_the_image_first_then_the_nodes_own_and_only_where_both_have_it(one: str, other: str, expected: str) -> None:
    pair = rdma.pairs("direct", here().nodes)[0]
    found = {"spark-1": one, "spark-2": other}
    assert rdma.way(pair, found) == expected
    if not expected:
        test = rdma.unmeasured(pair, found, FLOOR)
        assert (test.verdict, test.bytes_s) == ("unknown", None)
        assert test.says.endswith("spark-2: sudo apt-get install perftest there")


def row(gbit: float) -> str:
    return HEALTHY.replace("92.57", f"{gbit:.2f}")


@pytest.mark.parametrize(
    ("listened", "wrote", "verdict", "words"),
    [
        ("", HEALTHY, "pass", "92.57 Gb/s, at least 80.00 is expected"),
        ("", HEALTHY + row(97.28), "pass", "97.28 Gb/s"),
        ("", row(12.74), "warn", "take their power away"),
        ("", row(61.0), "warn", "ethtool enp0"),
        ("", HEALTHY.replace("Gb/sec", "MiB/sec"), "warn", "no figure"),
        (NO_GID, NO_GID, "warn", "Failed to modify QP 59 to RTR: look at address and GID of enp0"),
        ("", LOST, "warn", "MTU of both ends and of the switch"),
        ("", REFUSED, "warn", "open the port in the firewall of spark-2"),
        (NO_DEVICE, REFUSED, "warn", "ibdev2netdev"),
        ("Couldn't listen to port 25001\n", REFUSED, "warn", "ss -ltnp"),
        (rdma.OVERDUE, rdma.OVERDUE, "warn", "it did not end within 30 s: look at enp0"),
        ("", "", "warn", "its last words were none: sparkctl doctor"),
    ],
)
def test_words_of_both_ends_are_judged(listened: str, wrote: str, verdict: str, words: str) -> None:
    pair = rdma.pairs("direct", here().nodes)[0]
    test = rdma.judge(pair, {"spark-2": listened, "spark-1": wrote}, FLOOR)
    assert test.verdict == verdict
    assert words in test.says
    assert (test.node, test.device, test.peer, test.peer_device) == ("spark-1", "roce0", "spark-2", "roce0")


def test_without_an_expected_figure_nothing_passes() -> None:
    pair = rdma.pairs("direct", here().nodes)[0]
    assert rdma.judge(pair, {"spark-2": "", "spark-1": HEALTHY}, None).verdict == "unknown"


def rail(verdict: str, gbit: float | None = None) -> RailTest:
    return RailTest("spark-1", "roce0", "spark-2", "roce0", gbit and gbit * 1e9 / 8, FLOOR, verdict, verdict)


def test_garbage_of_any_length_holds_no_figure() -> None:
    began = time.monotonic()
    for garbage in ("\n" * 200_000, "1 " * 100_000, "65536 1 1.0 \n2.0 3.0", "\0\xff" * 1000):
        assert rdma.parse(f"BW average[Gb/sec]{garbage}") is None
    assert time.monotonic() - began < 2


def test_a_slow_rail_takes_a_pass_away_and_an_unknown_one_does_not() -> None:
    assert rdma.together("pass", [rail("pass"), rail("unknown")]) == "pass"
    assert rdma.together("pass", [rail("pass"), rail("warn")]) == "warn"
    assert rdma.together("unknown", [rail("pass")]) == "unknown"
    assert rdma.together("fail", [rail("warn")]) == "fail"
    assert rdma.slower(rail("pass", 97.0), rail("warn", 12.0)) == rail("warn", 12.0)
    assert rdma.slower(rail("pass", 97.0), rail("warn")) == rail("warn")


def test_rails_are_remembered_and_older_reports_are_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asks, now = resolved(profile(fabric_test_days=7), executor="mp"), time.time()
    cluster = asks.cluster.name
    old = Report(now - 86400, cluster, ("spark-1", "spark-2"), 2**29, 23e9, "nccl", "pass", "23 GB/s")
    file = tmp_path / "sparkctl-fabric" / f"{cluster}.json"
    file.parent.mkdir()
    file.write_text(json.dumps([{key: value for key, value in asdict(old).items() if key != "rails"}]))
    assert verb.reports(cluster) == (old,)
    odd = ({"at": "yesterday"}, {"at": 1e300}, {"verdict": "fine"}, {"nodes": 7}, {"rails": [asdict(rail("fine"))]})
    rows = [json.dumps([{**asdict(old), **each}]) for each in odd]
    for damaged in ("[[]]", '["rails"]', "[1]", '[{"rails": 1}]', "[" * 100_000, *rows):
        file.with_name("damaged.json").write_text(damaged)
        assert verb.reports("damaged") == ()
    assert verb.missing(asks, now) == ()
    new = replace(old, at=now, rails=(rail("pass", 92.57), rail("unknown")))
    verb._remember(new)
    assert verb.reports(cluster) == (old, new)
    shown = CliRunner().invoke(command, ["list", cluster]).output.splitlines()
    assert len(shown) == 4
    assert shown[0].endswith("spark-1, spark-2: pass; all-gather of 512 MiB: 23 GB/s")
    assert shown[2:] == [f"  spark-1 roce0 -> spark-2 roce0: {word}, {word}" for word in ("pass", "unknown")]
    assert (
        json.loads(CliRunner().invoke(command, ["list", cluster, "--json"]).output)[1]["rails"][0]["verdict"] == "pass"
    )


@pytest.fixture
def measured_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolved:
    """Two nodes of direct cables that are both this machine, with nothing on PATH but what a shell needs."""
    for name in ("sh", "env", "timeout", "seq", "sleep", "python3"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tmp_path))
    return replace(here(), nodes=(spark(1, 1, 2, networks="127.0"), spark(2, 1, 2, networks="127.0")))


def seats_here(of: Resolved) -> dict[str, LocalTransport]:
    return {node.name: LocalTransport(node.name) for node in of.nodes}


def test_nodes_and_image_without_the_tool_are_unknown(measured_here: Resolved) -> None:
    tests = measure(measured_here, plan(here()), seats_here(measured_here), FLOOR, lambda _: None)
    assert [test.verdict for test in tests] == ["unknown", "unknown"]
    assert "none on spark-1 and spark-2" in tests[0].says


@pytest.mark.parametrize(("gbit", "verdict"), [("97.28", "pass"), ("12.74", "warn")])
def test_the_writer_waits_for_who_listens(
    measured_here: Resolved, gbit: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = Path(__file__).with_name("standin_ib_write_bw.py")
    (Path(os.environ["PATH"]) / TOOL).symlink_to(standin)
    monkeypatch.setenv("STANDIN_GBIT", gbit)
    monkeypatch.setenv("STANDIN_WAIT_S", "0.3")
    tests = measure(measured_here, plan(here()), seats_here(measured_here), FLOOR, lambda _: None)
    assert [(test.device, test.verdict) for test in tests] == [("roce0", verdict), ("roce1", verdict)]
