"""Rules over each node by itself: docker and its runtime, the machine, room on the disk, and the model's files."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.preflight import ARCHITECTURES, docker
from orchestrator.doctor.sight import Sight, disk_of, gib
from orchestrator.facts.detail import NodeDetail
from orchestrator.facts.node import NodeFacts
from orchestrator.plan.launch import LaunchPlan, ModelBits
from orchestrator.plan.resolved import Resolved
from orchestrator.spec.cluster import Node

NODE_NOT_GB10 = Code(
    "NODE_NOT_GB10",
    "a GB10 with an arm64 system",
    "Images, kernels and the memory sum are made for GB10; on another machine the container does not start "
    "or the sum is wrong.",
    "nvidia-smi -L; uname -m; then set accelerator in cluster.yaml to what the node has, and choose a profile for it",
)
NVIDIA_RUNTIME_ABSENT = Code(
    "NVIDIA_RUNTIME_ABSENT",
    "docker with the nvidia runtime",
    "Without NVIDIA's container toolkit docker answers to --gpus: could not select device driver with "
    "capabilities gpu.",
    "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
)
DISK_LOW = Code(
    "DISK_LOW",
    "room for the image and the model",
    "A copy that fills the disk stops half-way, and a full system disk takes docker and the logs with it.",
    "make room: docker image prune; du -xhd1 ~ | sort -h | tail",
)
MODEL_INCOMPLETE = Code(
    "MODEL_INCOMPLETE",
    "the whole model, or none of it",
    "A copy or a download was interrupted. The nodes work offline and cannot fetch what is missing.",
    "sparkctl up PROFILE sends the files that are missing; complete the operator's copy first where that one is meant",
)
# An image lies in docker's store unpacked, about twice what travels, while the layers that travelled are still there.
UNPACKED = 3
# Logs, scratch and docker's own needs.
SPARE_BYTES = 5 * 1024**3


def findings(sight: Sight) -> Iterator[Finding]:
    for node, detail in sight.seen():
        facts = sight.facts.get(node.name)
        yield from _docker(sight, node, facts)
        if node.accelerator == "gb10":
            yield _machine(node, facts, detail)
            yield _runtime(node, detail)
        if sight.plan is not None and sight.resolved is not None and node.name in sight.plan.nodes:
            yield from _bits(node, detail, facts, (sight.resolved, sight.plan))


def _bits(
    node: Node, detail: NodeDetail, facts: NodeFacts | None, wish: tuple[Resolved, LaunchPlan]
) -> Iterator[Finding]:
    """The models of a plan, and room for them: all of them lie below one directory."""
    resolved, plan = wish
    sent = [bits for bits in plan.models if not bits.made_by]
    for bits in sent:
        yield from _model(node, detail, bits)
    if sent or plan.runtime == "docker":
        room = disk_of(detail, plan.models[0].target[node.name])
        free = room.free if room else facts.disk_free_bytes if facts else None
        # A model that is made on the spot is small, and a full disk is full for it too.
        yield _disk(node, free, _wanted(resolved, sent, detail, facts) if sent else (0, True))


def _docker(sight: Sight, node: Node, facts: NodeFacts | None) -> Iterator[Finding]:
    """With a profile the checks before a start look at docker; this is for a cluster without one."""
    if sight.plan is None and node.accelerator == "gb10" and facts is not None:
        yield from docker(facts)


def _machine(node: Node, facts: NodeFacts | None, detail: NodeDetail) -> Finding:
    arch = facts.arch if facts else ""
    name = detail.gpu.name if detail.gpu else ""
    if not arch:
        return NODE_NOT_GB10.unknown(node.name, "the node did not tell what it is")
    said = f"{name or 'unknown GPU'} on {arch}"
    if ARCHITECTURES.get(arch, arch) != "arm64" or (name and "GB10" not in name):
        look = f"on {node.name}: nvidia-smi -L; uname -m"
        return NODE_NOT_GB10.fail(node.name, said, f"{look}; if so, accelerator: none for it in cluster.yaml")
    return NODE_NOT_GB10.passed(node.name, said)


def _runtime(node: Node, detail: NodeDetail) -> Finding:
    """A warning only: with CDI docker can hand a GPU over without the runtime being registered."""
    if detail.runtimes is None:
        return NVIDIA_RUNTIME_ABSENT.unknown(node.name, "docker told no runtimes")
    said = ", ".join(detail.runtimes) or "none"
    there = any("nvidia" in each for each in detail.runtimes)
    return NVIDIA_RUNTIME_ABSENT.passed(node.name, said) if there else NVIDIA_RUNTIME_ABSENT.warn(node.name, said)


def _model(node: Node, detail: NodeDetail, bits: ModelBits) -> Iterator[Finding]:
    if not bits.manifest:
        return
    have = detail.model_files.get(bits.model)
    if have is None:
        yield MODEL_INCOMPLETE.unknown(node.name, f"nobody looked into the directory of {bits.model}")
        return
    there = [path for path, size in bits.manifest if have.get(path) == size]
    said = f"{len(there)} of {len(bits.manifest)} files of {bits.model}"
    if have and len(there) < len(bits.manifest):
        lacks = next(path for path, size in bits.manifest if have.get(path) != size)
        yield MODEL_INCOMPLETE.fail(node.name, f"{said}, {lacks} is not whole")
    else:
        yield MODEL_INCOMPLETE.passed(node.name, said)


def _wanted(resolved: Resolved, sent: list[ModelBits], detail: NodeDetail, facts: NodeFacts | None) -> tuple[int, bool]:
    """Bytes that `up` would still write, and whether that is sure: nobody may have looked what is there already."""
    image = resolved.stack.image
    held = facts.images if facts else ()
    there = image is not None and f"{image.repository}@{image.digest}" in {*held, *_held(detail)}
    images = 0 if there or image is None else UNPACKED * (image.bytes or 0)
    cards = {model.name: model for model in resolved.models}
    models, sure = 0, True
    for bits in sent:
        have, card = detail.model_files.get(bits.model), cards[bits.model]
        if bits.manifest and have is not None:
            models += sum(size for path, size in bits.manifest if have.get(path) != size)
        else:
            models += sum(size for _, size in bits.manifest) or card.repo_bytes or card.weights_bytes or 0
            sure = False
    return images + models, sure


def _held(detail: NodeDetail) -> set[str]:
    return {digest for image in detail.images for digest in (*image.digests, *image.labels.values())}


def _disk(node: Node, free: int | None, wanted: tuple[int, bool]) -> Finding:
    need, sure = wanted
    if free is None:
        return DISK_LOW.unknown(node.name, "the node did not tell what is free")
    said = f"{gib(free)} free, {gib(need)} to write"
    if free >= need + SPARE_BYTES:
        return DISK_LOW.passed(node.name, said)
    if sure:
        return DISK_LOW.fail(node.name, said)
    return DISK_LOW.warn(node.name, f"{said} unless the model is there already")
