"""What a gang does next, fault by fault. No processes and no clock: every world is a value."""

from dataclasses import replace

import pytest

from orchestrator.agent.gang import decide, outlook, peers_missing
from orchestrator.agent.memory import Gang, backoff_s, recall, remember
from orchestrator.agent.views import Command, Kill, Own, PeerView, Seen, Start, Verdict
from orchestrator.plan.rankfile import Ended, RankStatus
from tests.agent.worlds import FOLLOWING, NOW, POLICY, RUNNING, STARTING, UNREADY, heard, plan_of, seen_by, status_of

PEER = status_of(1, "running", 3)
LEADER = status_of(0, "running", 3)
IDLE = Own("idle")
WAITING = Gang(state="waiting", attempt=3, since=NOW - 5)


def ended(attempt: int, was_ready: bool = False, ago_s: float = 100.0) -> Ended:
    return Ended(attempt, "because", was_ready, 1_000_000.0 - ago_s)


LEADER_FAULTS = {
    "own daemon died": (
        RUNNING,
        seen_by(0, heard(PEER), Own("failed", "step vllm ended")),
        "rank 0 (a): step vllm ended",
    ),
    "own step timed out": (
        STARTING,
        seen_by(0, heard(PEER), Own("failed", "step nodes not done within 300 s")),
        "rank 0 (a): step nodes not done within 300 s",
    ),
    "worker process or raylet died on a peer": (
        RUNNING,
        seen_by(0, heard(status_of(1, "failed", 3, doing="step ray was killed by SIGKILL"))),
        "rank 1 (b): step ray was killed by SIGKILL",
    ),
    "a peer failed before it was seen to join": (
        STARTING,
        seen_by(0, heard(status_of(1, "failed", 3, doing="has no processes")), Own("steps")),
        "rank 1 (b): has no processes",
    ),
    "a peer's agent was started anew": (
        RUNNING,
        seen_by(0, heard(status_of(1, "waiting", 3, agent_id="another"))),
        "rank 1 (b): its agent was started anew, so it lost its processes",
    ),
    "a peer is being stopped": (
        RUNNING,
        seen_by(0, heard(status_of(1, "stopping", 3, doing="asked to stop"))),
        "rank 1 (b): is ending attempt 3: asked to stop",
    ),
    "a long outage": (
        RUNNING,
        seen_by(0, heard(PEER, ago_s=61, saw="timed out")),
        "rank 1 (b): unreachable for 61 s: timed out",
    ),
    "a peer did not join": (
        replace(STARTING, since=NOW - 601),
        seen_by(0, heard(status_of(1, "waiting", 2, doing="waiting for rank 0")), Own("steps")),
        "rank 1 (b): did not join within 600 s; it waits to begin: waiting for rank 0",
    ),
    "hung": (
        RUNNING,
        seen_by(0, heard(PEER), verdict=Verdict(hopeless="hung: 3 canaries missed")),
        "hung: 3 canaries missed",
    ),
    "never ready": (
        replace(UNREADY, since=NOW - 901),
        seen_by(0, heard(PEER), verdict=Verdict(closed="health: 503")),
        "not ready within 900 s: health: 503",
    ),
}


@pytest.mark.parametrize(("gang", "seen", "reason"), LEADER_FAULTS.values(), ids=LEADER_FAULTS)
def test_rank_0_ends_the_attempt_for_all(gang: Gang, seen: Seen, reason: str) -> None:
    after, command = decide(plan_of(0), gang, seen)
    assert (after.state, after.reason, command) == ("stopping", reason, Kill())


LEADER_CALM = {
    "a flap of 24 s": seen_by(0, heard(PEER, ago_s=24, saw="timed out")),
    "an outage just within the limit": seen_by(0, heard(PEER, ago_s=59)),
    "a busy engine: not ready, but not hopeless": seen_by(0, heard(PEER), verdict=Verdict(closed="completion: late")),
    "ready": seen_by(0, heard(PEER), verdict=Verdict(ready=True)),
}


@pytest.mark.parametrize("seen", LEADER_CALM.values(), ids=LEADER_CALM)
def test_rank_0_restarts_nothing(seen: Seen) -> None:
    assert decide(plan_of(0), RUNNING, seen) == (RUNNING, None)


def test_rank_0_notes_who_joined_and_that_it_was_ready() -> None:
    after, command = decide(plan_of(0), STARTING, seen_by(0, heard(PEER), verdict=Verdict(ready=True)))
    assert (after.state, after.was_ready, after.joined, command) == ("running", True, {1: "agent-1"}, None)


HOLDS = {
    "never heard": (heard(None, saw="connection refused"), "waiting for rank 1 (b): connection refused"),
    "stale": (heard(PEER, ago_s=7, saw="timed out"), "waiting for rank 1 (b): timed out"),
    "not heard since the last attempt ended": (heard(status_of(1, "waiting", 3), ago_s=5.5), "its next answer"),
    "still running the old attempt": (heard(PEER), "to end what it runs; it runs attempt 3"),
    "still killing": (heard(status_of(1, "failed", 3, processes={"raylet-5": 5})), "runs; it failed in attempt 3"),
}


@pytest.mark.parametrize(("peer", "reason"), HOLDS.values(), ids=HOLDS)
def test_rank_0_waits_until_nothing_of_the_old_attempt_runs(peer: PeerView, reason: str) -> None:
    after, command = decide(plan_of(0), WAITING, seen_by(0, peer, IDLE))
    assert (after.state, command) == ("waiting", None)
    assert reason in after.reason


STARTS = {
    "a peer at rest": (WAITING, status_of(1, "waiting", 3), 4),
    "a peer that failed and has nothing left": (WAITING, status_of(1, "failed", 3), 4),
    "a peer that remembers a later attempt": (WAITING, status_of(1, "waiting", 8), 9),
    "a peer that cannot get rid of a process, after a while": (replace(WAITING, since=NOW - 41), PEER, 4),
}


@pytest.mark.parametrize(("gang", "peer", "attempt"), STARTS.values(), ids=STARTS)
def test_rank_0_starts_the_next_attempt(gang: Gang, peer: RankStatus, attempt: int) -> None:
    after, command = decide(plan_of(0), gang, seen_by(0, heard(peer), IDLE))
    assert (after.state, after.attempt, after.joined, command) == ("starting", attempt, {}, Start(attempt))


def test_an_absent_peer_is_waited_for_without_end() -> None:
    forever = replace(WAITING, since=0.0)
    after, command = decide(plan_of(0), forever, seen_by(0, heard(PEER, ago_s=9000, saw="no route"), IDLE))
    assert (after.state, command) == ("waiting", None)


def test_nothing_begins_before_the_old_attempt_is_dead_here() -> None:
    stopping = replace(RUNNING, state="stopping")
    assert decide(plan_of(0), stopping, seen_by(0, heard(PEER), Own("killing"))) == (stopping, None)
    assert decide(plan_of(0), stopping, seen_by(0, heard(PEER), Own("failed"))) == (stopping, Kill())


ENDINGS = {
    "had been ready: never the breaker": (True, (ended(1), ended(2)), "backoff"),
    "two in a row": (False, (ended(2),), "backoff"),
    "three in the window": (False, (ended(1), ended(2)), "broken"),
    "ready ones in between do not count": (False, (ended(1), ended(2, was_ready=True)), "backoff"),
    "older than the window": (False, (ended(1, ago_s=30_000), ended(2)), "backoff"),
}


@pytest.mark.parametrize(("was_ready", "history", "state"), ENDINGS.values(), ids=ENDINGS)
def test_the_breaker(was_ready: bool, history: tuple[Ended, ...], state: str) -> None:
    gang = replace(RUNNING, state="stopping", reason="why", was_ready=was_ready, history=history)
    after, command = decide(plan_of(0), gang, seen_by(0, heard(PEER), IDLE))
    assert (after.state, command) == (state, None)
    assert after.history == (*history, Ended(3, "why", was_ready, 1_000_000.0))


REFUSED = {
    "rank 0 (a): step engine ended with exit status 2: vllm: error: unrecognized arguments: --no-such": "broken",
    "rank 1 (b): step engine ended with exit status 2: vllm serve: error: argument --port: invalid": "broken",
    "rank 0 (a): step engine ended with exit status 2: OSError: error: no such model": "backoff",
    "rank 0 (a): step engine ended with exit status 1: vllm: error: unrecognized arguments": "backoff",
    "rank 0 (a): step ray-nodes ended with exit status 2: agent: error: no": "backoff",
}


@pytest.mark.parametrize(("reason", "state"), REFUSED.items())
def test_a_command_line_that_is_refused_is_not_tried_again(reason: str, state: str) -> None:
    """A working generation waits for this one to give up."""
    gang = replace(RUNNING, state="stopping", reason=reason, was_ready=False, history=())
    after, _ = decide(plan_of(0), gang, seen_by(0, heard(PEER), IDLE))
    assert after.state == state


OUTLOOKS = {
    "the first": (Gang("backoff", 1, NOW - 1, reason="why", history=(ended(1),)), "in 1 s (attempt 2 of 3)"),
    "after one that was ready": (
        Gang("backoff", 7, NOW, reason="why", history=(ended(7, was_ready=True),)),
        "in 2 s (attempt 8, try 1 of 3)",
    ),
    "of a later generation": (
        Gang("backoff", 9, NOW - 60, reason="why", history=(ended(8), ended(9))),
        "in 0 s (attempt 10, try 3 of 3)",
    ),
}


@pytest.mark.parametrize(("gang", "goes_on"), OUTLOOKS.values(), ids=OUTLOOKS)
def test_a_pause_says_the_cause_once_and_when_it_ends(gang: Gang, goes_on: str) -> None:
    assert outlook(plan_of(0), gang, NOW, 1_000_000.0) == f"why; starts again by itself {goes_on}"
    assert outlook(plan_of(0), replace(gang, state="waiting"), NOW, 1_000_000.0) == "why"


def test_who_waits_for_another_rank_does_not_repeat_its_words() -> None:
    cause = "rank 1 (b): step ray lost its raylet (pid 7)"
    leader = status_of(0, "backoff", 1, doing=f"{cause}; starts again by itself in 2 s (attempt 2 of 3)")
    follower, _ = decide(plan_of(1), replace(WAITING, attempt=1), seen_by(1, heard(leader), IDLE))
    assert follower.reason == "waiting for rank 0 (a), which pauses after attempt 1"
    missing = peers_missing(plan_of(0), 2, {1: heard(status_of(1, "waiting", 1, doing=follower.reason))}, NOW)
    assert missing == "waiting for rank 1 (b), which waits to begin"
    failed = heard(status_of(1, "failed", 1, doing="step ray lost its raylet (pid 7)"))
    live = replace(RUNNING, attempt=1)
    stopping, _ = decide(plan_of(0), live, seen_by(0, failed))
    backoff, _ = decide(plan_of(0), stopping, seen_by(0, failed, IDLE))
    assert (stopping.reason, backoff.reason) == (cause, cause)


def test_broken_stays_broken() -> None:
    broken = replace(WAITING, state="broken")
    assert decide(plan_of(0), broken, seen_by(0, heard(status_of(1, "waiting", 3)), IDLE)) == (broken, None)


@pytest.mark.parametrize(
    ("history", "pause_s"),
    [
        ((ended(1, True),), 2.0),
        ((ended(1),), 2.0),
        ((ended(1), ended(2)), 10.0),
        ((ended(1), ended(2), ended(3), ended(4)), 30.0),
        ((ended(1), ended(2), ended(3, True)), 2.0),
    ],
)
def test_backoff_grows_with_every_futile_attempt(history: tuple[Ended, ...], pause_s: float) -> None:
    assert backoff_s(POLICY, history) == pause_s
    for waited_s, state in ((pause_s - 0.1, "backoff"), (pause_s, "waiting")):
        gang = Gang(state="backoff", attempt=3, since=NOW - waited_s, history=history)
        assert decide(plan_of(0), gang, seen_by(0, heard(None), IDLE))[0].state == state


FOLLOWER_STOPS = {
    "own daemon died": (heard(LEADER), Own("failed", "step ray ended"), "failed", "step ray ended"),
    "rank 0 ended the attempt": (
        heard(status_of(0, "stopping", 3, doing="hung")),
        Own("up"),
        "stopping",
        "rank 0 (a) is ending attempt 3",
    ),
    "rank 0 is in the next attempt": (
        heard(status_of(0, "starting", 4)),
        Own("up"),
        "stopping",
        "rank 0 (a) is starting attempt 4",
    ),
    "rank 0's agent was started anew": (
        heard(status_of(0, "waiting", 3)),
        Own("up"),
        "stopping",
        "rank 0 (a) waits to begin",
    ),
    "rank 0 silent for long": (
        heard(LEADER, 61, "timed out"),
        Own("up"),
        "stopping",
        "unreachable for 61 s: timed out",
    ),
}


@pytest.mark.parametrize(("leader", "own", "state", "reason"), FOLLOWER_STOPS.values(), ids=FOLLOWER_STOPS)
def test_a_follower_kills_what_it_has(leader: PeerView, own: Own, state: str, reason: str) -> None:
    after, command = decide(plan_of(1), FOLLOWING, seen_by(1, leader, own))
    assert (after.state, command) == (state, Kill())
    assert reason in after.reason


@pytest.mark.parametrize("ago_s", [0.5, 24, 59])
def test_a_follower_keeps_running_through_a_flap(ago_s: float) -> None:
    assert decide(plan_of(1), FOLLOWING, seen_by(1, heard(LEADER, ago_s))) == (FOLLOWING, None)


FOLLOWER_IDLE = {
    "joins a new attempt": (WAITING, heard(status_of(0, "starting", 4)), "starting", Start(4)),
    "cannot join one it has lost": (WAITING, heard(LEADER), "failed", None),
    "cannot join one below its own": (replace(WAITING, attempt=7), heard(LEADER), "failed", None),
    "does not join on an old answer": (WAITING, heard(status_of(0, "starting", 4), 7), "waiting", None),
    "waits for a leader in backoff": (WAITING, heard(status_of(0, "backoff", 3)), "waiting", None),
    "stays failed while rank 0 has not seen it": (replace(WAITING, state="failed"), heard(LEADER), "failed", None),
    "is at rest once rank 0 has": (
        replace(WAITING, state="failed"),
        heard(status_of(0, "stopping", 3)),
        "waiting",
        None,
    ),
    "goes on to the next": (replace(WAITING, state="failed"), heard(status_of(0, "starting", 4)), "starting", Start(4)),
}


@pytest.mark.parametrize(("gang", "leader", "state", "command"), FOLLOWER_IDLE.values(), ids=FOLLOWER_IDLE)
def test_a_follower_with_nothing_running(gang: Gang, leader: PeerView, state: str, command: Command) -> None:
    after, found = decide(plan_of(1), gang, seen_by(1, leader, IDLE))
    assert (after.state, found) == (state, command)


def test_the_peers_step_waits_for_every_other_rank_in_this_attempt() -> None:
    for state, attempt, ago_s, missing in (
        ("running", 3, 1, ""),
        ("starting", 3, 1, "waiting for rank 1 (b), which is starting attempt 3"),
        ("running", 2, 1, "waiting for rank 1 (b), which runs attempt 2"),
        ("running", 3, 7, "waiting for rank 1 (b): no answer"),
    ):
        view = heard(status_of(1, state, attempt), ago_s)  # type: ignore[arg-type]
        assert peers_missing(plan_of(0), 3, {1: view}, NOW) == missing


def test_an_agent_remembers_across_its_own_death() -> None:
    plan = plan_of(0)
    gang = replace(UNREADY, history=(ended(1), ended(2)), failed_total=2)
    again = recall(plan, remember(plan, gang), NOW, 1_000_000.0)
    assert (again.attempt, again.failed_total) == (3, 3)
    assert again.state == "broken", "the attempt that the last agent left open is the third to fail"
    assert recall(plan, remember(plan, replace(gang, state="stopped", forgiven_at=1_000_000.0)), NOW, 1_000_001.0) == (
        Gang(attempt=3, since=NOW, history=gang.history, failed_total=2, forgiven_at=1_000_000.0)
    )


def test_another_generation_keeps_the_number_and_forgets_the_failures() -> None:
    gang = replace(UNREADY, history=(ended(1), ended(2), ended(3)))
    again = recall(plan_of(0, generation=2), remember(plan_of(0), gang), NOW, 1_000_000.0)
    assert (again.state, again.attempt, again.history) == ("waiting", 3, ())


@pytest.mark.parametrize(
    "memory",
    [
        {"attempt": None},
        {"attempt": "x"},
        {"attempt": float("inf")},
        {"generation": 1, "history": None},
        {"generation": 1, "history": [1]},
        {"generation": 1, "history": [{"attempt": 1, "of": "a later version"}]},
        {"generation": 1, "history": [{"attempt": 1, "reason": "", "was_ready": False, "ended_at": "x"}]},
        {"generation": 1, "forgiven_at": []},
    ],
)
def test_a_memory_that_no_agent_wrote_is_none(memory: dict[str, object]) -> None:
    assert recall(plan_of(0), memory, NOW, 1_000_000.0) == Gang(since=NOW)
