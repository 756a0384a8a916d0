"""Events as lines for a person."""

from __future__ import annotations

import os
import re
import subprocess
import sys

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


ON_A_TERMINAL = """
from orchestrator.cli.progress import shown
from orchestrator.plan.events import Event
with shown(quiet=False) as sink:
    sink(Event("note", 1.0, says="waived: found [/usr/bin/python] and [bold]"))
    sink(Event("phase-started", 2.0, "Start [generation] 1"))
    sink(Event("action-progress", 3.0, "Start [generation] 1", "node-a", "loading [/3 of 7]"))
    sink(Event("phase-skipped", 4.0, "Bring the images"))
    sink(Event("action-failed", 5.0, "Start [generation] 1", "node-a", "no [/dev/infiniband]"))
    sink(Event("phase-done", 6.0, "Start [generation] 1"))
"""


def test_on_a_terminal_words_are_shown_as_they_are() -> None:
    """What stands in square brackets is a path or an id, never a style."""
    ours, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", ON_A_TERMINAL], stderr=theirs, env=env, check=False, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0, shown
    for words_of_it in ("found [/usr/bin/python] and [bold]", "no [/dev/infiniband]", "✓ Start [generation] 1 ("):
        assert words_of_it in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
