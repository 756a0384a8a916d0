"""Real agents on three loopback addresses: they find each other, prove the service, and die and live together."""

import json
import os
import signal
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.agent.rig import FAST, LocalGang, until

Make = Callable[..., LocalGang]


def test_three_ranks_become_ready_answer_who_may_ask_and_stop(gang_of: Make) -> None:
    gang = gang_of(ranks=3)
    gang.start(0)
    waiting = gang.wait(0, lambda found: "rank 1" in found.doing)
    assert waiting.state == "waiting"
    assert gang.get(0, "/ready").status_code == 503
    assert gang.check() == "down\n"
    gang.start(1, 2)
    status = gang.wait_ready(1)
    assert [gate.name for gate in status.gates] == [
        "attempt", "processes", "ranks", "pins", "health", "model", "completion", "tokens",
    ]  # fmt: skip
    assert all(gate.open for gate in status.gates)
    assert gang.get(0, "/ready").status_code == 200
    assert gang.check() == "up ready\n"
    assert gang.get(1, "/ready").status_code == 503
    assert gang.get(1, "/rank", token="guess").status_code == 401
    assert httpx.get(str(gang.get(1, "/rank").url)).status_code == 401
    assert gang.get(1, "/else").status_code == 404
    metrics = gang.get(0, "/metrics", token="none needed").text
    assert "sparkctl_ready 1.0" in metrics
    assert 'sparkctl_gate_open{gate="tokens"} 1.0' in metrics
    assert "sparkctl_attempts_failed_total 0.0" in metrics
    assert gang.token not in metrics
    kept = Path(gang.plans[0].state_dir) / "status.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text())["ready"] is True
    assert "engine: FakeEngine listens" in gang.log(0)

    assert all(gang.daemons(rank) for rank in range(3))
    gang.agents[0].send_signal(signal.SIGTERM)
    assert gang.agents[0].wait(30) == 0
    assert not gang.daemons(0)
    last = json.loads(kept.read_text())
    assert (last["state"], last["ready"], last["processes"]) == ("stopped", False, {})
    until(lambda: not gang.daemons(1) and not gang.daemons(2), "the others end with it")


@pytest.mark.parametrize("signals", [1, 2])
def test_running_answers_finish_after_one_sigterm_and_are_cut_off_by_a_second(gang_of: Make, signals: int) -> None:
    gang = gang_of(ranks=2)
    policy, service = replace(FAST, drain_s=60.0), replace(gang.plans[0].service, canary_every_s=60.0)
    gang.plans = [replace(plan, policy=policy, service=service) for plan in gang.plans]
    gang.start()
    gang.wait_ready(1)
    (gang.directory / "hang").touch()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(gang.complete)
        gang.agents[0].send_signal(signal.SIGTERM)
        gang.wait(0, lambda found: found.doing == "asked to stop: letting 1 running answers finish")
        assert gang.check() == "drain\n"
        assert gang.get(0, "/ready").status_code == 503
        assert gang.daemons(1), "the other rank is needed until the answer is whole"
        if signals == 2:
            gang.agents[0].send_signal(signal.SIGTERM)
            with pytest.raises(httpx.HTTPError):
                answer.result(30)
        else:
            (gang.directory / "hang").unlink()
            assert answer.result(30).status_code == 200
    assert gang.agents[0].wait(30) == 0
    assert not gang.daemons(0)


def test_the_gang_lives_and_dies_together(gang_of: Make) -> None:
    gang = gang_of()
    gang.start()
    victim = gang.wait_ready(1) and gang.wait(1, lambda found: found.processes)
    before = gang.daemons(0) | gang.daemons(1)

    os.kill(victim.processes["node"], signal.SIGKILL)
    status = gang.wait_ready(2)
    second = gang.daemons(0) | gang.daemons(1)
    assert not before.keys() & second.keys()
    assert len(status.history) == 1
    assert status.history[0].was_ready
    assert "rank 1 (node-1): step node was killed by SIGKILL" in status.history[0].reason

    for rank, attempt in ((1, 3), (0, 4)):
        before = gang.daemons(0) | gang.daemons(1)
        gang.agents[rank].kill()
        gang.agents[rank].wait()
        assert gang.daemons(rank), "what a killed agent leaves behind is the point here"
        gang.start(rank)
        gang.wait_ready(attempt)
        assert not before.keys() & (gang.daemons(0) | gang.daemons(1)).keys()


def test_a_lost_rank_ends_the_attempt_and_its_return_begins_the_next(gang_of: Make) -> None:
    gang = gang_of()
    gang.plans = [replace(plan, policy=replace(FAST, unreachable_s=4.0)) for plan in gang.plans]
    gang.start()
    attempt = gang.wait(0, lambda found: found.ready).attempt
    gang.agents[1].send_signal(signal.SIGSTOP)
    ended = gang.wait(0, lambda found: [one for one in found.history if one.was_ready])
    assert "rank 1 (node-1): unreachable for" in ended.history[-1].reason
    until(lambda: not gang.daemons(0), "rank 0 has nothing running while it waits")
    assert gang.check() == "down\n"
    gang.agents[1].send_signal(signal.SIGCONT)
    gang.wait(0, lambda found: found.ready and found.attempt > attempt)


def test_a_short_silence_restarts_nothing(gang_of: Make) -> None:
    gang = gang_of()
    gang.start()
    gang.wait_ready(1)
    before = gang.daemons(0)
    gang.agents[1].send_signal(signal.SIGSTOP)
    until(lambda: gang.check() == "drain\n", "nothing new is let in while rank 1 is silent")
    assert gang.get(0, "/ready").status_code == 503
    gang.agents[1].send_signal(signal.SIGCONT)
    gang.wait_ready(1)
    assert gang.daemons(0).keys() >= {pid for pid, words in before.items() if "fake_engine" in words}


def test_a_hung_engine_is_restarted_and_a_sick_one_is_not_ready(gang_of: Make) -> None:
    gang = gang_of(ranks=1)
    gang.plans[0] = replace(gang.plans[0], service=replace(gang.plans[0].service, completion_deadline_s=1.0))
    gang.start()
    gang.wait_ready(1)
    (gang.directory / "sick").touch()
    gang.wait(0, lambda found: not found.ready)
    (gang.directory / "sick").unlink()
    gang.wait_ready(1)
    (gang.directory / "hang").touch()
    ended = gang.wait(0, lambda found: found.history)
    assert ended.history[0].reason.startswith("hung: 3 canaries missed")
    (gang.directory / "hang").unlink()
    gang.wait_ready(2)


def test_the_breaker_stops_and_keeps_the_evidence(gang_of: Make) -> None:
    gang = gang_of(ranks=1)
    broken_step = replace(gang.plans[0].steps[0], argv=("sh", "-c", "echo 'ValueError: no such model'; exit 7"))
    gang.plans[0] = replace(gang.plans[0], steps=(broken_step,))
    gang.start()
    status = gang.wait(0, lambda found: found.state == "broken")
    assert status.last_fatal == "ValueError: no such model"
    assert [ended.attempt for ended in status.history] == [1, 2, 3]
    assert "ended with exit status 7: ValueError: no such model" in status.doing
    assert gang.agents[0].poll() is None
    assert gang.check() == "down\n"
    log = Path(gang.plans[0].state_dir) / "logs" / "attempt-3" / "node.log"
    assert log.read_text() == "ValueError: no such model\n"


def test_wrong_pins_never_become_ready(gang_of: Make) -> None:
    gang = gang_of(ranks=1)
    policy = replace(FAST, breaker_attempts=1)
    gang.plans[0] = replace(gang.plans[0], pins={"vllm": "1.2.3"}, policy=policy)
    gang.start()
    status = gang.wait(0, lambda found: found.state == "broken")
    assert "pins: rank 0 (node-0): vllm should be 1.2.3, found none" in status.history[-1].reason
    assert not status.ready
