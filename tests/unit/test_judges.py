"""What `up` says while it waits, and when it stops waiting."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan import judges, phases
from orchestrator.plan.actions import Await
from orchestrator.plan.rankfile import Ended, Gate, RankStatus
from tests.unit.builders import plan, profile, resolved

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


def status(at: int = 2, **changes: Any) -> str:
    """What the node prints: its clock, then the file, which was written at 0."""
    return f"{at}\n{replace(SEEN, **changes).to_json()}"


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


@pytest.mark.parametrize(("code", "text"), [(1, ""), (1, "7\n"), (0, "7\n{"), (0, "7\n{}"), (0, "{}")])
def test_no_status_yet_is_no_verdict(code: int, text: str) -> None:
    verdict = judges.ready(code, text)
    assert (verdict.done, verdict.failed) == (False, False)


def test_an_old_status_is_not_believed_and_a_very_old_one_ends_the_wait() -> None:
    assert judges.ready(0, status(at=15, ready=True)).done
    old = judges.ready(0, status(at=16, ready=True))
    assert (old.done, old.failed) == (False, False)
    assert old.saw == "rank 0's agent has not written for 16 s: it does not run or hangs"
    dead = judges.ready(0, status(at=91, ready=True))
    assert (dead.done, dead.failed) == (False, True)
    assert dead.saw.startswith("rank 0's agent has not written for 91 s: it does not run or hangs; look whether")
    assert "sparkctl up" in dead.saw


def test_the_wait_asks_for_the_clock_and_the_status_in_one_look(tmp_path: Path) -> None:
    (awaited, *_) = phases.wait(plan(resolved(profile("tiny"))))[0].actions
    assert isinstance(awaited, Await)
    (tmp_path / "status.json").write_text(replace(SEEN, ready=True, written_at=time.time()).to_json())
    argv = (*awaited.argv[:-1], str(tmp_path / "status.json"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert judges.ready(done.returncode, done.stdout).done
    gone = subprocess.run((*awaited.argv[:-1], str(tmp_path / "none")), capture_output=True, text=True, check=False)
    assert "not written its status yet" in judges.ready(gone.returncode, gone.stdout).saw
