"""What happened, as values: the executor makes them, the store keeps them, people and scripts read them.

``action-ended`` is an action that was told to end: by the operator, or because another node failed.
``at`` is Unix time in seconds on the operator's machine. State is the fold of these, never written by hand.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

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

# The end of the year 9999, the last one that has a date; and more generations than anybody starts.
LATEST = 253402300799.0
MOST = 1_000_000_000


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
        """The inverse of ``to_json``. Raises ``ValueError`` for what no ``sparkctl`` wrote: it goes to people."""
        try:
            event = Event(**json.loads(line))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"not an event of this version: {error}") from None
        words = (event.kind, event.phase, event.node, event.says)
        if not all(isinstance(word, str) for word in words) or event.kind not in get_args(EventKind):
            raise ValueError(f"not an event of this version: {line[:80]}")
        counted = isinstance(event.generation, int) and _within(event.generation, MOST)
        if not counted or not _within(event.at, LATEST):
            raise ValueError(f"an event should have a time and a generation, found {line[:80]}")
        return event


def _within(value: object, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most
