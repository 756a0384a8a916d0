"""Rules over what every rank will really see: its variables and mounts against that node's rails and disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.paths import CONTROL_TRAFFIC_OFF_FABRIC, usable_gids
from orchestrator.doctor.planned import EMPTY_NCCL_VALUE, FREE_INDEX, GID_INDEX_PINNED
from orchestrator.doctor.sight import Sight, disk_of
from orchestrator.facts.detail import NodeDetail
from orchestrator.plan.launch import Unit
from orchestrator.spec.cluster import Node

SOCKET_IFNAMES_DISAGREE = Code(
    "SOCKET_IFNAMES_DISAGREE",
    "one interface for Gloo, TP and NCCL on a rank",
    "Each of them takes part in the rendezvous; where they name different interfaces one of them waits for ever.",
    "take the three variables out of profile and image; the plan sets them from the first rail in cluster.yaml",
)
JIT_CACHE_ON_SHARED_FS = Code(
    "JIT_CACHE_ON_SHARED_FS",
    "caches of compiled kernels on a disk of the node itself",
    "Ranks that compile into one shared folder read each other's half-written files; the errors look like anything "
    "(tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark issue 27). A model read from "
    "there is fine.",
    "point the variable to a folder below /root/.cache, which is a volume of the node",
)
_BINDS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_CACHES = ("_CACHE_DIR", "_CACHE_ROOT", "_CACHE_PATH", "_CACHE_HOME", "_CACHE", "_WORKSPACE_BASE", "_EXTENSIONS_DIR")
# Caches of models: read by all, written by whoever downloads.
_MODELS = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "MODELSCOPE_")
_SHARED = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "gluster", "beegfs", "gpfs", "afs", "fuse.sshfs")


def findings(sight: Sight) -> Iterator[Finding]:
    if sight.plan is None:
        return
    units = {rank.node: rank.unit for rank in sight.plan.ranks}
    for node, detail in sight.seen():
        unit = units.get(node.name)
        if unit is None:
            continue
        image = sight.image(detail)
        yield from _bound(node, unit, frozenset(image.env) if image else frozenset())
        baked = {name: value for name, value in image.env.items() if name not in unit.env} if image else {}
        yield from _left(node, baked)
        yield from _pinned(node, detail, {**baked, **unit.env})
        yield _caches(node, detail, unit)


def _bound(node: Node, unit: Unit, baked: frozenset[str]) -> Iterator[Finding]:
    """What the image bakes in and the plan leaves alone is judged with the image."""
    rails, addresses = {rail.netdev for rail in node.rails}, {rail.address for rail in node.rails}
    named = {name: unit.env.get(name, "") for name in _BINDS if name in unit.env or name not in baked}
    off = [
        f"{name}={value or '(unset)'}" for name, value in named.items() if not _names(value) or _names(value) - rails
    ]
    host = unit.env.get("VLLM_HOST_IP", "")
    if host not in addresses:
        off.append(f"VLLM_HOST_IP={host or '(unset)'}")
    wanted = f"{node.rails[0].netdev} {node.rails[0].address}"
    if off:
        yield CONTROL_TRAFFIC_OFF_FABRIC.fail(node.name, f"{', '.join(off)} while the rail is {wanted}")
        return
    yield CONTROL_TRAFFIC_OFF_FABRIC.passed(node.name, f"all on {wanted}")
    sets = [_names(value) for value in named.values() if value]
    if sets and not set.intersection(*sets):
        said = ", ".join(f"{name}={value}" for name, value in named.items())
        yield SOCKET_IFNAMES_DISAGREE.fail(node.name, said)
    else:
        yield SOCKET_IFNAMES_DISAGREE.passed(node.name, wanted)


def _names(value: str) -> set[str]:
    return {each for each in value.lstrip("=").split(",") if each}


def _left(node: Node, baked: Mapping[str, str]) -> Iterator[Finding]:
    """What the image says and the plan does not. A plan cannot unset a variable of an image, only give it a value."""
    empty = sorted(name for name, value in baked.items() if name.startswith("NCCL_") and not value)
    if empty:
        remedy = f"use an image without {', '.join(empty)}, or give it a value in env of the profile"
        yield EMPTY_NCCL_VALUE.fail(node.name, f"{', '.join(empty)} of the image", remedy)
    index = baked.get("NCCL_IB_GID_INDEX", "")
    if index not in FREE_INDEX:
        remedy = 'set NCCL_IB_GID_INDEX: "-1" (NCCL finds it by itself) in env of the profile'
        yield GID_INDEX_PINNED.warn(node.name, f"NCCL_IB_GID_INDEX={index} of the image", remedy)


def _pinned(node: Node, detail: NodeDetail, env: Mapping[str, str]) -> Iterator[Finding]:
    """A pinned index is a warning by itself; where this node's table has nothing usable there it cannot work."""
    index = env.get("NCCL_IB_GID_INDEX", "")
    if not index.isdigit():
        return
    for name in [rail.rdma for rail in node.rails if rail.rdma]:
        usable = usable_gids(detail, name)
        if usable and int(index) not in usable:
            said = f"index {index} while {name} has its RoCE v2 address at {', '.join(map(str, sorted(usable)))}"
            yield GID_INDEX_PINNED.fail(node.name, said)


def _caches(node: Node, detail: NodeDetail, unit: Unit) -> Finding:
    bad, blind = [], False
    for name, path in cache_paths(unit).items():
        disk = disk_of(detail, path)
        blind = blind or disk is None
        if disk is not None and disk.filesystem.startswith(_SHARED):
            bad.append(f"{name}={unit.env[name]} ({disk.filesystem} at {disk.path})")
    if bad:
        return JIT_CACHE_ON_SHARED_FS.fail(node.name, ", ".join(bad))
    if blind:
        return JIT_CACHE_ON_SHARED_FS.unknown(node.name, "the node did not tell what filesystem holds them")
    return JIT_CACHE_ON_SHARED_FS.passed(node.name, "on the node's own disk")


def cache_paths(unit: Unit) -> dict[str, str]:
    """Variable -> path on the node, for every cache of compiled code that does not lie in the container alone."""
    found = {
        name: _on_host(unit, value)
        for name, value in unit.env.items()
        if name.endswith(_CACHES) and not name.startswith(_MODELS) and value.startswith("/")
    }
    return {name: path for name, path in found.items() if path}


def _on_host(unit: Unit, path: str) -> str:
    """The path on the node; empty for what lies in a volume of docker or in the container alone."""
    if unit.container is None:
        return path
    over = [each for each in unit.mounts if f"{path}/".startswith(f"{each.target.rstrip('/')}/")]
    mount = max(over, key=lambda each: len(each.target), default=None)
    if mount is None or "/" not in mount.source:
        return ""
    return f"{mount.source.rstrip('/')}{path[len(mount.target.rstrip('/')) :]}"
