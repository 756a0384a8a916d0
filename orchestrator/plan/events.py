"""What happened, as values: the executor makes them, the store keeps them, people and scripts read them.

``action-ended`` is an action that was told to end: by the operator, or because another node failed.
``at`` is Unix time in seconds on the operator's machine. State is the fold of these, never written by hand.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

EventKind = Literal[
    "phase-started",
    "action-started",
    "action-progress",
    "action-done",
    "action-failed",
    "action-ended",
    "phase-done",
    "phase-skipped",
    "undo-started",
    "undo-done",
    "undo-failed",
    "generation-ready",
    "generation-stopped",
    "note",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. ``node`` is empty for what concerns the whole deployment."""

    kind: EventKind
    at: float
    phase: str = ""
    node: str = ""
    says: str = ""
    generation: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @staticmethod
    def from_json(line: str) -> Event:
        return Event(**json.loads(line))
