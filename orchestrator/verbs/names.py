"""Names of deployments: which words may be one, and which ones the nodes hold a record of."""

from __future__ import annotations

from orchestrator.run.store import NAME
from orchestrator.spec.problems import shorten
from orchestrator.verbs.errors import UsageError


def check(name: str | None, where: str) -> None:
    """Refuse a name that may not be a deployment's, before it becomes part of a path. ``None`` is no name and passes.

    ``where`` says where it was written, for the message. Raises ``UsageError``.
    """
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(
            f"{where}: should be letters a-z, digits, inner hyphens and dots, at most 42, "
            f"found {shorten(name) or 'nothing'}",
            remedy="give the deployment a name such as my-model-2",
        )
