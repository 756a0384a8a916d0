"""``status``: what is recorded, what is observed, and where the two differ. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.doctor.diagnose import explain
from orchestrator.doctor.incident import Incident
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError
from orchestrator.spec.cluster import Cluster
from orchestrator.verbs import names, world
from orchestrator.verbs.diagnose import table
from orchestrator.verbs.errors import UsageError, VerbError
from orchestrator.verbs.running import Running, running
from orchestrator.verbs.silent import unknown, unlisted
from orchestrator.verbs.sitting import sitting


@dataclass(frozen=True, slots=True)
class Status:
    """One deployment as it stands. ``silent`` nodes of its cluster did not answer: what runs there is UNKNOWN.

    ``explained`` is what the first fatal line of a rank that does not run means, by rank, where that is known.
    """

    deployment: str
    running: Running
    silent: Mapping[str, NodeError]
    explained: Mapping[int, Incident] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return self.running.ready

    @property
    def next_step(self) -> str:
        """The command that puts right what is seen here; empty where there is none, or a silent node comes first."""
        plan = self.running.plan
        if self.running.lost:
            return f"sparkctl down {self.deployment}"
        if plan is None or self.silent or self.running.changing or not (self.running.differs or self.running.broken):
            return ""
        name = f" --name {plan.deployment}" if plan.deployment != plan.profile else ""
        return f"sparkctl up {plan.profile} --nodes {len(plan.ranks)} --executor {plan.executor}{name}"


@dataclass(frozen=True, slots=True)
class Overview:
    """What the nodes told. ``silent`` are all that did not answer and may hold more; ``there`` are recorded names."""

    deployments: tuple[Status, ...]
    silent: Mapping[str, NodeError]
    there: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether everything is ready, which nobody can say while a node is silent."""
        return not self.silent and all(each.ready for each in self.deployments)

    @property
    def untold(self) -> Mapping[str, NodeError]:
        """The silent nodes that no deployment above names already."""
        named = {node for each in self.deployments for node in each.silent}
        return {node: error for node, error in self.silent.items() if node not in named}


def status(catalog: Catalog, name: str | None) -> Overview:
    """Every deployment on the clusters, or only ``name``. Raises ``UsageError`` when there is no such deployment.

    A name that is found is found: silent nodes of another cluster say nothing about it. One that is not found while
    a node is silent is a ``Status`` without a plan, for nobody knows.
    """
    names.check(name, "NAME")
    seen = overview(world.clusters(catalog), name)
    explained = tuple(replace(each, explained=_explained(each.running, catalog)) for each in seen.deployments)
    seen = replace(seen, deployments=explained)
    if name is None:
        return seen
    if not seen.deployments:
        raise names.no_such(name, seen.there, catalog.names("profile"))
    found = tuple(each for each in seen.deployments if each.running.plan is not None or each.running.lost)
    return Overview(found or seen.deployments, {}, seen.there)


def _explained(now: Running, catalog: Catalog) -> dict[int, Incident]:
    fatal = {rank: status for rank, status in now.statuses.items() if status.last_fatal and status.state != "running"}
    if not fatal:
        return {}
    try:
        known = table(catalog)
    except UsageError:  # status must work whatever is wrong with a table
        return {}
    found = {rank: explain(each.last_fatal, known, node=each.node, rank=str(rank)) for rank, each in fatal.items()}
    return {rank: incident for rank, incident in found.items() if incident is not None}


def overview(clusters: Iterable[Cluster], name: str | None) -> Overview:
    """Ask every node of ``clusters`` for ``name``, or for every deployment that is recorded there."""
    found: list[Status] = []
    silent: dict[str, NodeError] = {}
    there: list[str] = []
    for cluster in clusters:
        with sitting(world.seats(cluster)) as seats:
            first = world.gather(seats, name or "")
            here = names.recorded(first.facts)
            for deployment in here if name is None else [name]:
                answers = first if deployment == name else world.gather(seats, deployment)
                now = running(answers.facts, deployment, cluster.topology)
                if now.lost and deployment in there:  # a machine of two clusters: its damaged record was told already
                    continue
                if now.plan is not None or now.lost or (answers.silent and name):
                    found.append(Status(deployment, now, {**answers.silent, **unlisted(now, cluster)}))
            silent |= first.silent
            there += here
    return Overview(tuple(found), silent, tuple(there))


def only_one(catalog: Catalog, verb: str) -> str | None:
    """The name of the only deployment on the clusters that were asked for; None when there is none.

    A cluster file that was named is all that was asked for. Raises ``UsageError`` when there are several, and
    ``VerbError`` while a node is silent: it may hold another one, so that nobody knows which is the only one.
    """
    seen = overview(world.clusters(catalog, named_only=True), None)
    found = ", ".join(dict.fromkeys(each.deployment for each in seen.deployments))
    if seen.silent:
        which = f"; elsewhere there is {found}" if found else ""
        raise VerbError(
            *unknown(seen.silent, "a deployment"),
            f"NAME: should be given while nodes are silent, found no name{which}",
            remedy=f"sparkctl {verb} NAME",
        )
    if len(seen.deployments) > 1:
        raise UsageError(f"NAME: should be one of {found}, found no name", remedy=f"sparkctl {verb} NAME")
    return found or None
