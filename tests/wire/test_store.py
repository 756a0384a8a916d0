"""The event log on a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.plan.events import Event
from orchestrator.run import store
from orchestrator.run.store import Log, StatePaths
from orchestrator.run.transport import NodeError, Transport

EVENTS = (
    Event("phase-started", 1.5, "Start generation 1", generation=1),
    Event("action-failed", 2.5, "Start generation 1", "spark-1", 'exit code 1: "quotes"\n  $(and) ünï\u2028code', 1),
)


def test_events_come_back_as_they_were(transport: Transport, tmp_path: Path) -> None:
    path = StatePaths(str(tmp_path), "flash").events
    assert store.read(transport, path) == Log(())
    store.append(transport, path, EVENTS[:1])
    store.append(transport, path, EVENTS[1:])
    store.append(transport, path, ())
    assert store.read(transport, path) == Log(EVENTS)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    folders = [folder for folder in Path(path).parents if folder.is_relative_to(tmp_path) and folder != tmp_path]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 4


def test_a_torn_line_costs_only_itself(transport: Transport, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(EVENTS[0].to_json() + "\n" + EVENTS[1].to_json()[:25])
    store.append(transport, str(path), EVENTS[1:])
    assert store.read(transport, str(path)) == Log(EVENTS, unreadable=1)


def test_a_log_that_cannot_be_written_says_so(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NodeError, match=r"the event log .*/file/events.jsonl cannot be used"):
        store.append(transport, str(tmp_path / "file" / "events.jsonl"), EVENTS)
