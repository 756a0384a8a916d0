"""``profiles``: what can be served, with its bits and the node counts that its model can be divided by. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.resolve import legal_counts
from orchestrator.run.catalog import Catalog
from orchestrator.spec.model import Model
from orchestrator.spec.pins import Stack
from orchestrator.spec.problems import SpecError
from orchestrator.spec.profile import Executor, Profile
from orchestrator.verbs.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shown:
    """A profile with what it names. ``legal`` are the node counts that it can be planned for."""

    profile: Profile
    model: Model
    stacks: Mapping[Executor, Stack]
    legal: tuple[int, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """The typed engine settings that the profile gives, in the file's own words."""
        return self.profile.engine.model_dump(mode="json", exclude_unset=True)


def one(catalog: Catalog, name: str) -> Shown:
    """Raises ``UsageError`` with every problem of its files."""
    try:
        profile = catalog.profile(name)
        model = catalog.model(profile.model)
        stacks = {executor: catalog.stack(stack) for executor, stack in profile.stack.items()}
        return Shown(profile, model, stacks, legal_counts(profile, model))
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None


def every(catalog: Catalog) -> tuple[Shown, ...]:
    """All profiles, by name. Raises ``UsageError`` for the first whose files have problems."""
    return tuple(one(catalog, name) for name in catalog.names("profile"))
