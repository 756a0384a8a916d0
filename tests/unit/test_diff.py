"""What differs between two plans, as a person reads it: one line per rank, and never a flood."""

from __future__ import annotations

from typing import Any

from orchestrator.plan.diff import MOST_LINES, capped, changes, summary
from orchestrator.plan.launch import LaunchPlan
from orchestrator.spec.profile import Executor
from tests.unit.builders import plan, profile, resolved


def made(generation: int = 1, nodes: int | None = None, executor: Executor | None = None, **changed: Any) -> LaunchPlan:
    return plan(resolved(profile("tiny", **changed), nodes, executor), generation)


def test_the_same_plan_in_another_generation_is_no_difference() -> None:
    assert summary(made(), made(7)) == ()


def test_nothing_runs_yet() -> None:
    assert summary(None, made()) == ("+ deployment: tiny (nothing runs yet)",)


def test_a_flag_is_shown_with_both_values_and_the_others_restart_too() -> None:
    found = summary(made(), made(2, engine__context_tokens=256))
    assert len(found) <= 4
    assert any(
        line.startswith("~ rank 0 on node-a: restarts with another command (") and "--max-model-len 512 -> 256" in line
        for line in found
    )
    assert "gateway on node-a" in found[-1]
    assert "restarts as it is" in found[-1]


def test_a_variable_is_named() -> None:
    found = summary(made(), made(2, env={**profile("tiny").env, "NCCL_DEBUG": "INFO"}))
    assert "~ rank 0 on node-a: restarts with another environment (NCCL_DEBUG)" in found
    assert "~ rank 1 on node-b: restarts with another environment (NCCL_DEBUG)" in found


def test_a_rank_that_goes_or_comes_is_one_line() -> None:
    found = summary(made(nodes=2, executor="mp"), made(2, nodes=1, executor="mp"))
    assert "- rank 1 on node-b: removed" in found
    assert not any("state/" in line or "/nodes/" in line for line in found)
    assert "+ rank 1 on node-b: added" in summary(made(nodes=1, executor="mp"), made(2, nodes=2, executor="mp"))


def test_another_executor_is_said_as_it_is_and_stays_short() -> None:
    old, new = made(executor="mp"), made(2, executor="ray")
    assert "~ executor: mp -> ray" in summary(old, new)
    assert len(changes(old, new)) > MOST_LINES > len(summary(old, new))
    assert max(map(len, summary(old, new))) < 800


def test_what_is_cut_off_is_counted() -> None:
    lines = [str(number) for number in range(23)]
    assert capped(lines) == (*lines[:20], "and 3 more")
    assert capped(lines[:20]) == tuple(lines[:20])
