"""The doctor on real nodes: each fault is found on the right node with a remedy, and a healthy pair has none."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab import network
from tests.lab import operator as desk
from tests.lab.image import Layout
from tests.lab.node import Node
from tests.lab.nodes import Lab
from tests.operator import Operator, wait_for

pytestmark = pytest.mark.lab

RAIL = network.RAILS[0].netdev


@pytest.fixture(scope="module")
def operator(lab: Lab, lab_base_image: Layout, lab_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """Nothing is started here, so the small image stands for the large one."""
    return desk.make(tmp_path_factory.mktemp("operator"), lab, lab_base_image, lab_model)


def told(operator: Operator, *words: str) -> tuple[int, set[tuple[str, str]], str]:
    """Exit code, (code, node) of everything that warns or fails, and the page."""
    found: Any = json.loads(operator.run("doctor", *words, "--json").stdout)
    page = operator.run("doctor", *words)
    bad = {(each["code"], each["node"]) for each in found["findings"] if each["verdict"] in {"warn", "fail"}}
    return page.returncode, bad, page.stdout


def remedies(page: str) -> list[str]:
    return [line.partition("-> ")[2] for line in page.splitlines() if "-> " in line]


@contextmanager
def changed(node: Node, do: str, undo: str) -> Iterator[None]:
    node.sh(do)
    try:
        yield
    finally:
        node.sh(undo)


def test_a_healthy_pair_has_no_warning(operator: Operator) -> None:
    assert told(operator)[:2] == (0, set())
    assert told(operator, "lab")[:2] == (0, set())
    began = time.monotonic()
    operator.run("doctor", "lab")
    print(f"\n  doctor of 2 nodes took {time.monotonic() - began:.1f} s (target: 3 s)")


def test_a_small_mtu_on_one_end(operator: Operator, lab: Lab) -> None:
    with changed(lab.nodes[1], f"ip link set {RAIL} mtu 1500", f"ip link set {RAIL} mtu {network.FABRIC_MTU}"):
        code, bad, page = told(operator, "lab")
    assert (code, bad) == (5, {("MTU_DIFFERS", "spark-2")})
    assert remedies(page) == [
        f"on spark-2: sudo ip link set {RAIL} mtu 9000; to stay, mtu: 9000 for it in /etc/netplan/40-cx7.yaml, and on "
        "the switch"
    ]


def test_one_link_is_down(operator: Operator, lab: Lab) -> None:
    lab.nodes[1].link_down(0)
    try:
        code, bad, page = told(operator, "lab")
    finally:
        lab.nodes[1].link_up(0)
    assert (code, bad) == (5, {("LINK_DOWN", "spark-2")})
    (remedy,) = remedies(page)
    assert remedy.startswith("look at the cable between spark-2 and ")
    assert remedy.endswith(f"; on spark-2: ip -br link show {RAIL}")


def test_one_link_is_switched_off(operator: Operator, lab: Lab) -> None:
    own, subnet = lab.nodes[1].fabric[0], network.RAILS[0].subnet
    # A route goes with a link that is switched off, and an address comes back with it.
    back = f"ip link set {RAIL} up; ip addr replace {own}/24 dev {RAIL}; ip route replace {subnet}.0/24 dev {RAIL}"
    with changed(lab.nodes[1], f"ip link set {RAIL} down", back):
        code, bad, page = told(operator, "lab")
    assert (code, bad) == (5, {("LINK_DOWN", "spark-2")})
    assert remedies(page) == [f"on spark-2: sudo ip link set {RAIL} up"]


def test_twins_in_one_subnet(operator: Operator, lab: Lab) -> None:
    node, other = lab.nodes[0], network.RAILS[1].netdev
    old, new = f"{node.fabric[1]}/24", f"{network.RAILS[0].subnet}.211/24"
    text = (operator.folder / "cluster.yaml").read_text(encoding="utf-8")
    with changed(
        node,
        f"ip addr del {old} dev {other}; ip addr add {new} dev {other}",
        f"ip addr del {new} dev {other}; ip addr add {old} dev {other}",
    ):
        (operator.folder / "cluster.yaml").write_text(text.replace(node.fabric[1], new[:-3]), encoding="utf-8")
        try:
            code, bad, page = told(operator, "lab")
        finally:
            (operator.folder / "cluster.yaml").write_text(text, encoding="utf-8")
    assert (code, bad) == (5, {("TWINS_IN_ONE_SUBNET", "spark-1")})
    assert "a subnet of its own" in page


def test_a_foreign_process_on_our_port(operator: Operator, lab: Lab) -> None:
    node = lab.nodes[0]
    server = "nohup python3 -m http.server --bind 0.0.0.0 8000 >/dev/null 2>&1 &"
    subprocess.run((*node.ssh, server), check=True, timeout=30)
    try:
        wait_for("the server listens", lambda: "0.0.0.0:8000" in node.snapshot().listening, 20)
        code, bad, page = told(operator, "lab")
    finally:
        for pid in node.pids("http.server --bind"):
            node.kill(pid)
    assert (code, bad) == (5, {("PORT_TAKEN", "spark-1")})
    assert "port 8000" in page


def test_another_image_under_the_same_tag(operator: Operator, lab: Lab) -> None:
    plan = json.loads(operator.run("plan", "lab", "--json", "--offline").stdout)
    tag = plan["images"][0]["local_tag"]
    for node in lab.nodes:
        node.sh(f"cd /tmp && hostname > one && tar -c one | docker import - {tag} && rm one")
    try:
        code, bad, page = told(operator, "lab")
    finally:
        for node in lab.nodes:
            node.sh(f"docker image rm {tag}")
    assert (code, {each for each, _ in bad}) == (5, {"IMAGES_DIFFER"})
    assert "sparkctl up lab" in page


def test_a_disk_that_is_nearly_full(operator: Operator, lab: Lab) -> None:
    models = "/home/spark/models"
    small = f"mkdir -p {models} && mount -t tmpfs -o size=50m tmpfs {models}"
    with changed(lab.nodes[1], small, f"umount {models}; rmdir {models} 2>/dev/null || true"):
        code, bad, page = told(operator, "lab")
    assert (code, bad) == (5, {("DISK_LOW", "spark-2")})
    assert "docker image prune" in page


def test_a_stale_container_of_ours(operator: Operator, lab: Lab) -> None:
    node = lab.nodes[1]
    image = node.sh("docker image ls --quiet | head -n 1") or _some_image(node)
    label = "--label sparkctl.deployment=old --label sparkctl.generation=3 --label sparkctl.rank=0"
    node.sh(f"docker run --detach --name sparkctl-old-g3-rank-0 {label} --entrypoint sleep {image} 1000")
    try:
        code, bad, page = told(operator, "lab")
    finally:
        node.sh("docker rm --force sparkctl-old-g3-rank-0")
    assert (code, bad) == (5, {("NODE_IN_USE", "spark-2")})
    assert "sparkctl down old" in page


def _some_image(node: Node) -> str:
    """An image of nothing but this node's own sleep, for when the node has none yet."""
    return node.sh("tar -C / -ch bin/sleep lib64 lib/x86_64-linux-gnu/libc.so.6 2>/dev/null | docker import -")


def test_a_user_without_rights_on_docker(operator: Operator, lab: Lab) -> None:
    with changed(lab.nodes[0], "gpasswd -d spark docker", "gpasswd -a spark docker"):
        code, bad, page = told(operator, "lab")
    assert (code, bad) == (5, {("DOCKER_NO_RIGHTS", "spark-1")})
    assert "usermod -aG docker spark" in page
