"""Rules from data: the table of combinations that are known to fail, against every node and against the stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight
from orchestrator.facts.detail import ImageInside, NodeDetail
from orchestrator.plan.known_bad import Where, met, of_stack
from orchestrator.spec.cluster import Node
from orchestrator.spec.pins import KnownBad, KnownBadTable

# What a service stands for in the table: it has no version, so the entry has no bounds.
_SERVICES = ("earlyoom", "dgx-anti-oom")
ONE_BUILD = "one build of nccl on all ranks"
_SEEN = {"driver": "gpu", "kernel": "kernel", "nccl": "image", **dict.fromkeys(_SERVICES, "services")}


def findings(sight: Sight) -> Iterator[Finding]:
    """Per node for what the node itself showed; once, without a node, for what only the stack states."""
    images = {node.name: sight.image(detail) for node, detail in sight.seen()}
    differ = len({image.nccl_sha256 for image in images.values() if image and image.nccl_sha256}) > 1
    everywhere: set[str] | None = None
    for node, detail in sight.seen():
        versions = of_node(detail, images[node.name])
        everywhere = set(versions) if everywhere is None else everywhere & set(versions)
        where = _where(sight, node) | ({"ranks": "differ"} if differ else {})
        # A difference between ranks is of all of them: it is said once below.
        table = [each for each in sight.table.combinations if "ranks" not in each.where]
        if sight.plan is None:
            # Without a plan there is no image to look into.
            table = [each for each in table if _SEEN.get(each.part) != "image"]
        hits = met(KnownBadTable(combinations=tuple(table)), versions, where)
        yield from (_finding(each, node.name, versions) for each in hits)
        yield from _rest(table, hits, node, detail, versions)
    yield from _ranks(sight, images)
    yield from _stated(sight, everywhere or set())


def of_node(detail: NodeDetail, image: ImageInside | None) -> dict[str, str]:
    """Every version that a node showed, by the table's names of parts."""
    found = {"driver": detail.gpu.driver if detail.gpu else "", "kernel": detail.kernel}
    if image is not None:
        found |= {**image.versions, "nccl": image.nccl_version}
    found |= {name: "0" for name in _SERVICES if detail.services and name in detail.services}
    return {part: version for part, version in found.items() if version}


def _where(sight: Sight, node: Node | None) -> dict[str, str | frozenset[str]]:
    accelerator = node.accelerator if node else sight.resolved.profile.accelerator if sight.resolved else "none"
    facts = sight.facts.get(node.name) if node else None
    found: dict[str, str | frozenset[str]] = {"accelerator": accelerator}
    if facts or accelerator == "gb10":
        found["arch"] = facts.arch if facts else "aarch64"
    if sight.resolved is not None:
        engine, model = sight.resolved.profile.engine, sight.resolved.model
        found |= {"tensor": str(sight.resolved.tensor), "kv_dtype": engine.kv_dtype or "auto"}
        found |= {"model": model.repository or model.name}
        found["attention"] = "mla" if any(row.sharing == "replicated" for row in model.kv.rows) else "heads"
    if sight.plan is not None:
        found["env"] = frozenset(name for rank in sight.plan.ranks for name in rank.unit.env)
    return found


def _finding(entry: KnownBad, node: str, versions: Mapping[str, str]) -> Finding:
    version = "" if versions[entry.part] == "0" else f" {versions[entry.part]}"
    terms = "".join(f", {name} {value}" for name, value in entry.where.items() if name not in {"arch", "accelerator"})
    return Finding(
        entry.code,
        node,
        f"{entry.part}{version}{terms}",
        _expected(entry),
        entry.remedy,
        f"{entry.what} ({'; '.join(entry.sources)})",
        entry.verdict,
    )


def _expected(entry: KnownBad) -> str:
    return f"no {entry.part} {' and '.join(entry.versions)}".rstrip()


def _rest(
    table: list[KnownBad], hits: tuple[KnownBad, ...], node: Node, detail: NodeDetail, versions: Mapping[str, str]
) -> Iterator[Finding]:
    """Passes for what was seen and is well, unknown for what a Spark did not show; other parts are of no concern."""
    for entry in table:
        if entry in hits or node.accelerator != "gb10":
            continue
        clear = entry.part in versions or (entry.part in _SERVICES and detail.services is not None)
        if clear:
            said = f"{entry.part} {versions.get(entry.part, 'does not run')}"
            yield Finding(entry.code, node.name, said, _expected(entry), "", entry.what, "pass")
        elif entry.part in _SEEN:
            yield Finding(
                entry.code, node.name, f"nobody saw {entry.part}", _expected(entry), entry.remedy, entry.what, "unknown"
            )


def _ranks(sight: Sight, images: Mapping[str, ImageInside | None]) -> Iterator[Finding]:
    seen = {name: image for name, image in images.items() if image and image.nccl_sha256}
    builds = {image.nccl_sha256 for image in seen.values()}
    for entry in sight.table.combinations:
        if "ranks" not in entry.where or len(images) < 2 or sight.plan is None or sight.plan.runtime != "docker":
            continue
        if len(builds) > 1:
            where: Where = {**_where(sight, None), "ranks": "differ"}
            version = next((image.nccl_version for image in seen.values() if image.nccl_version), "0")
            for hit in met(KnownBadTable(combinations=(entry,)), {"nccl": version}, where):
                names = ", ".join(f"{name} {image.nccl_sha256[:12]}" for name, image in seen.items())
                yield Finding(hit.code, "", f"nccl {names}", ONE_BUILD, hit.remedy, hit.what, hit.verdict)
        else:
            whole = len(seen) == len(images)
            said = "one build of nccl on all nodes" if whole else "nobody saw nccl on all nodes"
            yield Finding(entry.code, "", said, ONE_BUILD, "", entry.what, "pass" if whole else "unknown")


def _stated(sight: Sight, seen: set[str]) -> Iterator[Finding]:
    """What the stack states and not every node showed."""
    if sight.resolved is None or sight.resolved.profile.accelerator != "gb10":
        return
    versions = {part: version for part, version in of_stack(sight.resolved.stack).items() if part not in seen}
    for entry in met(sight.table, versions, _where(sight, None)):
        yield _finding(entry, "", versions)
