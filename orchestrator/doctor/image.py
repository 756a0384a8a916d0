"""Rules over the planned image as each node holds it: architecture, what is in it, and whether all hold the same."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.preflight import ARCHITECTURES
from orchestrator.doctor.sight import SOURCE_LABEL, Sight
from orchestrator.facts.detail import ImageInside, NodeDetail
from orchestrator.plan.launch import LaunchPlan
from orchestrator.spec.cluster import Node

IMAGE_ARCH_MISMATCH = Code(
    "IMAGE_ARCH_MISMATCH",
    "an image for the node's architecture",
    "An image for another processor ends with exec format error, and docker starts it again for ever.",
    "docker image rm IMAGE, then sparkctl up PROFILE brings the pinned one; build on a Spark, or with "
    "--platform linux/arm64",
)
IMAGE_LACKS_RAY = Code(
    "IMAGE_LACKS_RAY",
    "Ray in the image, which executor ray starts",
    "Newer images of vLLM, NVIDIA's too, come without Ray; the container ends with ray: command not found "
    "(NVIDIA/dgx-spark-playbooks issues 75 and 109).",
    "sparkctl up PROFILE --executor mp, or an image with Ray: containers/README.md",
)
IMAGE_VERSIONS = Code(
    "IMAGE_VERSIONS",
    "the versions that the stack pins",
    "The stack states what was tried together; another version in the image is another engine, whatever its tag says.",
    "sparkctl up PROFILE brings the image by its digest; correct versions in pins/stacks where the image is meant",
)
IMAGES_DIFFER = Code(
    "IMAGES_DIFFER",
    "the same image on all nodes",
    "Ranks of different builds wait for each other in collectives that the other one does not have.",
    "sparkctl up PROFILE brings the pinned image to every node",
)
IMAGE_BAKED_IFNAME = Code(
    "IMAGE_BAKED_IFNAME",
    "interface names that the node has, in image and plan together",
    "An image may bake in names of its author's interfaces; what the plan does not set itself then holds, "
    "and Gloo ends on "
    "every machine without that interface.",
    "set all of the names, or use an image without them; the plan sets GLOO_, TP_ and NCCL_SOCKET_IFNAME on every rank",
)
_NAMED_IN = (
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "MN_IF_NAME",
    "OMPI_MCA_btl_tcp_if_include",
)


def findings(sight: Sight) -> Iterator[Finding]:
    if sight.plan is None or sight.plan.runtime != "docker":
        return
    held: dict[str, ImageInside] = {}
    for node, detail in sight.seen():
        image = sight.image(detail)
        if image is None:
            yield IMAGE_ARCH_MISMATCH.unknown(node.name, "the image is not there, or nobody looked")
            continue
        held[node.name] = image
        yield _architecture(sight, node, image)
        yield from _inside(sight, node, image)
        yield _baked(sight.plan, node, detail, image)
    yield from _same(held)


def _architecture(sight: Sight, node: Node, image: ImageInside) -> Finding:
    facts = sight.facts.get(node.name)
    arch = facts.arch if facts else ""
    if not arch or not image.architecture:
        return IMAGE_ARCH_MISMATCH.unknown(node.name, f"{image.name} told no architecture")
    own = image.architecture.removeprefix("linux/").partition("/")[0]
    said = f"{image.name} for {own} on {arch}"
    if ARCHITECTURES.get(arch, arch) != ARCHITECTURES.get(own, own):
        return IMAGE_ARCH_MISMATCH.fail(node.name, said, IMAGE_ARCH_MISMATCH.remedy.replace("IMAGE", image.name))
    return IMAGE_ARCH_MISMATCH.passed(node.name, said)


def _inside(sight: Sight, node: Node, image: ImageInside) -> Iterator[Finding]:
    if not image.versions:
        yield IMAGE_LACKS_RAY.unknown(node.name, f"nobody looked into {image.name}")
        return
    said = ", ".join(f"{name} {version}" for name, version in sorted(image.versions.items()))
    if sight.plan is not None and sight.plan.executor == "ray":
        there = bool(image.versions.get("ray"))
        yield IMAGE_LACKS_RAY.passed(node.name, said) if there else IMAGE_LACKS_RAY.fail(node.name, f"only {said}")
    pinned = sight.resolved.stack.versions if sight.resolved else {}
    known = {name: image.versions[name] for name in pinned if name in image.versions}
    wrong = [f"{name} {known[name]} instead of {pinned[name]}" for name in known if known[name] != pinned[name]]
    yield IMAGE_VERSIONS.fail(node.name, ", ".join(wrong)) if wrong else IMAGE_VERSIONS.passed(node.name, said)


def _baked(plan: LaunchPlan, node: Node, detail: NodeDetail, image: ImageInside) -> Finding:
    """By what the rank would see: the image's variables below the plan's own."""
    if detail.netdevs is None:
        return IMAGE_BAKED_IFNAME.unknown(node.name, "the node told no netdevs")
    there = {dev.name for dev in detail.netdevs}
    own = next((rank.unit.env for rank in plan.ranks if rank.node == node.name), {})
    baked = {name: image.env[name] for name in _NAMED_IN if image.env.get(name) and not own.get(name)}
    lost = [f"{name}={value}" for name, value in baked.items() if not there & set(value.lstrip("=^").split(","))]
    if lost:
        return IMAGE_BAKED_IFNAME.fail(node.name, f"{', '.join(lost)} of the image, not on the node")
    return IMAGE_BAKED_IFNAME.passed(node.name, ", ".join(f"{name}={own.get(name, '')}" for name in _NAMED_IN[:3]))


def same(one: ImageInside, other: ImageInside) -> bool:
    """Equal layers, or one source digest: ids differ between storage drivers, and a loaded image has no digest."""
    if one.layers and other.layers:
        return one.layers == other.layers
    return bool(_origins(one) & _origins(other)) or (bool(one.image_id) and one.image_id == other.image_id)


def _origins(image: ImageInside) -> set[str]:
    named = {*image.digests, image.labels.get(SOURCE_LABEL, "")}
    return {each.rpartition("@")[2] for each in named if each}


def _same(held: dict[str, ImageInside]) -> Iterator[Finding]:
    if len(held) < 2:
        return
    (first, reference), *others = held.items()
    differ = [name for name, image in others if not same(reference, image)]
    if differ:
        yield IMAGES_DIFFER.fail("", f"{', '.join(differ)} not what {first} has ({reference.name})")
    else:
        yield IMAGES_DIFFER.passed("", f"{reference.name} on {', '.join(held)}")
