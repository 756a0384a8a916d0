"""Names of deployments: which words may be one, and which ones the nodes hold a record of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.facts.node import NodeFacts
from orchestrator.run.store import NAME
from orchestrator.spec.problems import shorten
from orchestrator.verbs.errors import UsageError


def check(name: str | None, where: str) -> None:
    """Refuse a name that may not be a deployment's, before it becomes part of a path. ``None`` is no name and passes.

    ``where`` says where it was written, for the message. Raises ``UsageError``.
    """
    if name is not None and name.endswith(".lock"):
        raise UsageError(
            f"{where}: should not end in .lock, as the lock of another deployment does, found {shorten(name)}",
            remedy="give the deployment a name such as my-model-2",
        )
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(
            f"{where}: should be letters a-z, digits, inner hyphens and dots, at most 42, "
            f"found {shorten(name) or 'nothing'}",
            remedy="give the deployment a name such as my-model-2",
        )


def recorded(facts: Mapping[str, NodeFacts]) -> list[str]:
    """Names of deployments that have a file of a generation, or a unit, on some node."""
    found = {path.split("/")[-2] for node in facts.values() for path in node.generations if path.count("/") > 1}
    found |= {unit.deployment for node in facts.values() for unit in node.units}
    return sorted(name for name in found if NAME.fullmatch(name))


def no_such(name: str, there: Iterable[str], profiles: Iterable[str]) -> UsageError:
    """That ``name`` is recorded nowhere, with what is ``there`` instead; ``up`` is advised only where it could work."""
    others = ", ".join(there)
    advice = [f"start it: sparkctl up {name}"] if name in profiles else []
    advice += [f"there is {others}"] if others else []
    remedy = "; ".join(advice) or "nothing is recorded at all; what can be started: sparkctl profiles list"
    return UsageError(f"no deployment {name} is recorded on any node", remedy=remedy)
