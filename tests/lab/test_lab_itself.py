"""The lab proves that its nodes behave like machines, before anything is tested on them."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.plan.launch import LaunchPlan, Unit
from orchestrator.plan.runtime import start
from tests.lab import leftovers, network, processes
from tests.lab.image import Layout
from tests.lab.layout_server import serving
from tests.lab.nodes import Lab, Node
from tests.lab.rootfs import CACHE
from tests.unit.builders import plan as planned
from tests.unit.builders import profile, resolved

pytestmark = pytest.mark.lab

_REGISTRY = "127.0.0.1:5000"
# An Ethernet payload of 9000 bytes less the headers of IP and ICMP.
_FULL_PING = network.FABRIC_MTU - 28


def over_ssh(node: Node, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*node.ssh, command), capture_output=True, text=True, check=False, timeout=30)


def ping(node: Node, address: str, size: int) -> str:
    return node.sh(f"ping -M do -s {size} -c 1 -W 1 {address} 2>&1", check=False)


@pytest.fixture(scope="module")
def image(lab: Lab, lab_base_image: Layout) -> str:
    """The small image on the first node, pulled by digest through a tunnel that the operator opened."""
    node = lab.nodes[0]
    name = f"{_REGISTRY}/{lab_base_image.ref.repository}@{lab_base_image.ref.digest}"
    with serving(lab_base_image.path) as port:
        forward = ("-o", "ExitOnForwardFailure=yes", "-R", f"{_REGISTRY}:127.0.0.1:{port}")
        pull = (*node.ssh[:-1], *forward, node.ssh[-1], f"docker pull --quiet {name}")
        subprocess.run(pull, check=True, capture_output=True, timeout=120)
    return name


@pytest.fixture
def sleeper(lab: Lab, image: str) -> Iterator[str]:
    """A container on the first node that docker starts again after a reboot."""
    run = f"docker run --detach --name sleeper --network host --restart unless-stopped {image} sleep 4321"
    lab.nodes[0].sh(run)
    yield "sleeper"
    lab.nodes[0].sh("docker rm --force sleeper")


def test_ssh_answers_as_spark_with_the_known_key(lab: Lab) -> None:
    for node in lab.nodes:
        answer = over_ssh(node, "hostname; id -un; id -Gn; docker ps --quiet; sudo -n id -un")
        assert (answer.stdout.split("\n"), answer.stderr) == ([node.name, "spark", "spark sudo docker", "root", ""], "")


def test_ssh_refuses_a_node_with_another_key(lab: Lab, tmp_path: Path) -> None:
    first, second = lab.known_hosts.read_text().splitlines()
    (tmp_path / "known_hosts").write_text(f"{first.split()[0]} {' '.join(second.split()[1:])}\n")
    node = lab.nodes[0]
    known = f"UserKnownHostsFile={tmp_path / 'known_hosts'}"
    answer = subprocess.run(("ssh", "-o", known, *node.ssh[1:], "true"), capture_output=True, text=True, check=False)
    assert answer.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in answer.stderr


def test_each_rail_carries_full_frames_and_no_larger_ones(lab: Lab) -> None:
    first, second = lab.nodes
    for rail, address in enumerate(second.fabric):
        before = [node.rail_bytes(rail) for node in lab.nodes]
        assert " 0% packet loss" in ping(first, address, _FULL_PING)
        assert "essage too long" in ping(first, address, _FULL_PING + 1)
        assert all(node.rail_bytes(rail) - old > 2 * _FULL_PING for node, old in zip(lab.nodes, before, strict=True))


def test_a_pulled_cable_cuts_one_rail_only(lab: Lab) -> None:
    first, second = lab.nodes
    second.link_down(0)
    try:
        assert "100% packet loss" in ping(first, second.fabric[0], 56)
        assert " 0% packet loss" in ping(first, second.fabric[1], 56)
        assert second.sh(f"cat /sys/class/net/{network.RAILS[0].netdev}/carrier") == "0"
    finally:
        second.link_up(0)
    processes.wait_until(lambda: " 0% packet loss" in ping(first, second.fabric[0], 56), "the rail is back", 10)


def test_a_node_that_drops_ssh_goes_on_working(lab: Lab) -> None:
    first, second = lab.nodes
    second.block_ssh()
    try:
        impatient = ("ssh", "-o", "ConnectTimeout=1", *second.ssh[1:], "true")
        assert subprocess.run(impatient, check=False, capture_output=True).returncode == 255
        assert " 0% packet loss" in ping(first, second.address, 56)
    finally:
        second.unblock_ssh()
    assert over_ssh(second, "true").returncode == 0


def test_a_snapshot_tells_what_changed_and_holds_still_otherwise(lab: Lab) -> None:
    node = lab.nodes[1]
    before = node.snapshot()
    assert node.snapshot() == before
    over_ssh(node, "echo x > new; nohup python3 -m http.server --bind 127.0.0.1 8099 >/dev/null 2>&1 &")
    processes.wait_until(lambda: "127.0.0.1:8099" in node.snapshot().listening, "the server listens", 10)
    after = node.snapshot()
    assert set(after.files) - set(before.files) == {"new"}
    assert after.listening - before.listening == {"127.0.0.1:8099"}
    (server,) = node.pids("http.server --bind")
    node.kill(server)
    node.sh("rm /home/spark/new")
    processes.wait_until(lambda: node.snapshot() == before, "the node is as before", 10)


def test_only_a_nodes_own_processes_can_be_killed(lab: Lab) -> None:
    first, second = lab.nodes
    with pytest.raises(ValueError, match="is not on spark-1"):
        first.kill(second.pid1)


def test_an_image_layout_becomes_a_container(lab: Lab, image: str) -> None:
    program = "import sys, os; print(sys.version_info[:2], os.listdir('/sys/class/net'))"
    said = lab.nodes[0].sh(f'docker run --rm --network host {image} python3 -c "{program}"')
    assert str(sys.version_info[:2]) in said
    assert all(rail.netdev in said for rail in network.RAILS)


@pytest.fixture
def production(lab: Lab, image: str) -> Iterator[tuple[LaunchPlan, Unit]]:
    """Rank 1 of a GB10's plan, started on the first node as spark by the plan's own command line.

    Only what runs inside is another program, for the small image has no engine; and behind ``--gpus all`` stands the
    hook of on_node, which adds no device.
    """
    plan = planned(resolved(profile("deepseek-v4-flash"), 2, "mp"))
    unit = replace(plan.ranks[1].unit, argv=("sleep", "4321"))
    assert unit.container is not None
    node, folders = lab.nodes[0], {mount.source for mount in unit.mounts if mount.source.startswith("/")}
    node.sh(f"docker tag {image} {unit.container.image}")
    done = over_ssh(node, shlex.join(start(plan, unit)))
    try:
        assert done.returncode == 0, done.stderr
        yield plan, unit
    finally:
        node.sh(f"docker rm --force --volumes {unit.name}; docker image rm {unit.container.image}")
        node.sh(f"docker volume rm {' '.join(m.source for m in unit.mounts if m.source not in folders)}")
        tops = {f"/home/spark/{Path(folder).parts[3]}" for folder in folders}
        node.sh(f"rm -r {' '.join(sorted(tops))}")


def test_docker_takes_the_production_command_line_word_for_word(lab: Lab, production: tuple[LaunchPlan, Unit]) -> None:
    node, (plan, unit) = lab.nodes[0], production
    (shown,) = json.loads(node.sh(f"docker inspect {unit.name}"))
    host, config = shown["HostConfig"], shown["Config"]
    limits = {each["Name"]: (each["Soft"], each["Hard"]) for each in host["Ulimits"]}
    assert limits == {"memlock": (-1, -1), "nofile": (1048576, 1048576), "stack": (67108864, 67108864)}
    assert (host["ShmSize"], config["User"], host["Privileged"]) == (profile().shm_bytes, "0:0", False)
    assert (config["StopSignal"], config["StopTimeout"]) == ("SIGTERM", unit.stop_grace_s)
    assert (host["NetworkMode"], host["RestartPolicy"]["Name"]) == ("host", "unless-stopped")
    assert {word.removeprefix("CAP_") for word in host["CapAdd"]} == {"IPC_LOCK"}
    assert [device["PathOnHost"] for device in host["Devices"]] == ["/dev/infiniband"]
    assert [(request["Count"], request["Capabilities"]) for request in host["DeviceRequests"]] == [(-1, [["gpu"]])]
    assert {key: value for key, value in config["Labels"].items() if key.startswith("sparkctl.")} == {
        "sparkctl.deployment": "deepseek-v4-flash",
        "sparkctl.generation": "1",
        "sparkctl.rank": "1",
        "sparkctl.plan": plan.digest,
    }
    assert {f"{key}={value}" for key, value in unit.env.items()} <= set(config["Env"])
    assert {(each["Destination"], each["RW"]) for each in shown["Mounts"]} == {
        (mount.target, not mount.read_only) for mount in unit.mounts
    }
    inside = node.sh(f"docker exec {unit.name} sh -c 'ls /dev/infiniband; df -k /dev/shm; grep CapEff /proc/1/status'")
    assert "uverbs0" in inside
    assert f" {profile().shm_bytes // 1024} " in inside
    assert int(inside.split()[-1], 16) >> 14 & 1, "the container lacks IPC_LOCK"
    assert node.sh("cat /var/log/lab-gpu-hook.log") == "prestart"


def test_a_reboot_brings_the_container_back_and_no_old_process(lab: Lab, sleeper: str) -> None:
    node = lab.nodes[0]
    (before,) = node.pids("^sleep 4321")
    node.reboot()
    processes.wait_until(lambda: len(node.pids("^sleep 4321")) == 1, "the container runs again", 20)
    assert not processes.is_alive(before)
    assert [(each.name, each.state) for each in node.containers()] == [(sleeper, "running")]


def test_a_power_cut_ends_everything_and_keeps_the_disk(lab: Lab) -> None:
    node = lab.nodes[1]
    node.sh("echo kept > /home/spark/kept; sync")
    running = node.pids(".")
    node.power_off()
    assert not any(map(processes.is_alive, running))
    node.power_on()
    node.wait_ready()
    assert node.sh("cat /home/spark/kept; rm /home/spark/kept") == "kept"


def test_nothing_is_left_after_down_and_a_killed_run_is_cleaned_up(lab: Lab) -> None:
    lab.down()
    assert leftovers.find() == []
    killed = CACHE / "killed"
    try:
        argv = (sys.executable, "-m", "tests.lab.nodes", str(killed), "1")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as other:
            assert other.stdout is not None
            assert other.stdout.readline().startswith(b"spark-1: ssh ")
            other.send_signal(signal.SIGKILL)
        processes.wait_until(lambda: not any("process:" in each for each in leftovers.find()), "its node is dead", 5)
        assert any("device:" in each for each in leftovers.find())
        assert (killed / "spark-1").exists()
    finally:
        lab.up()
    assert not (killed / "spark-1").exists()
    assert over_ssh(lab.nodes[0], "true").returncode == 0
