"""Turns the free text of published cases into our values: one small reader per kind of input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.doctor.sight import GIB, Sight
from orchestrator.facts.detail import Disk, Memory, Netdev
from orchestrator.plan.launch import LaunchPlan, Mount
from orchestrator.plan.resolve import PlanError
from orchestrator.plan.resolved import Resolved
from orchestrator.spec.cluster import Cluster, Node, Rail
from orchestrator.spec.parsing import parse
from orchestrator.spec.problems import SpecError
from orchestrator.spec.profile import Profile
from tests.unit.builders import profile, resolved
from tests.unit.patients import alarms, fabric, image, netdev, quiet, rdma, sight, spark

FOLDER = Path(__file__).parent.parent / "cases"
Alarm = tuple[str, str, str]


@dataclass(frozen=True)
class Case:
    id: str
    source: str
    input_type: str
    input: str
    expected: str


@dataclass(frozen=True)
class Outcome:
    """What came of a case: findings that are no pass, or the words in which it was refused before any finding."""

    alarms: tuple[Alarm, ...] = ()
    refused: str = ""


def cases(kind: str) -> list[Case]:
    lines = (FOLDER / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Case(**json.loads(line)) for line in lines]


def outcome(case: Case) -> Outcome:
    try:
        return Outcome(tuple(alarms(READERS[case.input_type](case.input))))
    except (SpecError, PlanError) as error:
        return Outcome(refused=str(error))


def _log(text: str) -> Sight:
    ray = spark(executor="ray")
    if size := re.search(r"has only (\d+) bytes", text):
        return sight(spark(quiet(shm_bytes=int(size[1])), executor="ray"))
    if "ray: command not found" in text:
        bare = image(ray, versions={name: text for name, text in ray.stack.versions.items() if name != "ray"})
        return sight(ray, node_b={"images": (bare,)})
    assert "Token authentication is disabled" in text
    return sight(spark(quiet(env={"RAY_AUTH_MODE": "disabled"}), executor="ray"))


def _meminfo(text: str) -> Sight:
    rows = {name: int(kib) * 1024 for name, kib in re.findall(r"(\w+):\s+(\d+) kB", text)}
    share = re.search(r"gpu_memory_utilization=([\d.]+)", text)
    of = spark(quiet(engine__memory_utilization=float(share[1]))) if share else spark()
    told = Memory(
        rows.get("MemTotal", 121 * GIB),
        rows.get("MemAvailable", 117 * GIB),
        rows.get("MemFree", 115 * GIB),
        rows.get("Cached", 0),
        cma_total=rows.get("CmaTotal", 64 * 1024**2),
    )
    kernel = re.search(r"uname -r: (\S+)", text)
    node = {"memory": told, **({"kernel": kernel[1]} if kernel else {})}
    return sight(of, node_a=node, node_b=node)


def _ibdev2netdev(text: str) -> Sight:
    parts = re.split(r"^(?:(\S+) )?ibdev2netdev:\n", text, flags=re.MULTILINE)[1:]
    told = dict(zip(parts[::2], parts[1::2], strict=True))
    listed = re.search(r"NCCL_IB_HCA=(\S+)", text)
    assert listed
    wanted = tuple(listed[1].split(","))
    mtu = int(found[1]) if (found := re.search(r"mtu: (\d+)", text)) else 9000
    of = spark(cluster=fabric(node_a=wanted, node_b=wanted))
    nodes = {}
    for node in of.nodes:
        rows = re.findall(r"^(\S+) port 1 ==> (\S+) \((\w+)\)", told.get(node.name) or told[None], flags=re.MULTILINE)
        nodes[node.name.replace("-", "_")] = _ports(node, rows, mtu)
    return sight(of, **nodes)


def _ports(node: Node, rows: list[tuple[str, str, str]], mtu: int) -> dict[str, Any]:
    named = {rail.netdev: rail for rail in node.rails}
    spare = [Rail(netdev=dev, rdma=name, address=f"192.168.{200 + at}.1") for at, (name, dev, _) in enumerate(rows)]
    rails = [named.get(rail.netdev, rail) for rail in spare]
    up = [state == "Up" for _, _, state in rows]
    return {
        "netdevs": tuple(netdev(rail, up=is_up, mtu=mtu) for rail, is_up in zip(rails, up, strict=True)),
        "rdma": tuple(
            rdma(rail, state="4: ACTIVE" if is_up else "1: DOWN") for rail, is_up in zip(rails, up, strict=True)
        ),
    }


def _ip_json(text: str) -> Sight:
    """Neighbours in any live state are there; we know them by an answered ping, not by a word of ip's."""
    live = {"REACHABLE", "DELAY", "STALE", "PROBE"}
    heard = {row["dst"]: bool(live & set(row["state"])) for row in json.loads(text)}
    pings = {(address, size): there for address, there in heard.items() for size in (56, 8972)}
    return sight(node_a={"pings": pings})


def _docker_env(text: str) -> Sight:
    inside, own, links = re.split(r"^profile env: |^node ip -j link: ", text, flags=re.MULTILINE)
    baked = dict(re.findall(r"^(\w+)=(\S+)$", inside, flags=re.MULTILINE))
    wired, *_ = names = links.strip().split(", ")
    of = spark(cluster=_renamed(fabric(), wired))
    seen = sight(of, node_b={"images": (image(of, env=baked),), "netdevs": _named(of.nodes[1], names)})
    # Only what the profile of the case sets; our plan would set all of them.
    kept = own.partition("=")[0]
    return _without(seen, {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} - {kept}, "node-b")


def _renamed(cluster: Cluster, wired: str) -> Cluster:
    value = cluster.model_dump()
    for node in value["nodes"]:
        node["rails"] = [{**node["rails"][0], "netdev": wired, "rdma": "rocep1s0f1"}]
    return Cluster.model_validate(value, strict=False)


def _named(node: Node, names: list[str]) -> tuple[Netdev, ...]:
    rest = (Netdev(name, True, 1500, wireless=name.startswith("wl")) for name in names[1:])
    return (netdev(node.rails[0]), *rest)


def _without(seen: Sight, gone: set[str], node: str, **changes: str) -> Sight:
    """The plan with variables of one rank taken away or changed: what our own plan never does."""
    assert seen.plan is not None

    def other(plan: LaunchPlan) -> LaunchPlan:
        ranks = []
        for rank in plan.ranks:
            env = {name: value for name, value in rank.unit.env.items() if name not in gone} | changes
            changed = replace(rank, unit=replace(rank.unit, env=env))
            ranks.append(changed if rank.node == node else rank)
        return replace(plan, ranks=tuple(ranks))

    return replace(seen, plan=other(seen.plan))


def _bandwidth_json(text: str) -> Sight:
    value = json.loads(text)
    devices = {value["node"].replace("-", "_"): (value["rail"],)}
    of = spark(cluster=fabric(**devices))
    node = next(each for each in of.nodes if each.name == value["node"])
    told = {
        "measured_gbit": {value["rail"]: value["measured_gbps"]},
        "netdevs": tuple(netdev(rail, speed_mbit=value["link_gbps"] * 1000) for rail in node.rails),
    }
    return sight(of, **{value["node"].replace("-", "_"): told})


def _route(text: str) -> Sight:
    node = text.partition(":")[0]
    out = re.search(r"-> dev (\S+)", text)
    env = dict(re.findall(r"(\w+_IFNAME)=(\S+)", text))
    assert out
    of = spark()
    seen = sight(of, **{node.replace("-", "_"): {"routes": {of.nodes[0].rails[0].address: out[1]}}})
    return _without(seen, {"VLLM_HOST_IP"}, node, **env)


def _docker_inspect(text: str) -> Sight:
    of = spark()
    if arch := re.search(r"linux/(\w+)\nnode uname -m: (\w+)", text):
        return sight(of, node_b={"images": (image(of, architecture=arch[1]),)})
    control, other = (json.loads(each) for each in re.findall(r"\{.*\}", text))
    return sight(of, node_a=_inspected(of, control), node_b=_inspected(of, other))


def _inspected(of: Resolved, value: dict[str, Any]) -> dict[str, Any]:
    told = image(
        of,
        image_id=value["Id"],
        digests=tuple(value["RepoDigests"]),
        layers=tuple(value["RootFS"]["Layers"]),
        labels=value.get("Labels", {}),
    )
    return {"images": (told,)}


def _cache_facts(text: str) -> Sight:
    of = spark()
    whole = {file.path: file.bytes for file in of.model.files}
    files = {}
    for node, said in re.findall(r"^(\S+) cache: (.*)$", text, flags=re.MULTILINE):
        have, full = (int(found[1]), int(found[2])) if (found := re.search(r"\((\d+) of (\d+)", said)) else (0, 1)
        kept = whole if have == full else dict(list(whole.items())[:-1]) if have else {}
        files[node.replace("-", "_")] = {"model_files": {of.model.name: kept}}
    return sight(of, **files)


def _cluster(text: str) -> Sight:
    value = yaml.safe_load(text)
    made = fabric().model_dump()
    for node, host in zip(made["nodes"], value["hosts"], strict=True):
        node["rails"] = [{"netdev": "enp1s0f0np0", "address": host}]
    return sight(spark(cluster=Cluster.model_validate(made, strict=False)))


def _profile(text: str) -> Sight:
    """A profile as its author wrote it, said in our words; what we have no word for stays as it is and is refused."""
    value = yaml.safe_load(text.partition("command:")[0])
    if "min_nodes" in value:
        asked = int(re.findall(r"--nodes (\d+)", value["cli"])[0])
        return sight(resolved(quiet(nodes={"min": value["min_nodes"], "max": 4, "default": None}), asked, "mp"))
    if "mounts" in value:
        return _on_nfs(value, re.findall(r"findmnt: (\{.*\})", text)[0])
    ours = _in_our_words(value)
    return _planned(ours, value)


def _in_our_words(value: dict[str, Any]) -> dict[str, Any]:
    ours = quiet().model_dump(mode="json", exclude_unset=True)
    args = dict(value.get("engine_args", {}))
    typed = {"gpu-memory-utilization": "memory_utilization", "kv-cache-dtype": "kv_dtype"}
    ours["engine"] |= {typed[flag]: args.pop(flag) for flag in [*args] if flag in typed}
    if args:
        ours["engine_args"] = args
    if "speculative" in value:
        wanted = {"num_speculative_tokens": "tokens"}
        ours["engine"]["speculative"] = {"tokens": 5} | {wanted.get(k, k): v for k, v in value["speculative"].items()}
    if "container" in value:
        ours["shm_bytes"] = int(value["container"]["shm_size"].removesuffix("gb")) * GIB
    ours |= {key: value[key] for key in ("env", "env_types", "secrets", "executor") if key in value}
    ours["engine"]["expert_parallel"] = bool(value.get("parallel", {}).get("expert"))
    return ours


def _planned(ours: dict[str, Any], value: dict[str, Any]) -> Sight:
    count = value.get("nodes", 2)
    names = tuple(f"node-{letter}" for letter in "abcd"[:count])
    of = spark(
        parse(yaml.safe_dump(ours), "profiles/demo.yaml", Profile),
        ours["executor"] if "executor" in value else "mp",
        fabric(names, "direct" if count == 2 else "switch"),
        nodes=count,
    )
    if str(value.get("model", "")).startswith("google/"):
        stack = of.stack.model_copy(update={"versions": {"vllm": "0.19.1"}})
        of = replace(of, stack=stack, model=of.model.model_copy(update={"repository": value["model"]}))
    return sight(of)


def _on_nfs(value: dict[str, Any], findmnt: str) -> Sight:
    shared, where = value["mounts"]["hf_cache"], json.loads(findmnt)
    of = spark(quiet(env={**profile().env, **value["env"]}))
    local = Disk("/", 3000 * 10**9, "ext4")
    seen = sight(of, node_b={"disks": (local, Disk(where["target"], 3000 * 10**9, where["fstype"]))})
    assert seen.plan is not None
    mounted = []
    for rank in seen.plan.ranks:
        unit = replace(rank.unit, mounts=(*rank.unit.mounts, Mount(shared, shared, read_only=False)))
        mounted.append(replace(rank, unit=unit))
    return replace(seen, plan=replace(seen.plan, ranks=tuple(mounted)))


READERS: dict[str, Callable[[str], Sight]] = {
    "log": _log,
    "meminfo": _meminfo,
    "ibdev2netdev": _ibdev2netdev,
    "ip_json": _ip_json,
    "docker_env": _docker_env,
    "bandwidth_json": _bandwidth_json,
    "route": _route,
    "docker_inspect": _docker_inspect,
    "cache_facts": _cache_facts,
    "cluster": _cluster,
    "profile": _profile,
}
