"""When the gateway is open and when it is closed: what the agent says, and what happens when it says nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from orchestrator.plan import gateway
from tests.gateway.fakes import FakeAgent, FakeEngine
from tests.gateway.rig import ALICE_KEY, BOB_KEY, CHAT, Gateway, chat, gateway_over, get, needs_haproxy, place, until

pytestmark = needs_haproxy


class Bench:
    """One engine, one agent and the gateway over them."""

    def __init__(self, running: Gateway, engine: FakeEngine, agent: FakeAgent) -> None:
        self.gateway, self.engine, self.agent = running, engine, agent

    def status(self) -> int:
        with self.gateway.client() as client:
            return client.post(CHAT, json=chat()).status_code

    def opens(self) -> None:
        until(lambda: self.status() == 200, "the gateway opens")

    def closes(self) -> None:
        until(lambda: self.status() == 503, "the gateway closes")
        self.engine.seen.clear()
        assert [self.status() for _ in range(5)] == [503] * 5
        assert self.engine.seen == []


@pytest.fixture(scope="module")
def module_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    engine, agent = FakeEngine(), FakeAgent("up ready")
    with gateway_over(tmp_path_factory.mktemp("gateway") / "states", (engine, agent)) as running:
        yield Bench(running, engine, agent)


@pytest.fixture
def bench(module_bench: Bench) -> Bench:
    """The module's bench, open, whatever the test before did to it."""
    module_bench.agent.say("up ready")
    module_bench.agent.thawed.set()
    if not module_bench.agent.servers:
        module_bench.agent.revive()
    module_bench.engine.go.clear()
    module_bench.opens()
    module_bench.engine.seen.clear()
    return module_bench


def test_nothing_passes_before_an_agent_says_up_and_ready(tmp_path: Path) -> None:
    words = ["down", "up", "maint", "drain", "gibberish", "", "silent"]
    pairs = [(FakeEngine(f"rank{rank}"), FakeAgent(word)) for rank, word in enumerate(words)]
    pairs[-1][1].die()
    with gateway_over(tmp_path / "g", *pairs) as running:
        start = time.monotonic()
        with running.client() as client:
            while time.monotonic() - start < 2:
                assert client.post(CHAT, json=chat()).status_code == 503
                time.sleep(0.02)
        assert all(engine.seen == [] for engine, _ in pairs)
        pairs[-1][1].say("up ready")
        pairs[-1][1].revive()
        until(running.ready, "the gateway opens")
        with running.client() as client:
            assert client.post(CHAT, json=chat()).json()["choices"][0]["message"]["content"] == "hello from rank6"


def test_an_agent_whose_two_answers_differ_keeps_the_gateway_closed(bench: Bench) -> None:
    bench.agent.ready_status = 503
    bench.closes()
    bench.agent.ready_status = 200
    bench.opens()


def test_the_closed_gateway_says_when_to_come_back(bench: Bench) -> None:
    bench.agent.say("down")
    bench.closes()
    with bench.gateway.client() as client:
        for answer in (client.post(CHAT, json=chat()), client.get("/v1/models"), client.get("/health")):
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "7"
            assert answer.json()["error"]["code"] == "not_ready"
    assert get(bench.gateway.url + "/v1/models").status_code == 401


@pytest.mark.parametrize("end", ["die", "freeze"])
def test_an_agent_that_says_nothing_more_closes_the_gateway(bench: Bench, end: str) -> None:
    getattr(bench.agent, end)()
    bench.closes()


def test_an_agent_that_comes_back_opens_the_gateway_only_with_its_word(bench: Bench) -> None:
    bench.agent.die()
    bench.closes()
    bench.agent.say("down")
    bench.agent.revive()
    time.sleep(1.5)
    bench.closes()
    bench.agent.say("up ready")
    bench.opens()


@pytest.mark.parametrize("word", ["drain", "maint", "down"])
def test_closing_refuses_the_new_and_lets_running_streams_end(bench: Bench, word: str) -> None:
    with bench.gateway.client() as client, client.stream("POST", CHAT, json=chat(stream=True)) as answer:
        lines = answer.iter_lines()
        assert "t0" in next(lines)
        bench.agent.say(word)
        bench.closes()
        bench.engine.go.set()
        assert [line for line in lines if line][-1] == "data: [DONE]"
    bench.agent.say("up ready")
    bench.opens()


def test_an_engine_that_is_gone_while_the_agent_says_ready_is_503(tmp_path: Path) -> None:
    engine, agent = FakeEngine(), FakeAgent()
    with gateway_over(tmp_path / "g", (engine, agent)) as running:
        until(running.ready, "the gateway opens")
        engine.close()
        with running.client() as client:
            answer = client.post(CHAT, json=chat())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert answer.json()["error"]["code"] == "not_ready"


def test_requests_go_to_the_replica_with_the_fewest_and_around_a_closed_one(tmp_path: Path) -> None:
    first, second = FakeEngine("rank0"), FakeEngine("rank4")
    agents = FakeAgent(), FakeAgent()
    with gateway_over(tmp_path / "g", (first, agents[0]), (second, agents[1])) as running, running.client() as client:
        both = '"UP"} 1'
        metrics = f"http://127.0.0.1:{running.spec.stats_port}/metrics"
        until(lambda: get(metrics).text.count(f'proxy="engines",server="rank0",state={both}') == 1, "rank0 is up")
        until(lambda: get(metrics).text.count(f'proxy="engines",server="rank4",state={both}') == 1, "rank4 is up")
        with client.stream("POST", CHAT, json=chat(stream=True)) as held:
            tokens = held.iter_lines()
            assert "t0" in next(tokens)
            busy, idle = (first, second) if first.seen else (second, first)
            for _ in range(4):
                assert client.post(CHAT, json=chat()).json()["choices"][0]["message"]["content"].endswith(idle.name)
        agents[0].say("drain")
        until(lambda: 'server="rank0",state="DRAIN"} 1' in get(metrics).text, "rank0 drains")
        for _ in range(4):
            assert client.post(CHAT, json=chat()).json()["choices"][0]["message"]["content"].endswith("rank4")
        assert len(busy.seen) >= 1


def test_a_key_is_taken_away_and_another_given_without_a_restart(bench: Bench) -> None:
    carol_key = "sk-carol-0123456789abcdefghij"
    path = bench.gateway.folder / gateway.KEYS_FILE
    before = path.read_text()
    wanted = gateway.keys_map({"alice": gateway.key_hash(ALICE_KEY), "carol": gateway.key_hash(carol_key)})
    place(path, wanted)
    changes = gateway.map_changes(bench.gateway.admin(f"show map {gateway.KEYS_FILE}"), wanted)
    assert len(changes) == 2
    bench.gateway.admin(*changes)
    with bench.gateway.client(BOB_KEY) as bob, bench.gateway.client(carol_key) as carol:
        assert bob.get("/v1/models").status_code == 401
        assert carol.get("/v1/models").status_code == 200
    assert bench.status() == 200
    assert gateway.map_changes(bench.gateway.admin(f"show map {gateway.KEYS_FILE}"), wanted) == ()
    place(path, before)
    bench.gateway.admin(*gateway.map_changes(bench.gateway.admin(f"show map {gateway.KEYS_FILE}"), before))
    with bench.gateway.client(BOB_KEY) as bob:
        assert bob.get("/v1/models").status_code == 200


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGUSR1])
def test_it_ends_when_told_to_and_leaves_no_port(tmp_path: Path, how: signal.Signals) -> None:
    """SIGTERM ends it now; SIGUSR1 lets running streams end first."""
    engine, agent = FakeEngine(), FakeAgent()
    with gateway_over(tmp_path / "g", (engine, agent)) as running:
        until(running.ready, "the gateway opens")
        with running.client() as client, client.stream("POST", CHAT, json=chat(stream=True)) as answer:
            lines = answer.iter_lines()
            assert "t0" in next(lines)
            running.process.send_signal(how)
            if how == signal.SIGUSR1:
                until(lambda: refused(running.url), "no new connection")
                engine.go.set()
                assert [line for line in lines if line][-1] == "data: [DONE]"
        running.process.wait(10)
        assert refused(running.url)


def refused(url: str) -> bool:
    try:
        get(url + "/health")
    except httpx.TransportError:
        return True
    return False
