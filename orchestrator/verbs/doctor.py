"""``doctor``: ask every node at once, read-only, and hold the answers against the rules.

The one thing that it starts is the planned image's own Python, where the image is on a node: without network and GPU,
for a second, in a container that is removed again.
"""

from __future__ import annotations

import ipaddress
import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.doctor import rules
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.login import UNANSWERED
from orchestrator.doctor.rendered import cache_paths
from orchestrator.doctor.sight import Sight
from orchestrator.doctor.waive import waived
from orchestrator.facts import detail_question, inside
from orchestrator.facts.detail import ImageInside, NodeDetail
from orchestrator.facts.reach import SMALL_BYTES, Ping
from orchestrator.plan.network import prefix_length
from orchestrator.plan.rdma import RailTest
from orchestrator.run import models
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError, Transport
from orchestrator.spec.cluster import Node, Rail
from orchestrator.spec.problems import SpecError
from orchestrator.verbs import checks, fabric, names, unanswered, world
from orchestrator.verbs.details import Details, from_each, gather
from orchestrator.verbs.errors import UsageError
from orchestrator.verbs.plan import built
from orchestrator.verbs.running import running
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.world import Answers, Ask

# The largest payload of a ping in a frame of 9000 bytes: 28 are IP and ICMP.
LARGE_BYTES = 8972
# A first start of a container reads some hundred megabytes of the image from the disk.
INSIDE_DEADLINE_S = 90.0


@dataclass(frozen=True, slots=True)
class Report:
    """``origin`` says in words what was looked at; ``silent`` did not answer, and each of them has a finding."""

    origin: str
    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]
    silent: Mapping[str, NodeError]

    @property
    def code(self) -> int:
        """Exit code: 5 something is known to be wrong, 1 a node is silent and nobody knows, 0 otherwise."""
        if any(each.verdict == "fail" for each in self.findings):
            return 5
        return 1 if self.silent else 0

    @property
    def untold(self) -> frozenset[Finding]:
        """Why nodes did not answer. They are shown whatever their verdict: nothing else is known of those nodes."""
        return frozenset(each for each in self.findings if each.code in UNANSWERED)


def doctor(catalog: Catalog, ask: Ask) -> Report:
    """Look at the nodes and, where ``ask`` names a profile, at its plan on them. Raises a ``VerbError``."""
    return _of_profile(catalog, ask) if ask.profile else _of_cluster(catalog)


def _of_profile(catalog: Catalog, ask: Ask) -> Report:
    names.check(ask.name, "--name")
    chosen = world.choose(catalog, ask, may_assume=False)
    resolved = chosen.resolved
    with sitting(world.seats(resolved.cluster, resolved.nodes)) as seats:
        answers = world.gather(seats, resolved.deployment)
        now = running(answers.facts, resolved.deployment, resolved.cluster.topology)
        plan = built(chosen, answers.facts, now)
        seen = checks.sight(catalog, resolved, plan, answers.facts, now)
        more = details(seats, seen, answers)
    missing = waived(fabric.missing(resolved, time.time()), resolved.profile.waivers)
    return _report(
        f"profile {resolved.profile.name} on {chosen.origin}",
        _with(seen, more, _last_test(seen)),
        {**answers.silent, **more.silent},
        missing,
    )


def _of_cluster(catalog: Catalog) -> Report:
    try:
        cluster, table = catalog.cluster() or world.EMBEDDED, catalog.known_bad()
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None
    with sitting(world.seats(cluster)) as seats:
        answers = world.gather(seats, "doctor")
        seen = Sight(cluster, cluster.nodes, answers.facts, table=table)
        more = details(seats, seen, answers)
    origin = (
        "this machine, because there is no cluster.yaml" if cluster is world.EMBEDDED else f"cluster {cluster.name}"
    )
    return _report(origin, _with(seen, more, _last_test(seen)), {**answers.silent, **more.silent}, ())


def _report(origin: str, seen: Sight, silent: Mapping[str, NodeError], more: tuple[Finding, ...]) -> Report:
    findings = (*unanswered.findings(silent, seen.cluster), *more, *rules.everything(seen))
    return Report(origin, tuple(node.name for node in seen.nodes), findings, silent)


def details(seats: Mapping[str, Transport], seen: Sight, answers: Answers) -> Details:
    """What the nodes that answered tell beside their facts: one more round trip each, all at once.

    A node whose answer is lost or unreadable tells nothing: it is ``silent``, and the rules answer unknown.
    """
    there = {node.name: node for node in seen.nodes if node.name in answers.facts}
    asked = {name: _question(seen, node) for name, node in there.items()}
    told = gather({name: seats[name] for name in there}, asked)
    files, _ = from_each(lambda name: _model_files(seats[name], seen, name), told.details, seats)
    images, _ = from_each(lambda name: _looked_into(seats[name], seen, told.details[name]), told.details, seats)
    test = _last_test(seen)
    whole = {
        name: replace(
            detail,
            model_files=files.get(name, {}),
            measured_gbit=of_each_rail(test.rails if test else (), name),
            images=images.get(name, detail.images),
        )
        for name, detail in told.details.items()
    }
    return Details(whole, told.silent)


def _question(seen: Sight, node: Node) -> tuple[str, ...]:
    return detail_question.question(
        images=_images(seen),
        paths=_paths(seen, node),
        addresses=[rail.address for other in _others(seen, node) for rail in other.rails],
        pings=_pings(seen, node),
    )


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


def _others(seen: Sight, node: Node) -> list[Node]:
    """The nodes that a cable leads to: in a ring the neighbours only."""
    everyone = list(seen.nodes)
    if seen.cluster.topology != "ring" or len(everyone) < 3:
        return [other for other in everyone if other.name != node.name]
    at = everyone.index(node)
    return [everyone[at - 1], everyone[(at + 1) % len(everyone)]]


def _pings(seen: Sight, node: Node) -> list[Ping]:
    """From every rail to the rail of each other node that its cable leads to, with small and with large frames."""
    if seen.cluster.topology == "loopback":
        return []
    return [
        Ping(there.address, here.netdev, size)
        for other in _others(seen, node)
        for here, there in _cabled(seen, node, other)
        for size in (SMALL_BYTES, LARGE_BYTES)
    ]


def _cabled(seen: Sight, node: Node, other: Node) -> list[tuple[Rail, Rail]]:
    """Rails in the order of the cluster file are parallel, except in a ring: there each link has its own subnet."""
    if seen.cluster.topology != "ring":
        return list(zip(node.rails, other.rails, strict=False))
    pairs = itertools.product(node.rails, other.rails)
    length = prefix_length(seen.cluster)
    return [each for each in pairs if len({_network(rail.address, length) for rail in each}) == 1]


def _network(address: str, length: int) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(f"{address}/{length}", strict=False)


def _model_files(seat: Transport, seen: Sight, node: str) -> Mapping[str, Mapping[str, int]]:
    """Of every model that has a list of files to compare with. Raises a ``NodeError``."""
    wanted = [bits for bits in seen.plan.models if node in bits.target and bits.manifest] if seen.plan else []
    return {bits.model: models.look(seat, bits.target[node]).files for bits in wanted}


def _looked_into(seat: Transport, seen: Sight, detail: NodeDetail) -> tuple[ImageInside, ...]:
    """The node's images, the planned one with what is inside. Raises a ``NodeError``."""
    image, stack = seen.image(detail), seen.resolved.stack if seen.resolved else None
    if image is None or stack is None or stack.image is None:
        return detail.images
    argv = inside.question(image.name, stack.image.python, stack.versions)
    found = inside.parse(seat.run(argv, deadline_s=INSIDE_DEADLINE_S).stdout)
    if found is None:
        return detail.images
    known = replace(image, versions=found.versions, nccl_version=found.nccl_version, nccl_sha256=found.nccl_sha256)
    return tuple(known if each == image else each for each in detail.images)


def of_each_rail(tests: Iterable[RailTest], node: str) -> dict[str, float]:
    """Device -> the best Gbit/s that a test of that one rail moved: a slow peer must not be blamed on this end.

    Never from a figure over all rails: one degraded rail of four is a quarter of a sum that may still look healthy.
    """
    found: dict[str, float] = {}
    for test in tests:
        for name, device in ((test.node, test.device), (test.peer, test.peer_device)):
            if name == node and test.bytes_s is not None:
                found[device] = max(found.get(device, 0.0), round(test.bytes_s * 8 / 1e9, 1))
    return found


def _last_test(seen: Sight) -> fabric.Report | None:
    """The last fabric test of just these nodes."""
    everyone = tuple(each.name for each in seen.nodes)
    return next((each for each in reversed(fabric.reports(seen.cluster.name)) if each.nodes == everyone), None)


def _with(seen: Sight, more: Details, test: fabric.Report | None) -> Sight:
    return replace(
        seen, details=more.details, bus_bytes_s=test.bus_bytes_s if test and test.backend == "nccl" else None
    )
