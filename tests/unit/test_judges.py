"""What `up` says while it waits, and when it stops waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.plan import judges
from orchestrator.plan.rankfile import Ended, Gate, RankStatus

SEEN = RankStatus(
    deployment="tiny",
    generation=1,
    plan_digest="sha256:x",
    rank=0,
    node="a",
    agent_id="1",
    state="running",
    attempt=1,
    doing="4 of 8 gates open",
    ready=False,
    gates=(Gate("ranks", True, "2"), Gate("health", None, "vLLM is loading")),
    versions={},
    processes={},
    history=(),
    last_fatal="",
    written_at=0.0,
)


def status(**changes: Any) -> str:
    return replace(SEEN, **changes).to_json()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "attempt 1, running: 4 of 8 gates open; closed: health (vLLM is loading)"),
        ({"state": "waiting", "attempt": 0, "doing": "waiting for rank 1 (b)"}, "waiting for rank 1 (b)"),
        (
            {"state": "starting", "doing": "ray-nodes: b has not joined"},
            "attempt 1, starting: ray-nodes: b has not joined",
        ),
    ],
)
def test_a_wait_is_one_plain_line(changes: dict[str, Any], says: str) -> None:
    verdict = judges.ready(0, status(**changes))
    assert (verdict.done, verdict.failed, verdict.saw) == (False, False, says)


def test_ready_ends_the_wait_and_broken_ends_it_with_the_cause() -> None:
    assert judges.ready(0, status(ready=True)).done
    ended = Ended(3, "rank 1 (b): CUDA out of memory", was_ready=False, ended_at=0.0)
    broken = judges.ready(0, status(state="broken", history=(ended,), last_fatal="torch.OutOfMemoryError: 2 GiB"))
    assert broken.failed
    assert "CUDA out of memory; first fatal line: torch.OutOfMemoryError: 2 GiB" in broken.saw


@pytest.mark.parametrize(("code", "text"), [(1, ""), (0, "{"), (0, "{}")])
def test_no_status_yet_is_no_verdict(code: int, text: str) -> None:
    verdict = judges.ready(code, text)
    assert (verdict.done, verdict.failed) == (False, False)
