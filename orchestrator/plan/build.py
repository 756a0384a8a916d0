"""Resolved + facts -> LaunchPlan. Pure: the same input gives the same plan, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from orchestrator.facts.node import NodeFacts
from orchestrator.plan import gateway_unit, network, serve
from orchestrator.plan.launch import (
    STOP_GRACE_S,
    Container,
    ImageBits,
    LaunchPlan,
    ModelBits,
    Mount,
    Rank,
    SecretFile,
    TextFile,
    Unit,
    identity,
)
from orchestrator.plan.rankfile import Peer, Policy, RankFile, Service
from orchestrator.plan.resolved import Resolved
from orchestrator.plan.seat import Seat, assumed_facts, engine_address, expand, gateway_node, seat, state_root
from orchestrator.plan.tags import local_tag
from orchestrator.spec.pins import Image


@dataclass(frozen=True, slots=True)
class Operator:
    """What the plan needs from where the operator stands: home directory and the agent's sha256."""

    home: str
    agent_sha256: str


def build(resolved: Resolved, facts: Mapping[str, NodeFacts], operator: Operator, generation: int) -> LaunchPlan:
    """The plan of ``resolved`` as generation ``generation``, with its identity as digest."""
    blank = _build(resolved, facts, operator, (0, ""))
    return _build(resolved, facts, operator, (generation, identity(blank)))


def _build(
    resolved: Resolved, facts: Mapping[str, NodeFacts], operator: Operator, number: tuple[int, str]
) -> LaunchPlan:
    generation, digest = number
    known = {node.name: facts.get(node.name) or assumed_facts(node) for node in resolved.nodes}
    seats = tuple(
        seat(resolved, index, known[node.name], (generation, operator.agent_sha256))
        for index, node in enumerate(resolved.nodes)
    )
    ranks = tuple(_rank(resolved, seats, index, number) for index in range(len(seats)))
    profile = resolved.profile
    return LaunchPlan(
        deployment=resolved.deployment,
        profile=profile.name,
        model=resolved.model.name,
        served_name=profile.engine.served_name,
        stack=resolved.stack.name,
        executor=resolved.executor,
        runtime=profile.runtime,
        generation=generation,
        digest=digest,
        agent_sha256=operator.agent_sha256,
        state={node.name: state_root(known[node.name], resolved.deployment) for node in resolved.nodes},
        ranks=ranks,
        gateway=gateway_unit.gateway(resolved, seats, known, generation),
        images=_images(resolved),
        models=tuple(_model(resolved, seats, operator, number) for number in range(len(resolved.models))),
        ready_deadline_s=profile.readiness.ready_deadline_s,
        warnings=warnings(resolved),
    )


def _images(resolved: Resolved) -> tuple[ImageBits, ...]:
    if resolved.profile.runtime != "docker":
        return ()
    wanted: list[tuple[Image | None, tuple[str, ...]]] = [
        (resolved.stack.image, tuple(node.name for node in resolved.nodes)),
        (resolved.stack.gateway, (gateway_node(resolved),)),
    ]
    return tuple(
        ImageBits(image.repository, image.digest or "", local_tag(image), nodes) for image, nodes in wanted if image
    )


def _model(resolved: Resolved, seats: tuple[Seat, ...], operator: Operator, number: int) -> ModelBits:
    model, target = resolved.models[number], {each.node.name: each.models_host[number] for each in seats}
    directory = seats[0].models_host[number].rpartition("/")[2]
    return ModelBits(
        model=model.name,
        revision=model.revision or "",
        target=target,
        source=f"{expand(resolved.cluster.bits.models_from, operator.home)}/{directory}",
        nodes=tuple(each.node.name for each in seats),
        made_by=model.made_by or "",
        manifest=tuple((file.path, file.bytes) for file in model.files),
        hashes=tuple((file.path, file.sha256) for file in model.files if file.sha256),
    )


def _rank(resolved: Resolved, seats: tuple[Seat, ...], index: int, number: tuple[int, str]) -> Rank:
    here = seats[index]
    rank_file = _rank_file(resolved, seats, index, number)
    extra = serve.files(resolved, here)
    return Rank(
        rank=index,
        node=here.node.name,
        address=here.address,
        unit=_unit(resolved, here, number),
        rank_file=rank_file,
        files=tuple(TextFile(f"{here.directory_host}/{name}", text) for name, text in sorted(extra.items())),
        secrets=_secrets(resolved, here),
    )


def _secrets(resolved: Resolved, here: Seat) -> tuple[SecretFile, ...]:
    found = [SecretFile(f"{here.directory_host}/agent.token", "agent-token")]
    found.append(SecretFile(f"{here.directory_host}/engine.key", "engine-key"))
    if resolved.executor == "ray":
        found.append(SecretFile(f"{here.directory_host}/ray.token", "ray-token"))
    return tuple(found)


def _rank_file(resolved: Resolved, seats: tuple[Seat, ...], index: int, number: tuple[int, str]) -> RankFile:
    here, profile = seats[index], resolved.profile
    ready = profile.readiness
    return RankFile(
        deployment=resolved.deployment,
        generation=number[0],
        plan_digest=number[1],
        rank=index,
        node=here.node.name,
        address=here.address,
        executor=resolved.executor,
        peers=tuple(Peer(each.rank, each.node.name, each.address, profile.ports.agent) for each in seats),
        agent_port=profile.ports.agent,
        check_port=profile.ports.check,
        state_dir=here.directory,
        agent_token_file=f"{here.directory}/agent.token",
        scratch=here.scratch,
        steps=serve.steps(resolved, seats, index),
        service=Service(
            base_url=f"http://{engine_address(resolved)}:{profile.ports.engine}",
            served_name=profile.engine.served_name,
            context_tokens=profile.engine.context_tokens,
            engine_key_file=f"{here.directory}/engine.key",
            ready_deadline_s=ready.ready_deadline_s,
            completion_deadline_s=ready.completion_deadline_s,
            canary_every_s=ready.canary_every_s,
        ),
        policy=Policy(
            backoff_s=ready.backoff_s,
            breaker_attempts=ready.breaker_attempts,
            breaker_window_s=ready.breaker_window_s,
            unreachable_s=ready.unreachable_s,
            join_deadline_s=ready.join_deadline_s,
            drain_s=ready.drain_s if index == 0 else 0.0,
        ),
        rdma=network.devices(here.node),
        pins=dict(resolved.stack.versions),
    )


def _unit(resolved: Resolved, here: Seat, number: tuple[int, str]) -> Unit:
    env = {
        **serve.environment(resolved, here),
        **resolved.profile.env,
        **network.environment(resolved.cluster, here.node),
    }
    unit = Unit(
        name=f"sparkctl-{resolved.deployment}-g{number[0]}-rank-{here.rank}",
        node=here.node.name,
        rank=str(here.rank),
        argv=(here.python, here.agent, "run", f"{here.directory}/rank.json"),
        env=env,
        mounts=(),
        directory=here.directory_host,
        scratch=here.scratch if resolved.profile.runtime == "process" else "",
        stop_grace_s=STOP_GRACE_S + (ceil(resolved.profile.readiness.drain_s) if here.rank == 0 else 0),
    )
    image = resolved.stack.image
    if resolved.profile.runtime != "docker" or image is None:
        return unit
    return replace(unit, mounts=_mounts(resolved, here), container=_container(resolved, image))


def _mounts(resolved: Resolved, here: Seat) -> tuple[Mount, ...]:
    found = [
        Mount(here.directory_host, here.directory, read_only=False),
        Mount(here.agent_host, here.agent),
        *map(Mount, here.models_host, here.models),
    ]
    if here.node.accelerator != "none":
        # Compiled kernels live here: a first start without them takes tens of minutes on GB10.
        found.append(Mount(f"sparkctl-cache-{resolved.stack.name}", serve.CACHE, read_only=False))
    return tuple(found)


def _container(resolved: Resolved, image: Image) -> Container:
    """The production settings: host network comes from the runtime; memlock and IPC_LOCK are what RDMA pins with."""
    gpu = resolved.profile.accelerator != "none"
    return Container(
        image=local_tag(image),
        shm_bytes=resolved.profile.shm_bytes,
        gpus="all" if gpu else "",
        devices=("/dev/infiniband",) if gpu else (),
        capabilities=("IPC_LOCK",) if gpu else (),
        ulimits=("memlock=-1:-1", "nofile=1048576:1048576", "stack=67108864:67108864") if gpu else (),
    )


def warnings(resolved: Resolved) -> tuple[str, ...]:
    """What can work but has hurt others; never a refusal."""
    found = []
    profile = resolved.profile
    if profile.accelerator == "gb10" and (profile.engine.memory_utilization or 0.92) > 0.90:
        found.append(
            f"engine/memory_utilization {profile.engine.memory_utilization or 0.92}: on GB10 this share covers the "
            "system, the page cache and NCCL too; above 0.90 starts fail or long sessions run out of memory "
            "[UTIL_TOO_HIGH_FOR_UMA]"
        )
    found += _reachable_engine(resolved)
    for what, image in (("image", resolved.stack.image), ("gateway", resolved.stack.gateway)):
        if profile.runtime == "docker" and (image is None or image.digest is None):
            build = (
                f"build the image as containers/{image.build}/README.md says" if image and image.build else "pin one"
            )
            others = " or ".join(f"use --executor {each}" for each in profile.stack if each != resolved.executor)
            found.append(
                f"pins/stacks/{resolved.stack.name}.yaml {what}/digest: not known, `up` refuses until it is; {build}"
                + (f", or {others}" if others else "")
            )
    return tuple(found)


def _reachable_engine(resolved: Resolved) -> list[str]:
    head, node, address = resolved.nodes[0], gateway_node(resolved), engine_address(resolved)
    if node == head.name or address.startswith("127."):
        return []
    return [
        f"gateway/node {node}: the engine listens on {address}:{resolved.profile.ports.engine} of {head.name}, where "
        "vLLM answers /invocations, /tokenize, /scale_elastic_ep and others without a key to anybody on that network; "
        f"with the gateway on {head.name} it listens on loopback only"
    ]
