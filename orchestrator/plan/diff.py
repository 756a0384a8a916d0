"""What differs between two plans, as paths and values: what ``plan`` shows and what ``up`` decides on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.launch import LaunchPlan

# These follow from a new generation; they are never the reason for one.
_NUMBERS = frozenset({"generation", "digest", "plan_digest"})


@dataclass(frozen=True, slots=True)
class Change:
    """``path`` uses slashes; ``before`` or ``after`` is empty when the value is only on one side."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        if not self.before:
            return f"+ {self.path}: {self.after}"
        if not self.after:
            return f"- {self.path}: {self.before}"
        return f"~ {self.path}: {self.before} -> {self.after}"


def changes(old: LaunchPlan | None, new: LaunchPlan) -> tuple[Change, ...]:
    """Every leaf that differs. Without an old plan: one line that says that nothing runs."""
    if old is None:
        return (Change("deployment", "", f"{new.deployment} (nothing runs yet)"),)
    if old.digest == new.digest:
        return ()
    before, after = dict(_leaves("", _level(old))), dict(_leaves("", _level(new)))
    return tuple(
        Change(path, before.get(path, ""), after.get(path, ""))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    )


def _level(plan: LaunchPlan) -> Any:
    """The plan as if it were generation 0: paths and names that carry the number are the same on both sides."""
    text = plan.canonical()
    for mark in (f"/g{plan.generation}/", f"-g{plan.generation}-"):
        text = text.replace(mark, mark.replace(str(plan.generation), "N"))
    return json.loads(text)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _NUMBERS:
                yield from _leaves(f"{path}/{key}" if path else key, item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(f"{path}/{index}", item)
    else:
        yield path, str(value) if value != "" else '""'
