"""How looks and canaries add up to gates and a verdict. Pure, but for one canary to a silent port."""

import socket
from dataclasses import replace

import pytest

from orchestrator.agent import prober
from orchestrator.agent.gates import Sight, all_gates, judge
from orchestrator.agent.probe import Answer, Counters, Look, Probe, answered, hangs, hung, looked, next_canary
from orchestrator.agent.prober import COUNTERS_TIMEOUT_S, Engine, counters, model_seen
from orchestrator.agent.views import Own
from orchestrator.plan.rankfile import Gate, RankStatus, Service
from tests.agent.worlds import NOW, RUNNING, SERVICE, heard, plan_of, status_of

GOOD_LOOK = Look(NOW - 1, "", "", Counters(100, 500))
PROOF = Answer(NOW - 20, NOW - 19, 4, before=Counters(96, 490), after=Counters(100, 500))
PROVEN = Probe(3, GOOD_LOOK, work=500, moved_at=NOW - 19, checked_at=NOW - 19, proof=PROOF)
LATE = Answer(NOW - 10, NOW, error="no completion within 60 s", slow=True, before=Counters(100, 500))
PEER = status_of(1, "running", 3, gates=(Gate("processes", True, "all alive"),))


def gates_of(probe: Probe = PROVEN, peer: RankStatus = PEER, ago_s: float = 1.0, **plan: object) -> dict[str, Gate]:
    sight = Sight(NOW, Own("up"), {"vllm": "1"}, {1: heard(peer, ago_s, "timed out")}, probe)
    return {gate.name: gate for gate in all_gates(plan_of(0, **plan), RUNNING, sight)}


PINNED = replace(PEER, versions={"vllm": "1"})
SHUT = {
    "a silent rank": (gates_of(ago_s=7), "ranks", False, "rank 1 (b) silent for 7 s: timed out"),
    "a rank in another attempt": (gates_of(peer=status_of(1, "running", 2)), "ranks", False, "runs attempt 2"),
    "a gate of another rank": (
        gates_of(peer=replace(PEER, gates=(Gate("processes", False, "step ray ended"),))),
        "ranks",
        False,
        "rank 1 (b) processes: step ray ended",
    ),
    "pins of another rank": (
        gates_of(peer=replace(PEER, versions={"vllm": "2"}), pins={"vllm": "1"}),
        "pins",
        False,
        "rank 1 (b): vllm should be 1, found 2",
    ),
    "unpinned but unequal": (
        gates_of(peer=replace(PEER, versions={"vllm": "2"})),
        "pins",
        False,
        "rank 1 (b): vllm 2, but rank 0 has 1",
    ),
    "still loading": (
        gates_of(looked(Probe(3), Look(NOW, "[Errno 111] Connection refused", "not asked", shut=True))),
        "health",
        None,
        "vLLM has been loading for 100 s; its port does not answer yet",
    ),
    "shut again": (
        gates_of(looked(looked(Probe(3), GOOD_LOOK), Look(NOW, "[Errno 111] Connection refused", "", shut=True))),
        "health",
        False,
        "[Errno 111] Connection refused",
    ),
    "no look yet": (gates_of(Probe(3)), "health", None, "not asked yet"),
    "unwell": (gates_of(replace(PROVEN, look=Look(NOW, "/health answered 503", "not asked"))), "health", False, "503"),
    "looks have stopped": (gates_of(replace(PROVEN, look=replace(GOOD_LOOK, at=NOW - 46))), "health", False, "46 s"),
    "another model": (gates_of(replace(PROVEN, look=Look(NOW, "", "should serve tiny"))), "model", False, "tiny"),
    "no token counter": (
        gates_of(replace(PROVEN, proof=replace(PROOF, after=Counters()))),
        "tokens",
        False,
        "no vllm:generation_tokens_total",
    ),
    "a counter that stood still": (
        gates_of(replace(PROVEN, proof=replace(PROOF, after=Counters(96, 490)))),
        "tokens",
        False,
        "from 96 to 96",
    ),
    "a completion refused": (
        gates_of(answered(PROVEN, replace(LATE, slow=False, error="the completion answered 500"))),
        "completion",
        False,
        "1 of 3 canaries missed: the completion answered 500",
    ),
    "the probe of another attempt": (gates_of(replace(PROVEN, attempt=2)), "completion", None, "not asked yet"),
}


@pytest.mark.parametrize(("gates", "name", "is_open", "saw"), SHUT.values(), ids=SHUT)
def test_a_gate_is_shut_and_says_why(gates: dict[str, Gate], name: str, is_open: bool | None, saw: str) -> None:
    assert gates[name].open is is_open
    assert saw in gates[name].saw


def test_ready_is_every_gate_open() -> None:
    sight = Sight(NOW, Own("up"), {"vllm": "1"}, {1: heard(PINNED)}, PROVEN)
    plan = plan_of(0, pins={"vllm": "1"})
    gates = all_gates(plan, RUNNING, sight)
    assert [gate for gate in gates if not gate.open] == []
    assert judge(plan, RUNNING, sight, gates).ready
    for index, gate in enumerate(gates):
        for value in (False, None):
            shut = (*gates[:index], replace(gate, open=value), *gates[index + 1 :])
            assert not judge(plan, RUNNING, sight, shut).ready
    assert not judge(plan, replace(RUNNING, state="stopping"), sight, gates).ready


def test_only_what_the_executor_uses_is_pinned() -> None:
    pins = {"ray": "2", "vllm": "1"}
    without_ray = gates_of(peer=PINNED, pins=pins, executor="mp")["pins"]
    assert (without_ray.open, without_ray.saw) == (True, "vllm 1")
    unequal = gates_of(peer=replace(PINNED, versions={"vllm": "1", "ray": "3"}), executor="mp")["pins"]
    assert unequal.open
    assert not gates_of(peer=PINNED, pins=pins)["pins"].open


def test_a_rank_above_0_has_no_readiness_of_its_own() -> None:
    for rank, ready, told in ((0, True, "true"), (0, False, "false"), (1, False, "null")):
        status = status_of(rank, "running", 1, ready=ready)
        assert f'"ready": {told},' in status.to_json()
        assert RankStatus.from_json(status.to_json()) == status


def test_wrong_pins_are_hopeless_and_a_503_is_not() -> None:
    sight = Sight(NOW, Own("up"), {}, {1: heard(PEER)}, replace(PROVEN, look=Look(NOW, "503", "")))
    plan = plan_of(0, pins={"vllm": "1"})
    assert judge(plan, RUNNING, sight, all_gates(plan, RUNNING, sight)).hopeless.startswith("pins: rank 0")
    assert judge(plan_of(0), RUNNING, sight, all_gates(plan_of(0), RUNNING, sight)).hopeless == ""


def test_hung_is_three_late_canaries_and_no_token() -> None:
    probe = PROVEN
    for missed in (1, 2, 3):
        assert hung(probe, SERVICE, NOW) == ""
        probe = answered(probe, LATE)
        assert probe.missed == missed
        assert gates_of(probe)["completion"].open is (missed < 3)
    assert (
        hung(probe, SERVICE, NOW) == "hung: 3 canaries missed, no token for 19 s; the last: no completion within 60 s"
    )


def until_hung(probe: Probe, service: Service) -> tuple[float, list[str]]:
    """Seconds from NOW until an engine that answers nothing counts as hung, and what is said after each canary."""
    now, said = NOW, []
    while not hung(probe, service, now):
        probe, due = next_canary(probe, service, now)
        if not due:
            now += 0.2
            continue
        ended_at = now + service.completion_deadline_s + 2 * COUNTERS_TIMEOUT_S
        probe = answered(probe, replace(LATE, began_at=now, ended_at=ended_at, after=Counters()))
        now = ended_at
        said.append(hangs(probe, service, now))
    return now - NOW, said


@pytest.mark.parametrize(("every_s", "deadline_s"), [(15.0, 60.0), (30.0, 60.0), (60.0, 15.0), (1.0, 120.0)])
def test_a_hang_is_given_up_after_three_of_the_larger_of_pause_and_deadline(every_s: float, deadline_s: float) -> None:
    service = replace(SERVICE, canary_every_s=every_s, completion_deadline_s=deadline_s)
    took_s, said = until_hung(replace(PROVEN, checked_at=NOW), service)
    look_s = 3 * 2 * COUNTERS_TIMEOUT_S
    assert 2 * max(every_s, deadline_s) < took_s <= 3 * max(every_s, deadline_s) + every_s + look_s + 1
    assert said[0].startswith("hangs: 1 of 3 canaries missed; starts again in about ")
    assert said[-1] == "hangs: 3 of 3 canaries missed; starts again in about 0 s"


def test_a_hang_says_when_it_will_be_given_up() -> None:
    service = replace(SERVICE, canary_every_s=15.0)
    once = replace(PROVEN, missed=1, failed=replace(LATE, began_at=NOW - 60, ended_at=NOW), checked_at=NOW - 60)
    assert hangs(once, service, NOW) == "hangs: 1 of 3 canaries missed; starts again in about 120 s"
    assert hangs(once, service, NOW + 50) == "hangs: 1 of 3 canaries missed; starts again in about 70 s"
    shut = gates_of(once)["completion"]
    assert shut.saw.endswith(" s: no completion within 60 s")
    assert "hangs: 1 of 3 canaries missed; starts again in about" in shut.saw
    silent = replace(PROVEN, look=Look(NOW, "no answer within 10 s", "no answer within 10 s", slow=True))
    assert "no answer within 10 s; hangs: 0 of 3 canaries missed; starts again" in gates_of(silent)["health"].saw
    assert hangs(PROVEN, SERVICE, NOW) == ""
    assert hangs(replace(silent, proof=None), SERVICE, NOW) == ""


def test_a_canary_to_a_silent_port_takes_one_deadline_and_little_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "COUNTERS_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        engine = Engine(replace(SERVICE, base_url=url, completion_deadline_s=1.0), 1.0)
        answer = engine.complete(Counters(100, 500))
    assert (answer.error, answer.slow) == ("no completion within 1 s", True)
    assert (answer.before, answer.after) == (Counters(100, 500), Counters())
    assert answer.ended_at - answer.began_at < 1.9


def test_a_busy_engine_is_not_hung() -> None:
    while_waiting = looked(PROVEN, replace(GOOD_LOOK, at=NOW - 5, counters=Counters(100, 501)))
    assert answered(while_waiting, LATE).missed == 0
    assert answered(PROVEN, replace(LATE, after=Counters(100, 502))).missed == 0
    twice = replace(PROVEN, missed=2, failed=LATE)
    assert looked(twice, replace(GOOD_LOOK, at=NOW, counters=Counters(101, 502))).missed == 0


def test_an_engine_that_was_never_proven_is_not_hung() -> None:
    probe = Probe(3, GOOD_LOOK)
    for _ in range(5):
        probe = answered(probe, LATE)
    assert hung(probe, SERVICE, NOW) == ""
    assert gates_of(probe)["completion"].open is False


CANARIES = {
    "the first, once looks are good": (Probe(3, GOOD_LOOK), True),
    "not before": (Probe(3, replace(GOOD_LOOK, health="503")), False),
    "not with the wrong model": (Probe(3, replace(GOOD_LOOK, model="other")), False),
    "not again at once": (Probe(3, GOOD_LOOK, checked_at=NOW - 1), False),
    "not within its time": (PROVEN, False),
    "no traffic": (replace(PROVEN, checked_at=NOW - 31, moved_at=NOW - 31), True),
    "traffic is proof": (replace(PROVEN, checked_at=NOW - 31, moved_at=NOW - 2), False),
    "traffic does not excuse a failed one": (replace(PROVEN, checked_at=NOW - 31, moved_at=NOW - 2, failed=LATE), True),
}


@pytest.mark.parametrize(("probe", "due"), CANARIES.values(), ids=CANARIES)
def test_when_a_canary_is_due(probe: Probe, due: bool) -> None:
    assert next_canary(probe, SERVICE, NOW)[1] is due


def test_two_late_looks_are_passed_over_and_the_third_counts() -> None:
    late = Look(NOW, "no answer within 10 s", "no answer within 10 s", slow=True)
    probe = PROVEN
    for expected in ("", "", "no answer within 10 s"):
        probe = looked(probe, late)
        assert probe.look is not None
        assert probe.look.health == expected
    assert looked(probe, GOOD_LOOK).slow_looks == 0


METRICS = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 40.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 2.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 7.0
vllm:prompt_tokens_by_source_total{engine="0",source="local"} 1000.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0"} 900.0
vllm:iteration_tokens_total_count{engine="0",model_name="tiny"} 11.0
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1.0
"""


def test_the_counters_are_summed_over_engines() -> None:
    assert counters(METRICS) == Counters(generated=42.0, work=60.0, unfinished=3.0)
    assert counters("# nothing of ours\nother_total 3\n") == Counters(None, None)


@pytest.mark.parametrize(
    ("body", "saw"),
    [
        ({"data": [{"id": "tiny", "max_model_len": 512}]}, ""),
        ({"data": [{"id": "big", "max_model_len": 512}]}, "should serve tiny, found big"),
        ({"data": [{"id": "tiny", "max_model_len": 256}]}, "tiny should have 512 tokens of context, found 256"),
        ({"data": []}, "should serve tiny, found no model"),
        ("<html>", "/v1/models did not answer with a list of models"),
    ],
)
def test_the_model_must_be_the_planned_one(body: object, saw: str) -> None:
    assert model_seen(body, SERVICE) == saw
