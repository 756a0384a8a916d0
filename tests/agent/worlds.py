"""Values for the pure tests: a gang of two as rank 0 or rank 1 sees it. Times are monotonic seconds."""

from dataclasses import replace
from typing import Any

from orchestrator.agent.memory import Gang
from orchestrator.agent.views import Own, PeerView, Seen, Verdict
from orchestrator.plan.rankfile import Peer, Policy, RankFile, RankState, RankStatus, Service

NOW = 10_000.0
POLICY = Policy(backoff_s=(2.0, 10.0, 30.0), unreachable_s=60.0, join_deadline_s=600.0, stop_grace_s=10.0)
SERVICE = Service("http://127.0.0.1:8000", "tiny", 512, "", ready_deadline_s=900.0, completion_deadline_s=60.0)


def plan_of(rank: int, **changes: Any) -> RankFile:
    peers = (Peer(0, "a", "10.0.0.1", 7000), Peer(1, "b", "10.0.0.2", 7000))
    plan = RankFile(
        deployment="d",
        generation=1,
        plan_digest="x",
        rank=rank,
        node=peers[rank].node,
        address=peers[rank].address,
        executor="ray",
        peers=peers,
        agent_port=7000,
        check_port=7001,
        state_dir="/state",
        agent_token_file="/token",
        steps=(),
        service=SERVICE,
        policy=POLICY,
    )
    return replace(plan, **changes)


def status_of(rank: int, state: RankState, attempt: int, **changes: Any) -> RankStatus:
    status = RankStatus(
        deployment="d",
        generation=1,
        plan_digest="x",
        rank=rank,
        node="ab"[rank],
        agent_id=f"agent-{rank}",
        state=state,
        attempt=attempt,
        doing="",
        ready=False,
        gates=(),
        versions={},
        processes={},
        history=(),
        last_fatal="",
        written_at=0.0,
    )
    return replace(status, **changes)


def heard(status: RankStatus | None, ago_s: float = 0.5, saw: str = "") -> PeerView:
    return PeerView(status, NOW - ago_s, saw)


UP, NO_WORD = Own("up"), Verdict()


def seen_by(rank: int, other: PeerView, own: Own = UP, verdict: Verdict = NO_WORD) -> Seen:
    return Seen(now=NOW, wall=1_000_000.0, own=own, peers={1 - rank: other}, verdict=verdict)


RUNNING = Gang(state="running", attempt=3, since=NOW - 100, was_ready=True, joined={1: "agent-1"})
UNREADY = replace(RUNNING, was_ready=False)
STARTING = Gang(state="starting", attempt=3, since=NOW - 100)
FOLLOWING = Gang(state="running", attempt=3, since=NOW - 100)
