"""State is the fold of events."""

from __future__ import annotations

import pytest

from orchestrator.plan.events import Event, EventKind
from orchestrator.plan.fold import DeploymentState, Failure, fold
from orchestrator.run.store import StatePaths, parse

Step = tuple[EventKind, int, str]
"""Kind, generation, and a text that serves as phase and as words."""


def happened(*steps: Step) -> list[Event]:
    """One second apart."""
    return [Event(kind, float(at), text, "a", text, number) for at, (kind, number, text) in enumerate(steps, 1)]


START: list[Step] = [("phase-started", 1, "Start"), ("phase-done", 1, "Start"), ("generation-ready", 1, "")]
FAIL: list[Step] = [("phase-started", 2, "Start"), ("action-failed", 2, "Start"), ("action-failed", 2, "also")]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], DeploymentState()),
        ([("phase-started", 1, "Start")], DeploymentState("working", 1, 0, "Start", at=1)),
        (START, DeploymentState("ready", 1, 1, "Start", at=3)),
        ([*START, ("generation-stopped", 1, "")], DeploymentState("stopped", 1, 0, "Start", at=4)),
        (
            [*START, *FAIL, ("undo-started", 2, "Start")],
            DeploymentState("undoing", 2, 1, "Start", Failure("Start", "a", "Start"), at=7),
        ),
        (
            [*START, *FAIL, ("undo-started", 2, "Start"), ("undo-done", 2, "Start")],
            DeploymentState("failed", 2, 1, "Start", Failure("Start", "a", "Start"), at=8),
        ),
        (
            [*FAIL, ("undo-started", 2, "Start"), ("undo-failed", 2, "rm")],
            DeploymentState("failed", 2, 0, "Start", Failure("Start", "a", "Start"), ("a: rm",), at=5),
        ),
        (
            [("phase-started", 1, "Start"), ("undo-started", 1, "Start"), ("undo-done", 1, "Start")],
            DeploymentState("failed", 1, 0, "Start", Failure("Start", "", "interrupted by the operator"), at=3),
        ),
        (
            [("phase-started", 1, "Wait"), ("action-ended", 1, "Wait")],
            DeploymentState("failed", 1, 0, "Wait", Failure("Wait", "", "interrupted by the operator"), at=2),
        ),
        (
            [*FAIL, ("action-ended", 2, "too")],
            DeploymentState("failed", 2, 0, "Start", Failure("Start", "a", "Start"), at=4),
        ),
        ([*FAIL, ("phase-started", 2, "Again")], DeploymentState("working", 2, 0, "Again", at=4)),
        ([*FAIL, ("phase-started", 3, "Next")], DeploymentState("working", 3, 0, "Next", at=4)),
        (
            [*START, ("phase-started", 2, "Start"), ("generation-stopped", 1, ""), ("generation-ready", 2, "")],
            DeploymentState("ready", 2, 2, "Start", at=6),
        ),
        ([*START, ("note", 1, "hello")], DeploymentState("ready", 1, 1, "Start", at=4)),
    ],
)
def test_fold(steps: list[Step], expected: DeploymentState) -> None:
    assert fold(happened(*steps)) == expected


def test_folding_in_two_parts_is_folding_at_once() -> None:
    events = happened(*START, *FAIL, ("undo-started", 2, "Start"), ("undo-done", 2, "Start"))
    for cut in range(len(events)):
        assert fold(events[cut:], fold(events[:cut])) == fold(events)


def test_a_log_with_a_torn_line_gives_the_rest() -> None:
    events = happened(*START)
    lines = [event.to_json() for event in events]
    log = parse("\n".join([lines[0], lines[1][:20], '{"kind": "note", "from": "the future"}', lines[2]]) + "\n")
    assert log.events == (events[0], events[2])
    assert log.unreadable == 2


def test_state_paths() -> None:
    paths = StatePaths("/home/spark/", "flash")
    assert paths.root == "/home/spark/.local/state/sparkctl/flash"
    assert paths.plan(3) == f"{paths.root}/g3/plan.json"
    assert (paths.lock, paths.events, paths.current) == (
        f"{paths.root}.lock",
        f"{paths.root}/events.jsonl",
        f"{paths.root}/current",
    )


@pytest.mark.parametrize(
    ("home", "deployment"), [("home", "x"), ("/h", "../x"), ("/h", ""), ("/h", "A"), ("/h", "x/y")]
)
def test_state_paths_refuse_what_leads_elsewhere(home: str, deployment: str) -> None:
    with pytest.raises(ValueError, match="should be"):
        StatePaths(home, deployment)
