"""Stored plans and statuses back into values, with every type looked at: what lies on a disk may be anything."""

from __future__ import annotations

import json
from functools import cache

from pydantic import TypeAdapter, ValidationError

from orchestrator.plan.events import LATEST
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.rankfile import RankStatus


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


@cache
def _statuses() -> TypeAdapter[RankStatus]:
    return TypeAdapter(RankStatus)


def status_from_json(line: str) -> RankStatus:
    """Raises ``ValueError`` for what no agent wrote, also where ``RankStatus.from_json`` would not look."""
    try:
        value = json.loads(line)
        status = _statuses().validate_python({**value, "ready": bool(value.get("ready"))})
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a rank status: {error}") from None
    if not 0 <= status.written_at <= LATEST:
        raise ValueError(f"a rank status should say when it was written, found {status.written_at!r:.40}")
    return status
