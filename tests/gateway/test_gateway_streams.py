"""Tokens, hang-ups and deaths in mid-stream pass at once, in both directions. The real haproxy."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.gateway.conftest import Ready
from tests.gateway.fakes import FakeAgent, FakeEngine
from tests.gateway.rig import ALICE_KEY, CHAT, Gateway, chat, gateway_over, needs_haproxy, read_all, until

pytestmark = needs_haproxy

HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {ALICE_KEY}\r\n"


def test_the_first_token_arrives_while_the_engine_still_works(ready: Ready) -> None:
    with ready.gateway.client() as client, client.stream("POST", CHAT, json=chat(stream=True)) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.iter_lines()
        assert "t0" in next(lines)
        assert not ready.engine.go.is_set()
        ready.engine.go.set()
        assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_large_answer_of_many_tokens_arrives_whole(ready: Ready) -> None:
    ready.engine.go.set()
    with ready.gateway.client() as client:
        answer = client.post(CHAT, json=chat(fake="stream", tokens=5000))
    assert answer.text.count("data: {") == 5000
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("fake", ["stream", "silent"])
def test_a_hang_up_reaches_the_engine_at_once(ready: Ready, fake: str) -> None:
    with socket.create_connection(("127.0.0.1", ready.gateway.spec.bind_port), timeout=10) as wire:
        body = json.dumps(chat(fake=fake)).encode()
        wire.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: len(ready.engine.seen) == 1, "the request reaches the engine")
        if fake == "stream":
            assert wire.recv(12) == b"HTTP/1.1 200"
    assert ready.engine.hung_up.wait(10)


def test_an_engine_that_dies_in_mid_stream_ends_the_stream(ready: Ready) -> None:
    ready.engine.go.set()
    with ready.gateway.client() as client, client.stream("POST", CHAT, json=chat(fake="die")) as answer:
        lines = answer.iter_lines()
        assert "t0" in next(lines)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)


def test_an_engine_that_dies_before_it_answers_is_502_in_openai_shape(ready: Ready) -> None:
    with ready.gateway.client() as client:
        answer = client.post(CHAT, json=chat(fake="drop"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_failed")
    assert answer.headers["retry-after"] == "7"
    assert len(ready.engine.seen) == 1


def test_the_openai_client_understands_all_of_it(ready: Ready) -> None:
    ready.engine.go.set()
    url = ready.gateway.url + "/v1"
    with openai.OpenAI(base_url=url, api_key=ALICE_KEY, max_retries=0) as client:
        whole = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
        assert whole.choices[0].message.content == "hello from rank0"
        parts = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}], stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in parts) == "t0 t1 t2 "
        assert [model.id for model in client.models.list()] == ["tiny"]
        with pytest.raises(openai.NotFoundError, match="no such model"):
            client.chat.completions.create(model="other", messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(openai.APIStatusError) as refused:
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x" * 2000000}])
        assert (refused.value.status_code, refused.value.code) == (413, "request_too_large")
    with openai.OpenAI(base_url=url, api_key="sk-wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as unknown:
            stranger.models.list()
        assert unknown.value.code == "invalid_api_key"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, FakeEngine]]:
    """A gateway that gives a client one second for everything, and an engine as long as it likes."""
    pair = (FakeEngine(), FakeAgent())
    folder = tmp_path_factory.mktemp("gateway") / "hasty"
    with gateway_over(folder, pair, client_stall_s=1, request_timeout_s=1) as running:
        until(running.ready, "the gateway opens")
        yield running, pair[0]


@pytest.mark.parametrize("fake", ["stream", "silent"])
def test_a_client_that_only_waits_for_tokens_is_never_timed_out(hasty: tuple[Gateway, FakeEngine], fake: str) -> None:
    running, engine = hasty
    engine.go.clear()
    start = time.monotonic()
    threading.Timer(2.2, engine.go.set).start()
    with running.client() as client:
        answer = client.post(CHAT, json=chat(fake=fake))
        assert time.monotonic() - start > 2.1
    assert answer.status_code == 200
    assert ("[DONE]" in answer.text) == (fake == "stream")


@pytest.mark.parametrize(
    "sent",
    [
        "POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n",
        f"{HEAD}Content-Length: 100\r\n\r\n{{",
        f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n{{",
    ],
    ids=["head", "sized body", "chunked body"],
)
def test_a_client_that_dawdles_is_cut_off(hasty: tuple[Gateway, FakeEngine], sent: str) -> None:
    running, _ = hasty
    with socket.create_connection(("127.0.0.1", running.spec.bind_port), timeout=10) as wire:
        wire.sendall(sent.encode())
        start = time.monotonic()
        answer = read_all(wire)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 400 "))
    assert time.monotonic() - start > 0.9
