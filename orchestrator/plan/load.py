"""Stored plans back into values: the inverse of ``LaunchPlan.canonical``."""

from __future__ import annotations

from functools import cache

from pydantic import TypeAdapter, ValidationError

from orchestrator.plan.launch import LaunchPlan


@cache
def _adapter() -> TypeAdapter[LaunchPlan]:
    return TypeAdapter(LaunchPlan)


def plan_from_json(text: str) -> LaunchPlan:
    """Raises ``ValueError`` that says what is wrong with the text: "it is not …"."""
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        what = first["msg"].replace("Invalid JSON: ", "no JSON: ")
        raise ValueError(f"it is not a launch plan of this version: {f'{where}: ' if where else ''}{what}") from None
