"""``doctor``: ask every node at once, read-only, and hold the answers against the rules."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.doctor import rules
from orchestrator.doctor.catalogue import NODE_SILENT
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.rendered import cache_paths
from orchestrator.doctor.sight import Sight
from orchestrator.doctor.waive import waived
from orchestrator.facts.detail import NodeDetail
from orchestrator.facts.node import UnreadableFactsError
from orchestrator.run import models
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError, Transport
from orchestrator.spec.cluster import Cluster, Node
from orchestrator.spec.problems import SpecError
from orchestrator.verbs import checks, fabric, names, world
from orchestrator.verbs.errors import UsageError
from orchestrator.verbs.plan import built
from orchestrator.verbs.running import running
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.world import Answers, Ask

DETAIL_DEADLINE_S = 60.0
# Payloads of a ping: one that any path takes, and the largest of a frame of 9000 bytes (28 are IP and ICMP).
PING_BYTES = (56, 8972)


@dataclass(frozen=True, slots=True)
class Report:
    """``origin`` says in words what was looked at. What is wrong with a silent node is UNKNOWN."""

    origin: str
    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]
    silent: Mapping[str, NodeError]

    @property
    def code(self) -> int:
        """Exit code: 5 something would fail, 1 a node is silent, 0 otherwise."""
        if any(each.verdict == "fail" for each in self.findings):
            return 5
        return 1 if self.silent else 0


def doctor(catalog: Catalog, ask: Ask) -> Report:
    """Look at the nodes and, where ``ask`` names a profile, at its plan on them. Raises a ``VerbError``."""
    return _of_profile(catalog, ask) if ask.profile else _of_cluster(catalog)


def _of_profile(catalog: Catalog, ask: Ask) -> Report:
    names.check(ask.name, "--name")
    chosen = world.choose(catalog, ask, may_assume=False)
    resolved = chosen.resolved
    with sitting(world.seats(resolved.cluster, resolved.nodes)) as seats:
        answers = world.gather(seats, resolved.deployment)
        now = running(answers.facts, resolved.deployment)
        plan = built(chosen, answers.facts, now)
        seen = checks.sight(catalog, resolved, plan, answers.facts, now)
        seen = replace(seen, details=details(seats, seen, answers))
    missing = waived(fabric.missing(resolved, time.time()), resolved.profile.waivers)
    return _report(f"profile {resolved.profile.name} on {chosen.origin}", seen, answers, missing)


def _of_cluster(catalog: Catalog) -> Report:
    try:
        cluster, table = catalog.cluster() or world.EMBEDDED, catalog.known_bad()
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None
    with sitting(world.seats(cluster)) as seats:
        answers = world.gather(seats, "doctor")
        seen = Sight(cluster, cluster.nodes, answers.facts, table=table)
        seen = replace(seen, details=details(seats, seen, answers))
    origin = (
        "this machine, because there is no cluster.yaml" if cluster is world.EMBEDDED else f"cluster {cluster.name}"
    )
    return _report(origin, seen, answers, ())


def _report(origin: str, seen: Sight, answers: Answers, more: tuple[Finding, ...]) -> Report:
    silent = tuple(
        replace(NODE_SILENT.unknown(name, error.what), remedy=error.remedy or NODE_SILENT.remedy)
        for name, error in answers.silent.items()
    )
    findings = (*silent, *more, *rules.everything(seen))
    return Report(origin, tuple(node.name for node in seen.nodes), findings, answers.silent)


def details(seats: Mapping[str, Transport], seen: Sight, answers: Answers) -> Mapping[str, NodeDetail]:
    """What the nodes that answered tell beside their facts: one more round trip each, all at once.

    A node whose answer is lost or unreadable tells nothing, and the rules then answer unknown.
    """
    there = [node for node in seen.nodes if node.name in answers.facts]

    def one(node: Node) -> tuple[str, NodeDetail]:
        return node.name, _with_model(_detail(seats[node.name], seen, node), seats[node.name], seen)

    with ThreadPoolExecutor(max_workers=max(1, min(64, len(there)))) as pool:
        return {name: _with_measured(detail, seen) for name, detail in pool.map(one, there)}


def _detail(seat: Transport, seen: Sight, node: Node) -> NodeDetail:
    """The seam to the question and its parser, which this room takes as it finds them."""
    asking = _room("detail_question")
    parse = getattr(asking, "parse", None) or getattr(_room("detail_answer"), "parse", None)
    if asking is None or parse is None:
        return NodeDetail(node.name)
    ping = getattr(_room("reach"), "Ping", None)
    argv = asking.question(
        images=_images(seen),
        paths=_paths(seen, node),
        addresses=[rail.address for other in _others(seen.cluster, seen, node) for rail in other.rails],
        pings=[ping(*each) for each in _pings(seen, node)] if ping else (),
    )
    at = time.time()
    try:
        found = parse(node.name, seat.run(argv, deadline_s=DETAIL_DEADLINE_S).stdout, at)
    except (NodeError, UnreadableFactsError):
        return NodeDetail(node.name)
    return found if isinstance(found, NodeDetail) else NodeDetail(node.name)


def _room(name: str) -> Any:
    path = f"orchestrator.facts.{name}"
    return importlib.import_module(path) if importlib.util.find_spec(path) else None


def _images(seen: Sight) -> list[str]:
    bits = seen.engine_image
    if bits is None:
        return []
    return [bits.local_tag, f"{bits.repository}@{bits.digest}"] if bits.digest else [bits.local_tag]


def _paths(seen: Sight, node: Node) -> list[str]:
    if seen.plan is None:
        return ["~"]
    models = [bits.target[node.name] for bits in seen.plan.models if node.name in bits.target]
    caches = [path for rank in seen.plan.ranks if rank.node == node.name for path in cache_paths(rank.unit).values()]
    return ["~", *models, *caches]


def _others(cluster: Cluster, seen: Sight, node: Node) -> list[Node]:
    """The nodes that a cable leads to: in a ring the neighbours only."""
    everyone = list(seen.nodes)
    if cluster.topology != "ring" or len(everyone) < 3:
        return [other for other in everyone if other.name != node.name]
    at = everyone.index(node)
    return [everyone[at - 1], everyone[(at + 1) % len(everyone)]]


def _pings(seen: Sight, node: Node) -> list[tuple[str, str, int]]:
    """(address, netdev, bytes): from every rail to the same rail of the others. A ring's rails are not parallel."""
    if seen.cluster.topology in {"ring", "loopback"}:
        return []
    return [
        (there.address, here.netdev, size)
        for other in _others(seen.cluster, seen, node)
        for here, there in zip(node.rails, other.rails, strict=False)
        for size in PING_BYTES
    ]


def _with_model(detail: NodeDetail, seat: Transport, seen: Sight) -> NodeDetail:
    wanted = [bits for bits in seen.plan.models if detail.node in bits.target and bits.manifest] if seen.plan else []
    if not wanted:
        return detail
    try:
        return replace(detail, model_files=models.look(seat, wanted[0].target[detail.node]).files)
    except NodeError:
        return detail


def _with_measured(detail: NodeDetail, seen: Sight) -> NodeDetail:
    """The share of each rail in the last fabric test of these nodes. In a ring a test says nothing about one rail."""
    everyone = tuple(node.name for node in seen.nodes)
    tests = [each for each in fabric.reports(seen.cluster.name) if each.nodes == everyone]
    if not tests or seen.cluster.topology == "ring":
        return detail
    rails = next(node.rails for node in seen.nodes if node.name == detail.node)
    each_gbit = tests[-1].bus_bytes_s * 8 / 1e9 / len(rails)
    return replace(detail, measured_gbit={rail.rdma or rail.netdev: round(each_gbit, 1) for rail in rails})
