"""How large a body may be, however it is sent. The real haproxy."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from orchestrator.plan.gateway import UNSIZED_BODY_MAX_BYTES
from tests.gateway.conftest import Ready
from tests.gateway.rig import CHAT, MAX_BODY_BYTES, chat, needs_haproxy, read_all

pytestmark = needs_haproxy

HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: g\r\n%AUTH%Content-Type: application/json\r\n"


def body_of(size: int) -> bytes:
    """A JSON body of exactly ``size`` bytes."""
    empty = len(json.dumps(chat(pad="")))
    return json.dumps(chat(pad="x" * (size - empty))).encode()


def in_chunks(body: bytes, size: int) -> bytes:
    parts = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def chunked(ready: Ready, body: bytes, size: int, headers: str = "") -> tuple[int, str]:
    """Send ``body`` in chunks of ``size``; status and error code of the answer."""
    head = f"{HEAD}{headers}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    status, answer = ready.gateway.raw(head.encode() + in_chunks(body, size))
    return status, json.loads(answer).get("error", {}).get("code", "")


@pytest.mark.parametrize("size", [1000, UNSIZED_BODY_MAX_BYTES, UNSIZED_BODY_MAX_BYTES + 1, MAX_BODY_BYTES])
def test_a_sized_body_up_to_the_limit_arrives_whole(ready: Ready, size: int) -> None:
    with ready.gateway.client() as client:
        assert client.post(CHAT, content=body_of(size)).status_code == 200
    assert [seen.body_bytes for seen in ready.engine.seen] == [size]


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 20 * MAX_BODY_BYTES])
def test_a_sized_body_over_the_limit_is_413_and_never_starts(ready: Ready, size: int) -> None:
    with ready.gateway.client() as client:
        answer = client.post(CHAT, content=body_of(size))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert str(MAX_BODY_BYTES) in answer.json()["error"]["message"]
    assert ready.engine.seen == []


@pytest.mark.parametrize("length", [2**31, 2**32 + 1, 2**32 + 1000, 2**63 - 1, 2**63 + 1, 2**64 + 1, 10**40 + 2])
def test_announced_lengths_do_not_wrap_around(ready: Ready, length: int) -> None:
    status, _ = ready.gateway.raw(f"{HEAD}Content-Length: {length}\r\nConnection: close\r\n\r\n{{}}".encode())
    assert status in {400, 413}
    assert ready.engine.seen == []


@pytest.mark.parametrize("chunk", [1, 7, 65536])
@pytest.mark.parametrize("padding", [0, 14000])
def test_a_chunked_body_up_to_one_buffer_arrives_whole(ready: Ready, chunk: int, padding: int) -> None:
    headers = f"X-Padding: {'y' * padding}\r\n"
    assert chunked(ready, body_of(UNSIZED_BODY_MAX_BYTES), chunk, headers) == (200, "")
    assert [seen.body_bytes for seen in ready.engine.seen] == [UNSIZED_BODY_MAX_BYTES]


@pytest.mark.parametrize("chunk", [1, 100, 65536, 2 * MAX_BODY_BYTES])
@pytest.mark.parametrize("size", [UNSIZED_BODY_MAX_BYTES + 1, 2 * MAX_BODY_BYTES])
@pytest.mark.parametrize("padding", [0, 14000])
def test_a_longer_chunked_body_is_411_and_never_starts(ready: Ready, chunk: int, size: int, padding: int) -> None:
    if chunk == 1:
        size = min(size, 2 * UNSIZED_BODY_MAX_BYTES)
    headers = "".join(f"X-{count}: {'y' * 190}\r\n" for count in range(padding // 200))
    refused = chunked(ready, body_of(size), chunk, headers)
    # A chunk that announces itself to be over the limit is as good as a Content-Length.
    assert refused == ((413, "request_too_large") if min(chunk, size) > MAX_BODY_BYTES else (411, "length_required"))
    assert ready.engine.seen == []


def test_a_get_cannot_carry_what_a_post_may_not(ready: Ready) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nHost: g\r\n%AUTH%Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    status, _ = ready.gateway.raw(request + in_chunks(body_of(2 * MAX_BODY_BYTES), 65536))
    assert status == 411
    assert ready.engine.seen == []


def test_both_lengths_at_once_are_counted_as_chunks(ready: Ready) -> None:
    status, code = chunked(ready, body_of(2 * MAX_BODY_BYTES), 65536, "Content-Length: 10\r\n")
    assert (status, code) in {(411, "length_required"), (400, "bad_request")}
    assert ready.engine.seen == []


def test_an_http_client_that_streams_its_body_is_told(ready: Ready) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 65536

    with ready.gateway.client() as client:
        answer = client.post(CHAT, content=parts())
    assert answer.status_code == 411
    assert "Content-Length" in answer.json()["error"]["message"]


def test_a_client_that_waits_for_100_continue_is_let_on(ready: Ready) -> None:
    body = body_of(200000)
    head = f"{HEAD}Expect: 100-continue\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    auth = f"Authorization: {ready.gateway.client().headers['authorization']}\r\n"
    with socket.create_connection(("127.0.0.1", ready.gateway.spec.bind_port), timeout=20) as wire:
        wire.sendall(head.replace("%AUTH%", auth).encode())
        assert wire.recv(4096).startswith(b"HTTP/1.1 100 ")
        wire.sendall(body)
        assert b"200 OK" in read_all(wire)[:20]


def test_a_strangers_body_is_never_read(ready: Ready) -> None:
    """401 comes from the head alone: the body is only promised here."""
    status, _ = ready.gateway.raw(f"{HEAD}Content-Length: 1000\r\nConnection: close\r\n\r\n".encode(), key=None)
    assert status == 401
    with contextlib.suppress(httpx.HTTPError), ready.gateway.client("sk-nobody-0123456789") as client:
        assert client.post(CHAT, content=body_of(4 * MAX_BODY_BYTES)).status_code == 401
    assert ready.engine.seen == []
