"""Healthy nodes for the doctor's tests, from which each test takes one thing away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.doctor.finding import Finding
from orchestrator.doctor.rules import everything
from orchestrator.doctor.sight import GIB, Sight
from orchestrator.facts.detail import Disk, Gid, Gpu, ImageInside, Memory, Netdev, NodeDetail, RdmaDevice
from orchestrator.plan.build import build
from orchestrator.plan.resolved import Resolved
from orchestrator.spec.cluster import Cluster, Node, Rail, Ssh
from orchestrator.spec.profile import Executor, Profile
from tests.unit.builders import OPERATOR, SHIPPED, facts, profile, resolved

DIGEST = "sha256:" + "d" * 64
NAMES = ("node-a", "node-b")


def fabric(names: tuple[str, ...] = NAMES, topology: Any = "direct", **rails: tuple[str, ...]) -> Cluster:
    """Sparks named ``names``; ``rails`` may give RDMA devices per node (``-`` written as ``_``)."""
    nodes = []
    for number, name in enumerate(names):
        devices = rails.get(name.replace("-", "_"), ("rocep1s0f0", "roceP2p1s0f0"))
        nodes.append(
            Node(
                name=name,
                ssh=Ssh(host=name, user="spark"),
                rails=tuple(
                    Rail(netdev=netdev_of(each), rdma=each, address=f"192.168.{100 + index}.{11 + number}")
                    for index, each in enumerate(devices)
                ),
            )
        )
    return Cluster.model_validate({"topology": topology, "nodes": tuple(nodes)}, strict=False)


def netdev_of(device: str) -> str:
    """What DGX OS calls the netdev of an RDMA device: rocep1s0f0 is enp1s0f0np0."""
    return device.replace("roce", "en") + f"np{device[-1]}"


def spark(
    of: Profile | None = None, executor: Executor = "mp", cluster: Cluster | None = None, **args: Any
) -> Resolved:
    """The shipped profile on two Sparks; with a digest wherever the stack has none."""
    found = resolved(of or quiet(), executor=executor, cluster=cluster or fabric(), **args)
    if found.stack.image is None or found.stack.image.digest:
        return found
    return replace(found, stack=found.stack.model_copy(update={"image": pinned(found)}))


def pinned(of: Resolved) -> Any:
    assert of.stack.image is not None
    return of.stack.image.model_copy(update={"digest": DIGEST, "bytes": 10_000_000_000})


def quiet(name: str = "deepseek-v4-flash", **changes: Any) -> Profile:
    """A profile without a setting that the doctor has a word about."""
    return profile(name, **{"shm_bytes": 10 * GIB, **changes})


def netdev(rail: Rail, **changes: Any) -> Netdev:
    whole = Netdev(rail.netdev, True, 9000, 200_000, (f"{rail.address}/24",), port=f"port-{rail.netdev[-1]}")
    return replace(whole, **changes)


def gids(address: str) -> tuple[Gid, ...]:
    tail = "".join(f"{int(part):02x}" for part in address.split("."))
    mapped = f"0000:0000:0000:0000:0000:ffff:{tail[:4]}:{tail[4:]}"
    local = "fe80:0000:0000:0000:4abb:2dff:fe01:0203"
    return (
        Gid(0, local, "IB/RoCE v1"),
        Gid(1, local, "RoCE v2"),
        Gid(2, mapped, "IB/RoCE v1"),
        Gid(3, mapped, "RoCE v2"),
    )


def rdma(rail: Rail, **changes: Any) -> RdmaDevice:
    port = f"port-{rail.netdev[-1]}"
    whole = RdmaDevice(rail.rdma or "", rail.netdev, "4: ACTIVE", port, 200, "28.45.4028", gids(rail.address))
    return replace(whole, **changes)


def detail(node: Node, of: Resolved, **changes: Any) -> NodeDetail:
    """A Spark that is well: idle, cabled, with the planned image on it and the model not yet."""
    others = [other for other in of.cluster.nodes if other.name != node.name]
    whole = NodeDetail(
        node=node.name,
        kernel="6.17.0-1008-nvidia",
        memory=Memory(121 * GIB, 117 * GIB, 115 * GIB, 3 * GIB, 16 * GIB, 16 * GIB, 64 * 1024**2),
        netdevs=tuple(map(netdev, node.rails)),
        rdma=tuple(map(rdma, node.rails)),
        routes={
            there.address: here.netdev for other in others for here, there in zip(node.rails, other.rails, strict=False)
        },
        pings={(rail.address, size): True for other in others for rail in other.rails for size in (56, 8972)},
        gpu=Gpu("NVIDIA GB10", "580.126.09", 12.0),
        images=(image(of),),
        disks=(Disk("/", 3000 * 10**9, "ext4"),),
        services=frozenset({"chrony", "docker"}),
        clock_offset_s=0.3,
        runtimes=("nvidia", "runc"),
        measured_gbit={rail.rdma: 95.0 for rail in node.rails if rail.rdma},
        model_files={model.name: {} for model in of.models},
    )
    return replace(whole, **changes)


def image(of: Resolved, **changes: Any) -> ImageInside:
    seen = build(of, facts(of), OPERATOR, 1)
    whole = ImageInside(
        seen.images[0].local_tag if seen.images else "none",
        "sha256:1111",
        layers=("sha256:l1", "sha256:l2"),
        architecture="arm64",
        versions={**of.stack.versions, "ray": "2.60.0"},
        nccl_sha256="f" * 64,
        nccl_version="2.30.7",
    )
    return replace(whole, **changes)


def sight(of: Resolved | None = None, told: Any = None, **nodes: Any) -> Sight:
    """``nodes`` changes single nodes: ``node_b={"clock_offset_s": 3.0}``."""
    of = of or spark()
    known = told or facts(of, disk_free_bytes=3000 * 10**9)
    details = {each.name: detail(each, of, **nodes.get(each.name.replace("-", "_"), {})) for each in of.nodes}
    plan = build(of, known, OPERATOR, 1)
    return Sight(of.cluster, of.nodes, known, details, SHIPPED.known_bad(), of, plan, bus_bytes_s=21.9e9)


def alarms(of: Sight) -> list[tuple[str, str, str]]:
    """(verdict, code, node) of everything that is neither a pass nor unknown."""
    return [(each.verdict, each.code, each.node) for each in said(of)]


def said(of: Sight) -> list[Finding]:
    return [each for each in everything(of) if each.verdict in {"warn", "fail"}]
