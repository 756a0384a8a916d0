"""The doctor's question, asked of built sysfs trees by a real shell, and its parser on what healthy nodes answer."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.facts import ports, reach
from orchestrator.facts.detail import Gpu, Holder, Memory, Netdev, NodeDetail
from orchestrator.facts.detail_answer import parse
from orchestrator.facts.detail_question import question
from orchestrator.facts.node import UnreadableFactsError
from tests.unit import sysfs

NOW = 1_780_000_000.0
IMAGE = "ghcr.io/someone/vllm@sha256:" + "a" * 64
ADDRESSES = [
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {
        "ifname": "enp1s0f0np0",
        "addr_info": [
            {"family": "inet6", "local": "fe80::3aa3:e5ff:fece:e09c", "prefixlen": 64},
            {"family": "inet", "local": "192.168.100.11", "prefixlen": 24, "scope": "global"},
        ],
    },
    {},  # what `ip -j` prints for a row that a filter emptied
]
ROUTE = [{"dst": "192.168.100.12", "dev": "enp1s0f0np0", "prefsrc": "192.168.100.11", "flags": [], "cache": []}]
# The containerd image store: an id that is the manifest's digest, and no repository digest for an image built here.
INSPECTED = {
    "Id": "sha256:" + "b" * 64,
    "RepoDigests": [],
    "Architecture": "arm64",
    "Config": {"Env": ["PATH=/usr/bin", "EMPTY=", "WITH=a=b"], "Labels": None},
    "RootFS": {"Type": "layers", "Layers": ["sha256:" + "c" * 64]},
    "GraphDriver": {"Name": "overlayfs", "Data": None},
}
TOOLS = {
    "ip": f"case $* in '-j addr show') echo '{json.dumps(ADDRESSES)}' ;;\n"
    f"'-j route get 192.168.100.12') echo '{json.dumps(ROUTE)}' ;;\n"
    "*) echo 'RTNETLINK answers: Network is unreachable' >&2; exit 2 ;; esac",
    "nvidia-smi": "echo 'NVIDIA GB10, 580.95.05, [N/A]'",
    "docker": "case $1 in info) printf 'io.containerd.runc.v2\\nnvidia\\nrunc\\n\\n' ;;\n"
    f"image) case $* in *{IMAGE}) echo '{json.dumps(INSPECTED)}' ;;\n"
    "*) echo; echo 'Error: No such image' >&2; exit 1 ;; esac ;; esac",
    "systemctl": "printf '%s loaded active running Some words\\n' "
    "dgx-anti-oom.service chrony.service ufw.service earlyoom.service",
    "ping": "case $* in *192.168.100.12) exit 0 ;; *) exit 1 ;; esac",
}


def ask(root: Path, more: dict[str, str] | None = None, **asked: Any) -> NodeDetail:
    """The answer of a machine whose tree is under ``root`` and whose programs are the given ones."""
    sysfs.tools(root / "bin", TOOLS if more is None else more)
    env = {"PATH": f"{root / 'bin'}:{os.environ['PATH']}", "HOME": str(root)}
    argv = question(root=str(root), **asked)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    assert done.stderr == ""
    return parse("spark-1", done.stdout, NOW)


@pytest.fixture
def spark(tmp_path: Path) -> NodeDetail:
    sysfs.build(tmp_path, sysfs.gb10())
    pings = (reach.Ping("192.168.100.12", "enp1s0f0np0", 8972), reach.Ping("192.168.100.13", "enp1s0f0np0", 8972))
    images, paths = (IMAGE, "not/there:1"), ("~/models", "/")
    return ask(tmp_path, images=images, paths=paths, addresses=("192.168.100.12", "203.0.113.9"), pings=pings)


def test_twins_share_a_port_and_nothing_else_does(spark: NodeDetail) -> None:
    assert spark.netdevs is not None
    port = {each.name: each.port for each in spark.netdevs}
    assert port["enp1s0f0np0"] == port["enP2p1s0f0np0"] == f"{sysfs.SWITCH} p0"
    assert port["enp1s0f1np1"] == port["enP2p1s0f1np1"] == f"{sysfs.SWITCH} p1"
    assert port["enP7s7"] != port["wlP9s9"]
    assert port["lo"] == ""


def test_a_kernel_without_switch_ids_leaves_the_pci_address(tmp_path: Path) -> None:
    sysfs.build(tmp_path, sysfs.gb10(switch="", names="gx10a{0} gx10b{0}"))
    netdevs = ask(tmp_path).netdevs or ()
    port = {each.name: each.port for each in netdevs}
    assert port["gx10a0"] == port["gx10b0"] == "mlx5_core 01:00.0"
    assert port["gx10a1"] == port["gx10b1"] == "mlx5_core 01:00.1"
    assert port["enP7s7"] == "r8127 01:00.0"
    assert port["wlP9s9"] == "mt7925e 01:00.0"


def test_half_an_answer_does_not_part_twins(tmp_path: Path) -> None:
    nics = tuple(replace(nic, switch="") if nic.netdev == "enP2p1s0f0np0" else nic for nic in sysfs.gb10())
    sysfs.build(tmp_path, nics)
    port = {each.name: each.port for each in ask(tmp_path).netdevs or ()}
    assert port["enp1s0f0np0"] == port["enP2p1s0f0np0"] == "mlx5_core 01:00.0"
    assert port["enp1s0f1np1"] == port["enP2p1s0f1np1"]


def test_two_adapters_at_the_same_place_of_two_domains_are_told_apart_by_their_switch(tmp_path: Path) -> None:
    nics = tuple(replace(nic, switch="b") if nic.pci.startswith("0002") else nic for nic in sysfs.gb10())
    sysfs.build(tmp_path, nics)
    port = {each.name: each.port for each in ask(tmp_path).netdevs or ()}
    assert port["enp1s0f0np0"] != port["enP2p1s0f0np0"]


def test_netdevs_say_what_sysfs_says(spark: NodeDetail) -> None:
    named = {each.name: each for each in spark.netdevs or ()}
    assert named["enp1s0f0np0"] == Netdev(
        "enp1s0f0np0", True, 9000, 200000, ("192.168.100.11/24",), f"{sysfs.SWITCH} p0", "mlx5_core", enabled=True
    )
    assert (named["enp1s0f1np1"].up, named["enp1s0f1np1"].speed_mbit) == (False, None)
    assert (named["enp1s0f1np1"].enabled, named["lo"].enabled) == (True, None)
    assert (named["wlP9s9"].wireless, named["wlP9s9"].speed_mbit) == (True, None)
    assert named["lo"].up
    assert "bonding_masters" not in named


def test_a_netdev_that_is_switched_off_is_told_from_one_without_a_cable(tmp_path: Path) -> None:
    sysfs.build(tmp_path, tuple(replace(nic, up=False, enabled=nic.pci.startswith("0002")) for nic in sysfs.gb10()))
    named = {each.name: each for each in ask(tmp_path).netdevs or ()}
    assert (named["enp1s0f0np0"].up, named["enp1s0f0np0"].enabled) == (False, False)
    assert (named["enP2p1s0f0np0"].up, named["enP2p1s0f0np0"].enabled) == (False, True)


def test_rdma_devices_know_their_netdev_port_and_gids(spark: NodeDetail) -> None:
    named = {each.name: each for each in spark.rdma or ()}
    first = named["rocep1s0f0"]
    assert (first.netdev, first.state, first.rate_gbit, first.firmware) == ("enp1s0f0np0", "ACTIVE", 200, "28.45.4028")
    assert first.port == f"{sysfs.SWITCH} p0"
    assert [(gid.index, gid.kind, gid.netdev) for gid in first.gids] == [
        (0, "IB/RoCE v1", "enp1s0f0np0"),
        (1, "RoCE v2", "enp1s0f0np0"),
        (2, "IB/RoCE v1", "enp1s0f0np0"),
        (3, "RoCE v2", "enp1s0f0np0"),
    ]
    assert first.gids[0].value.startswith("fe80:")
    assert first.gids[3].value == "0000:0000:0000:0000:0000:ffff:c0a8:640b"
    assert first.counters == {"out_of_sequence": 3, "local_ack_timeout_err": 0, "lifespan": 10}
    assert named["rocep1s0f1"].state == "DOWN"


# What ibdev2netdev printed on two machines of which one has its cable in the other cage (MiaAI-Lab/
# DeepSeek-v4.1-Flash-DGX-Sparks pull request 9). Of show_gids and ethtool the fields are compared, not their words.
IBDEV2NETDEV = {
    0: """\
rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)
rocep1s0f1 port 1 ==> enp1s0f1np1 (Down)
roceP2p1s0f0 port 1 ==> enP2p1s0f0np0 (Up)
roceP2p1s0f1 port 1 ==> enP2p1s0f1np1 (Down)""",
    1: """\
rocep1s0f0 port 1 ==> enp1s0f0np0 (Down)
rocep1s0f1 port 1 ==> enp1s0f1np1 (Up)
roceP2p1s0f0 port 1 ==> enP2p1s0f0np0 (Down)
roceP2p1s0f1 port 1 ==> enP2p1s0f1np1 (Up)""",
}


@pytest.mark.parametrize("cage", [0, 1])
def test_sysfs_gives_what_the_tools_would_print(cage: int, tmp_path: Path) -> None:
    """Line by line the same table, from files alone: none of the tools is installed here."""
    sysfs.build(tmp_path, tuple(replace(nic, up=int(nic.pci[-1]) == cage) if nic.rdma else nic for nic in sysfs.gb10()))
    detail = ask(tmp_path)
    devices, netdevs = detail.rdma or (), {each.name: each for each in detail.netdevs or ()}
    table = [
        f"{each.name} port 1 ==> {each.netdev} ({'Up' if netdevs[each.netdev].up else 'Down'})" for each in devices
    ]
    assert sorted(table) == sorted(IBDEV2NETDEV[cage].splitlines())
    first = next(each for each in devices if each.name == f"rocep1s0f{cage}")
    rows = [(first.name, gid.index, gid.value, gid.kind.rpartition("RoCE ")[2], gid.netdev) for gid in first.gids]
    netdev = f"enp1s0f{cage}np{cage}"
    assert (first.name, 3, "0000:0000:0000:0000:0000:ffff:c0a8:640b", "v2", netdev) in rows  # show_gids: DEV INDEX GID
    assert netdevs[netdev].speed_mbit == 200000  # ethtool: Speed: 200000Mb/s
    assert [each.speed_mbit for each in netdevs.values() if each.driver == "mlx5_core" and not each.up] == [None] * 2


LAYERS = ["sha256:" + "c" * 64, "sha256:" + "d" * 64]
STORED = {
    # Classic stores: the id is of the image's configuration, and a repository digest is there after a pull only.
    "overlay2": {"Name": "overlay2", "Data": {"LowerDir": "/var/lib/docker/overlay2/x/diff", "MergedDir": "/m"}},
    "vfs": {"Name": "vfs", "Data": None},
    # containerd's: the id is the manifest's digest, and there is no data.
    "overlayfs": {"Name": "overlayfs", "Data": None},
}


@pytest.mark.parametrize("driver", STORED)
def test_an_image_is_the_same_whatever_stores_it(driver: str, tmp_path: Path) -> None:
    said = {**INSPECTED, "GraphDriver": STORED[driver], "RootFS": {"Type": "layers", "Layers": LAYERS}}
    said["Id"] = "sha256:" + {"overlay2": "1", "vfs": "2", "overlayfs": "3"}[driver] * 64
    docker = f"case $1 in image) echo '{json.dumps(said)}' ;; esac"
    (image,) = ask(tmp_path, {**TOOLS, "docker": docker}, images=(IMAGE,)).images
    assert image.layers == tuple(LAYERS)
    assert (image.architecture, image.env["WITH"]) == ("arm64", "a=b")


def test_memory_gpu_runtimes_and_services(spark: NodeDetail) -> None:
    kib = 1024
    assert spark.memory == Memory(
        total=127601452 * kib,
        available=121280000 * kib,
        free=90000000 * kib,
        cached=30000000 * kib,
        swap_total=16777212 * kib,
        swap_free=16777212 * kib,
        cma_total=65536 * kib,
    )
    assert spark.gpu == Gpu("NVIDIA GB10", "580.95.05", None)
    assert spark.runtimes == ("io.containerd.runc.v2", "nvidia", "runc")
    assert spark.services == frozenset({"dgx-anti-oom", "earlyoom"})
    assert spark.os_name == "Ubuntu 24.04.3 LTS"


COMPUTE_APPS = """\
case $* in *compute-apps*) printf '%s, 98304, VLLM::Worker_TP0\\n4242, [N/A], /usr/local/bin/ollama\\n' $PPID ;;
*) echo 'NVIDIA GB10, 580.95.05, [N/A]' ;; esac"""


def test_processes_that_hold_memory_are_told_with_their_container(tmp_path: Path) -> None:
    listed = "case $* in *sort*) printf '1 93323264 root VLLM::EngineCor\\n77 2048 me bash\\n' ;; *) echo me ;; esac"
    held = {each.pid: each for each in ask(tmp_path, {**TOOLS, "ps": listed, "nvidia-smi": COMPUTE_APPS}).holders}
    assert (held[1].name, held[1].user, held[1].size, held[1].on_gpu) == ("VLLM::EngineCor", "root", 89 * 2**30, False)
    assert held[77].size == 2 * 2**20
    assert held[4242] == Holder(4242, "ollama", "me", None, "", on_gpu=True)
    (worker,) = [each for each in held.values() if each.name == "VLLM::Worker_TP0"]
    assert (worker.size, worker.on_gpu) == (96 * 2**30, True)


def test_a_process_is_told_once_and_its_container_by_its_control_group() -> None:
    inside = "ab" * 32
    says = f"memory 812 1048576 root {inside} python3\ngpu 812 65536 root {inside} python3\nbroken row"
    assert short(holders=says).holders == (Holder(812, "python3", "root", 64 * 2**30, inside, on_gpu=True),)


def test_an_image_without_repository_digests_is_known_by_its_layers(spark: NodeDetail) -> None:
    (image,) = spark.images
    assert (image.name, image.digests, image.labels) == (IMAGE, (), {})
    assert image.layers == ("sha256:" + "c" * 64,)
    assert image.env == {"PATH": "/usr/bin", "EMPTY": "", "WITH": "a=b"}
    assert image.architecture == "arm64"


def test_paths_routes_and_pings(spark: NodeDetail) -> None:
    assert [disk.path for disk in spark.disks] == ["~/models", "/"]
    assert all(disk.filesystem and disk.free > 0 for disk in spark.disks)
    assert spark.routes == {"192.168.100.12": "enp1s0f0np0"}
    assert spark.pings == {("192.168.100.12", 8972): True, ("192.168.100.13", 8972): False}


def test_a_machine_without_any_of_it_answers_with_nothing(tmp_path: Path) -> None:
    nothing = dict.fromkeys(TOOLS, "exit 127")
    detail = ask(tmp_path, nothing, images=("a",), addresses=("192.0.2.1",))
    assert (detail.netdevs, detail.memory, detail.gpu, detail.services, detail.runtimes) == (None,) * 5
    assert (detail.rdma, detail.images, detail.routes) == ((), (), {})


def test_what_nvidia_smi_says_without_its_driver_is_no_gpu(tmp_path: Path) -> None:
    says = "echo 'NVIDIA-SMI has failed because it couldn'\\''t communicate with the NVIDIA driver.'; exit 9"
    assert ask(tmp_path, {**TOOLS, "nvidia-smi": says}).gpu is None


def test_this_very_machine_answers_the_question() -> None:
    text = subprocess.run(question(paths=("/",)), capture_output=True, text=True, check=True).stdout
    detail = parse("here", text, NOW)
    assert detail.memory is not None
    assert detail.netdevs
    assert detail.holders
    assert all(each.name and each.size for each in detail.holders)
    assert detail.hostname
    assert detail.clock_offset_s is not None


@pytest.mark.parametrize("text", ["", "This account is currently not available.\n", "== ident\nspark-1\n"])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(UnreadableFactsError, match="should have answered our question"):
        parse("spark-1", text, NOW)


SHORT = """\
== clock
1780000002.250000000
== ident
spark-1
aarch64
6.14.0-1013-nvidia
me
10.0.0.5 51022 10.0.0.11 22
== os
== memory
== netdevs
{netdevs}
== addresses
{addresses}
== rdma
{rdma}
== gpu
{gpu}
== holders
{holders}
== runtimes
== images
== disks
== routes
{routes}
== services
== pings
== end
"""


def short(**said: str) -> NodeDetail:
    empty = dict.fromkeys(("netdevs", "addresses", "rdma", "gpu", "holders", "routes"), "")
    return parse("spark-1", SHORT.format(**{**empty, **said}), NOW)


def test_the_clock_and_the_address_that_we_came_in_at() -> None:
    detail = short()
    assert (detail.clock_offset_s, detail.reached_at, detail.user) == (2.25, "10.0.0.11", "me")
    assert (detail.kernel, detail.arch, detail.hostname) == ("6.14.0-1013-nvidia", "aarch64", "spark-1")


@pytest.mark.parametrize(
    ("speed", "expected"), [("-1", None), ("4294967295", None), ("0", None), ("100000", 100000), ("200000", 200000)]
)
def test_speeds_that_sysfs_shows(speed: str, expected: int | None) -> None:
    (netdev,) = short(netdevs=f"netdev breakout0\noperstate up\nmtu 9000\nspeed {speed}").netdevs or ()
    assert (netdev.speed_mbit, netdev.port) == (expected, "")


@pytest.mark.parametrize("says", ["[]", "", 'Object "addr" is unknown', '{"a": 1}', "[3]"])
def test_what_is_no_list_of_ip_is_nothing(says: str) -> None:
    detail = short(netdevs="netdev eth0\noperstate up", addresses=says, routes=f"192.0.2.1\t{says}")
    assert (detail.netdevs or ())[0].addresses == ()
    assert detail.routes == {}


def test_a_row_without_dev_is_passed_over() -> None:
    rows = '[{"dst":"192.0.2.1","lladdr":"aa:bb","state":["REACHABLE"]},{"dst":"192.0.2.1","dev":"eth1"}]'
    assert short(routes=f"192.0.2.1\t{rows}").routes == {"192.0.2.1": "eth1"}


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("NVIDIA GB10, 580.95.05, 11.42", Gpu("NVIDIA GB10", "580.95.05", 11.42)),
        ("NVIDIA GB10, [N/A], [Not Supported]", Gpu("NVIDIA GB10")),
        ("No devices were found", None),
    ],
)
def test_gpu_lines(says: str, expected: Gpu | None) -> None:
    assert short(gpu=says).gpu == expected


def test_a_device_with_virtual_functions_is_known_by_the_netdev_of_its_gids() -> None:
    says = "rdma mlx5_0\nnet enp1s0f0npf0vf0\nnet enp1s0f0np0\nstate 4: ACTIVE\ngid 1 fe80:01 enp1s0f0np0 RoCE v2"
    (device,) = short(rdma=says).rdma or ()
    assert (device.netdev, device.rate_gbit) == ("enp1s0f0np0", None)


def test_gids_are_in_the_order_of_their_index_and_may_lack_a_netdev_or_a_type() -> None:
    says = "rdma mlx5_0\nnet a\nstate 4: ACTIVE\ngid 10 fe80:0a a RoCE v2\ngid 2 fe80:02 - \ngid 3 fe80:03 - RoCE v2"
    (device,) = short(rdma=says).rdma or ()
    assert [(gid.index, gid.netdev, gid.kind) for gid in device.gids] == [
        (2, "", ""),
        (3, "", "RoCE v2"),
        (10, "a", "RoCE v2"),
    ]


def test_ping_answers_and_what_was_never_sent() -> None:
    said = reach.answers(["enp1s0f0np0 192.168.100.12 56 yes", "enp1s0f0np0 192.168.100.13 56 no", "garbage"])
    assert said == {
        reach.Ping("192.168.100.12", "enp1s0f0np0"): True,
        reach.Ping("192.168.100.13", "enp1s0f0np0"): False,
    }


def test_a_ping_that_may_not_be_sent_is_not_a_ping_without_an_answer(tmp_path: Path) -> None:
    for says, code, expected in (
        ("ping: socktype: SOCK_RAW\nping: socket: Operation not permitted", 2, {}),
        ("1 packets transmitted, 0 received, 100% packet loss", 1, {reach.Ping("10.0.0.2", "eth0"): False}),
        ("ping: connect: Network is unreachable", 2, {reach.Ping("10.0.0.2", "eth0"): False}),
        ("1 packets transmitted, 1 received", 0, {reach.Ping("10.0.0.2", "eth0"): True}),
    ):
        fake = tmp_path / "ping"
        fake.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\nexit {code}\n", encoding="utf-8")
        fake.chmod(0o755)
        argv = reach.question([reach.Ping("10.0.0.2", "eth0")])
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
        assert reach.answers(said.splitlines()) == expected, says


def test_ports_of_nothing_are_nothing() -> None:
    assert ports.physical_ports({"usb0": {"device": "1-1:1.0", "driver": "cdc_ncm"}, "docker0": {}}) == {
        "usb0": "",
        "docker0": "",
    }
