"""Events as lines for a person."""

from __future__ import annotations

import pytest

from orchestrator.cli.progress import words
from orchestrator.plan.events import Event, EventKind


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("action-failed", "  node-a: FAILED waiting was cancelled"),
        ("action-ended", "  node-a: ended: waiting was cancelled"),  # Ctrl-C is no failure
        ("action-started", ""),
    ],
)
def test_an_interruption_is_not_a_failure(kind: EventKind, line: str) -> None:
    assert words(Event(kind, 1.0, "Wait", "node-a", "waiting was cancelled")) == line
