"""Stored plans back into values: the inverse of ``LaunchPlan.canonical``."""

from __future__ import annotations

from functools import cache

from pydantic import TypeAdapter, ValidationError

from orchestrator.plan.launch import LaunchPlan


@cache
def _adapter() -> TypeAdapter[LaunchPlan]:
    return TypeAdapter(LaunchPlan)


def plan_from_json(text: str) -> LaunchPlan:
    """Raises ``ValueError`` that says what is wrong with the text."""
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise ValueError(f"not a launch plan of this version: {where}: {first['msg']}") from None
