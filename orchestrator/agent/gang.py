"""What a gang does next: pure decisions over what one agent has seen.

Rank 0 leads: it owns the attempt number. The others follow it. A gang lives and dies together, so whatever
ends an attempt on one rank ends it on all: a follower reports ``failed``, the leader leaves
``starting``/``running``, and a follower that sees the leader out of its attempt kills what it has.

A reason is said once, by the rank that has it and by rank 0, which writes it down. Whoever waits for another rank says
for which one and what that is at, never why: its own words may be that it waits for us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.agent.memory import Gang, backoff_s, breaker, close, enter, futile
from orchestrator.agent.views import AT_REST, FRESH_S, LIVE, Command, Kill, PeerView, Seen, Start, in_words, who
from orchestrator.plan.rankfile import Peer, Policy, RankFile, RankStatus

CONFIRM_S = 30.0
"""How much longer than the stop grace the leader waits for a peer to have nothing left, before it goes on."""


def decide(plan: RankFile, gang: Gang, seen: Seen) -> tuple[Gang, Command]:
    """The next state and at most one command; asked again at every tick, so it stands on ``seen`` alone."""
    if gang.state in LIVE:
        return (_lead_live if plan.rank == 0 else _follow_live)(plan, gang, seen)
    if seen.own.phase != "idle":
        return gang, (None if seen.own.phase == "killing" else Kill())
    return (_lead_idle if plan.rank == 0 else _follow_idle)(plan, gang, seen)


# ---- rank 0


def _lead_live(plan: RankFile, gang: Gang, seen: Seen) -> tuple[Gang, Command]:
    joined = {
        peer.rank: view.status.agent_id
        for peer, view in _views(plan, seen)
        if view.status and view.status.attempt == gang.attempt and view.status.state in LIVE
    }
    reason = _why_ended(plan, gang, seen)
    if reason:
        return enter(gang, "stopping", seen.now, reason), Kill()
    gang = replace(gang, joined={**joined, **gang.joined}, was_ready=gang.was_ready or seen.verdict.ready, reason="")
    if gang.state == "starting" and seen.own.phase == "up":
        gang = enter(gang, "running", seen.now, "")
    return gang, None


def _why_ended(plan: RankFile, gang: Gang, seen: Seen) -> str:
    """Why the attempt is over for all ranks, or nothing."""
    if seen.own.phase == "failed":
        return f"rank 0 ({plan.node}): {seen.own.reason}"
    if seen.own.phase == "idle":
        return f"rank 0 ({plan.node}): has no processes of attempt {gang.attempt}"
    for peer, view in _views(plan, seen):
        reason = _peer_lost(plan.policy, gang, view, seen.now)
        if reason:
            return f"{who(peer)}: {reason}"
    if seen.verdict.hopeless:
        return seen.verdict.hopeless
    deadline_s = plan.service.ready_deadline_s
    if gang.state == "running" and not gang.was_ready and seen.now - gang.since > deadline_s:
        return f"not ready within {deadline_s:g} s: {seen.verdict.closed or 'no gate was looked at'}"
    return ""


def _peer_lost(policy: Policy, gang: Gang, view: PeerView, now: float) -> str:
    silent_s = now - view.heard_at
    if silent_s > policy.unreachable_s:
        return f"unreachable for {silent_s:.0f} s: {view.saw}"
    rank = view.status.rank if view.status else -1
    agent_id = gang.joined.get(rank)
    if view.status is None or agent_id is None:
        return _not_joined(policy, gang, view, now)
    if view.status.agent_id != agent_id:
        return "its agent was started anew, so it lost its processes"
    if view.status.state in LIVE and view.status.attempt == gang.attempt:
        return ""
    return _why(view.status)


def _why(status: RankStatus) -> str:
    """Why a rank has left the attempt, in its own words."""
    if status.state == "failed" and status.doing:
        return status.doing
    return in_words(status.state, status.attempt) + (f": {status.doing}" if status.doing else "")


def _not_joined(policy: Policy, gang: Gang, view: PeerView, now: float) -> str:
    status = view.status
    if status and status.state == "failed" and status.attempt >= gang.attempt:
        return _why(status)
    begun_s = now - gang.since
    if begun_s > policy.join_deadline_s:
        return f"did not join within {policy.join_deadline_s:g} s; {f'it {_why(status)}' if status else view.saw}"
    return ""


def _lead_idle(plan: RankFile, gang: Gang, seen: Seen) -> tuple[Gang, Command]:
    if gang.state == "stopping":
        return _close(plan.policy, gang, seen), None
    if gang.state == "backoff" and seen.now - gang.since >= backoff_s(plan.policy, gang.history):
        gang = enter(gang, "waiting", seen.now, gang.reason)
    if gang.state != "waiting":
        return gang, None
    hold = _hold(plan, gang, seen)
    if hold:
        return replace(gang, reason=hold), None
    theirs = [view.status.attempt for _, view in _views(plan, seen) if view.status]
    attempt = max([gang.attempt, *theirs]) + 1
    begun = replace(enter(gang, "starting", seen.now, ""), attempt=attempt, was_ready=False, joined={})
    return begun, Start(attempt)


def _hold(plan: RankFile, gang: Gang, seen: Seen) -> str:
    """Why the next attempt may not begin yet: a peer cannot be asked, or it still runs the old attempt.

    An absent peer is waited for without end and without counting as a failure: nothing runs, and a gang needs
    all its ranks. One that answers but cannot get rid of its processes is waited for only so long.
    """
    for peer, view in _views(plan, seen):
        if view.status is None or seen.now - view.heard_at > FRESH_S or view.heard_at < gang.since:
            return f"waiting for {who(peer)}: {view.saw or 'its next answer'}"
        at_rest = view.status.state in AT_REST and not view.status.processes
        if not at_rest and seen.now - gang.since <= plan.policy.stop_grace_s + CONFIRM_S:
            return f"waiting for {who(peer)} to end what it runs; it {in_words(view.status.state, view.status.attempt)}"
    return ""


def _close(policy: Policy, gang: Gang, seen: Seen) -> Gang:
    """Write the attempt down, then back off; or stop for good when too many never became ready."""
    reason, was_ready = gang.reason, gang.was_ready
    gang = close(gang, reason, seen.wall)
    broken = breaker(policy, gang, seen.wall)
    if broken and not was_ready:
        return enter(gang, "broken", seen.now, f"{broken}; the last: {reason}")
    return enter(gang, "backoff", seen.now, reason)


def outlook(plan: RankFile, gang: Gang, now: float, wall: float) -> str:
    """Why the gang is where it is, and in a pause when it goes on and how often it still would."""
    if gang.state != "backoff":
        return gang.reason
    left_s = max(0.0, backoff_s(plan.policy, gang.history) - (now - gang.since))
    attempt, tried = gang.attempt + 1, futile(plan.policy, gang, wall) + 1
    number = f"attempt {attempt}" if attempt == tried else f"attempt {attempt}, try {tried}"
    return f"{gang.reason}; starts again by itself in {left_s:.0f} s ({number} of {plan.policy.breaker_attempts})"


# ---- ranks above 0


def _follow_live(plan: RankFile, gang: Gang, seen: Seen) -> tuple[Gang, Command]:
    if seen.own.phase in ("failed", "idle"):
        reason = seen.own.reason or f"has no processes of attempt {gang.attempt}"
        return enter(gang, "failed", seen.now, reason), Kill()
    leader = seen.peers.get(0, PeerView())
    silent_s = seen.now - leader.heard_at
    reason = ""
    if silent_s > plan.policy.unreachable_s:
        reason = f"{_leader(plan)} unreachable for {silent_s:.0f} s: {leader.saw}"
    elif not _same_attempt(leader, gang.attempt):
        at = in_words(leader.status.state, leader.status.attempt) if leader.status else f"is unknown: {leader.saw}"
        reason = f"{_leader(plan)} {at}"
    if reason:
        return enter(gang, "stopping", seen.now, reason), Kill()
    if gang.state == "starting" and seen.own.phase == "up":
        return enter(gang, "running", seen.now, ""), None
    return gang, None


def _follow_idle(plan: RankFile, gang: Gang, seen: Seen) -> tuple[Gang, Command]:
    leader = seen.peers.get(0, PeerView())
    fresh = seen.now - leader.heard_at <= FRESH_S
    if gang.state == "failed" and (not fresh or _same_attempt(leader, gang.attempt)):
        return gang, None
    if gang.state != "waiting":
        gang = enter(gang, "waiting", seen.now, "")
    status = leader.status
    if status is None or not fresh:
        return replace(gang, reason=f"waiting for {_leader(plan)}: {leader.saw or 'its next answer'}"), None
    if status.state not in LIVE:
        at = in_words(status.state, status.attempt)
        return replace(gang, reason=f"waiting for {_leader(plan)}, which {at}"), None
    if status.attempt > gang.attempt:
        begun = replace(enter(gang, "starting", seen.now, ""), attempt=status.attempt)
        return begun, Start(status.attempt)
    return enter(gang, "failed", seen.now, f"has no processes of attempt {gang.attempt} any more"), None


def _same_attempt(leader: PeerView, attempt: int) -> bool:
    return leader.status is not None and leader.status.state in LIVE and leader.status.attempt == attempt


def _leader(plan: RankFile) -> str:
    return next((who(peer) for peer in plan.peers if peer.rank == 0), "rank 0")


# ---- shared by all ranks


def _views(plan: RankFile, seen: Seen) -> tuple[tuple[Peer, PeerView], ...]:
    return tuple((peer, seen.peers.get(peer.rank, PeerView())) for peer in plan.peers if peer.rank != plan.rank)


def peers_missing(plan: RankFile, attempt: int, peers: Mapping[int, PeerView], now: float) -> str:
    """What a ``peers`` step still waits for: every other rank ``running`` in this attempt."""
    missing: list[str] = []
    for peer in plan.peers:
        view = peers.get(peer.rank, PeerView())
        if peer.rank == plan.rank:
            continue
        if view.status is None or now - view.heard_at > FRESH_S:
            missing.append(f"{who(peer)}: {view.saw or 'no answer'}")
        elif view.status.state != "running" or view.status.attempt != attempt:
            missing.append(f"{who(peer)}, which {in_words(view.status.state, view.status.attempt)}")
    return f"waiting for {'; '.join(missing)}" if missing else ""
