"""What a gang remembers: its state, its history, the pause before the next attempt and the breaker. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from orchestrator.agent.views import LIVE
from orchestrator.plan.rankfile import Ended, Policy, RankFile, RankState

HISTORY_MAX = 20
_REFUSED = re.compile(r"step engine ended with exit status 2: (?:\S*/)?vllm(?: \w+)?: error: ")
"""How Python's argument parser ends a program: before it has loaded anything."""


@dataclass(frozen=True, slots=True)
class Gang:
    """What one agent remembers. ``attempt`` is the last one begun in this state directory."""

    state: RankState = "waiting"
    attempt: int = 0
    since: float = 0.0
    was_ready: bool = False
    reason: str = ""
    joined: Mapping[int, str] = field(default_factory=dict)
    history: tuple[Ended, ...] = ()
    failed_total: int = 0
    forgiven_at: float = 0.0


def enter(gang: Gang, state: RankState, now: float, reason: str) -> Gang:
    """The gang in another state, from now on."""
    return replace(gang, state=state, since=now, reason=reason)


def close(gang: Gang, reason: str, wall: float) -> Gang:
    """The gang with its attempt written down as ended."""
    ended = Ended(gang.attempt, reason, gang.was_ready, wall)
    history = (*gang.history, ended)[-HISTORY_MAX:]
    return replace(gang, history=history, failed_total=gang.failed_total + 1, joined={})


def backoff_s(policy: Policy, history: tuple[Ended, ...]) -> float:
    """The pause before the next attempt: longer with every attempt in a row that never became ready."""
    in_a_row = 0
    for ended in reversed(history):
        if ended.was_ready:
            break
        in_a_row += 1
    if not policy.backoff_s:
        return 0.0
    return policy.backoff_s[min(max(in_a_row - 1, 0), len(policy.backoff_s) - 1)]


def futile(policy: Policy, gang: Gang, wall: float) -> int:
    """How many attempts the breaker counts now."""
    opened = max(wall - policy.breaker_window_s, gang.forgiven_at)
    return sum(1 for ended in gang.history if not ended.was_ready and ended.ended_at > opened)


def breaker(policy: Policy, gang: Gang, wall: float) -> str:
    """Why no further attempt is made, or nothing. Attempts that had been ready do not count."""
    last = gang.history[-1] if gang.history else None
    if last and not last.was_ready and last.ended_at > gang.forgiven_at and _REFUSED.search(last.reason):
        return "a command line that was refused once is refused again, so no more attempts are made"
    count = futile(policy, gang, wall)
    if count < policy.breaker_attempts:
        return ""
    return f"{count} attempts in {policy.breaker_window_s:g} s never became ready, so no more are made"


def remember(plan: RankFile, gang: Gang) -> dict[str, Any]:
    """What the state directory keeps of a gang between two agents."""
    return {
        "generation": plan.generation,
        "attempt": gang.attempt,
        "open": gang.state in (*LIVE, "stopping"),
        "was_ready": gang.was_ready,
        "reason": gang.reason if gang.state == "stopping" else "",
        "failed_total": gang.failed_total,
        "forgiven_at": gang.forgiven_at,
        "history": [asdict(ended) for ended in gang.history],
    }


def recall(plan: RankFile, memory: Mapping[str, Any], now: float, wall: float) -> Gang:
    """The gang as a new agent finds it.

    The attempt number never goes back. An attempt that the last agent left open has failed. A breaker that
    was open stays open, so that a start that takes the whole node down cannot go round for ever. A memory that no agent
    wrote is none: a damaged file must not keep a rank from ever starting again.
    """
    try:
        return _recall(plan, memory, now, wall)
    except (TypeError, ValueError, OverflowError):
        return Gang(since=now)


def _recall(plan: RankFile, memory: Mapping[str, Any], now: float, wall: float) -> Gang:
    gang = Gang(attempt=int(memory.get("attempt", 0)), since=now, failed_total=int(memory.get("failed_total", 0)))
    if memory.get("generation") != plan.generation:
        return gang
    history = tuple(Ended(**ended) for ended in memory.get("history", ()))
    gang = replace(gang, history=history, forgiven_at=float(memory.get("forgiven_at", 0.0)))
    if plan.rank != 0:
        return gang
    if memory.get("open"):
        reason = str(memory.get("reason") or "the agent of rank 0 ended and was started anew")
        gang = replace(close(replace(gang, was_ready=bool(memory.get("was_ready"))), reason, wall), was_ready=False)
    broken = breaker(plan.policy, gang, wall)
    return enter(gang, "broken", now, broken) if broken else gang
