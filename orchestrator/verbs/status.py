"""``status``: what is recorded, what is observed, and where the two differ. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.facts.node import NodeFacts
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError
from orchestrator.verbs import names, world
from orchestrator.verbs.errors import UsageError
from orchestrator.verbs.running import Running, running
from orchestrator.verbs.sitting import sitting


@dataclass(frozen=True, slots=True)
class Status:
    """One deployment as it stands. ``silent`` nodes did not answer: what runs there is UNKNOWN."""

    deployment: str
    running: Running
    silent: Mapping[str, NodeError]

    @property
    def ready(self) -> bool:
        return self.running.ready


def status(catalog: Catalog, name: str | None) -> tuple[Status, ...]:
    """Every deployment on the cluster, or only ``name``. Raises ``UsageError`` when there is no such deployment."""
    names.check(name, "NAME")
    found = []
    for cluster in world.clusters(catalog):
        with sitting(world.seats(cluster)) as seats:
            first = world.gather(seats, name or "")
            for deployment in [name] if name else deployments(first.facts):
                answers = first if deployment == name else world.gather(seats, deployment)
                now = running(answers.facts, deployment)
                if now.plan is not None or (answers.silent and name):
                    found.append(Status(deployment, now, answers.silent))
    if name and not found:
        raise UsageError(f"no deployment {name} is recorded on any node", remedy=f"sparkctl up {name}")
    return tuple(found)


def deployments(facts: Mapping[str, NodeFacts]) -> list[str]:
    """Names of deployments that have a generation directory on some node."""
    return sorted({path.split("/")[-2] for node in facts.values() for path in node.generations if path.count("/") > 1})


def only_one(catalog: Catalog) -> str | None:
    """The name of the only deployment; None when there is none. Raises ``UsageError`` when there are several."""
    names = [each.deployment for each in status(catalog, None)]
    if len(names) > 1:
        raise UsageError(f"should name one of {', '.join(names)}, found no name")
    return names[0] if names else None
