"""Who may come in, by which path, with which method, and what the engine and the log then see. The real haproxy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from orchestrator.plan import gateway
from tests.gateway.conftest import Ready
from tests.gateway.rig import (
    ALICE_KEY,
    BOB_KEY,
    CHAT,
    ENGINE_KEY,
    chat,
    get,
    haproxy_version,
    needs_haproxy,
    post,
    until,
)

pytestmark = needs_haproxy


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an answer that must have OpenAI's error shape."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["param"] is None
    return answer.status_code, error["code"]


def raw_status(answer: tuple[int, bytes]) -> int:
    """The status of a refusal, which must have OpenAI's error shape."""
    status, body = answer
    if status != 400 or json_for_broken_requests():
        assert json.loads(body)["error"]["code"]
    return status


def json_for_broken_requests() -> bool:
    """Before 3.2 HAProxy has a page of its own for what never became a request, and no setting for it."""
    return haproxy_version() >= (3, 2)


def test_a_known_key_reaches_the_engine_as_the_engines_own_key(ready: Ready) -> None:
    with ready.gateway.client(BOB_KEY) as client:
        answer = client.post(CHAT, json=chat())
    assert answer.json()["choices"][0]["message"]["content"] == "hello from rank0"
    (seen,) = ready.engine.seen
    assert seen.headers["authorization"] == f"Bearer {ENGINE_KEY}"
    assert BOB_KEY not in str(seen)


def test_the_anthropic_header_is_a_key_too_and_goes_no_further(ready: Ready) -> None:
    answer = post(ready.gateway.url + "/v1/messages", headers={"x-api-key": ALICE_KEY}, json=chat())
    assert answer.status_code == 200
    (seen,) = ready.engine.seen
    assert seen.headers["authorization"] == f"Bearer {ENGINE_KEY}"
    assert "x-api-key" not in seen.headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {ALICE_KEY}"},
        {"Authorization": ALICE_KEY},
        {"Authorization": f"Bearer {ALICE_KEY}x"},
        {"Authorization": f"Bearer {gateway.key_hash(ALICE_KEY)}"},
        {"Authorization": f"Bearer {ENGINE_KEY}"},
        {"Authorization": "Bearer wrong", "x-api-key": ALICE_KEY},
        {"x-api-key": "wrong"},
    ],
)
def test_anything_but_a_known_key_is_401(ready: Ready, headers: dict[str, str]) -> None:
    answer = post(ready.gateway.url + CHAT, headers=headers, json=chat())
    assert refusal(answer) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ready.engine.seen == []


@pytest.mark.parametrize("path", gateway.POST_PATHS)
def test_every_listed_path_passes_and_only_with_post(ready: Ready, path: str) -> None:
    with ready.gateway.client() as client:
        assert client.post(path, json=chat()).status_code == 200
        wrong = [client.request(method, path) for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")]
    assert [answer.status_code for answer in wrong] == [405] * 6
    assert refusal(wrong[0]) == (405, "method_not_supported")
    assert {answer.headers["allow"] for answer in wrong} == {"POST"}
    assert [(seen.method, seen.path) for seen in ready.engine.seen] == [("POST", path)]


def test_models_is_get_only(ready: Ready) -> None:
    with ready.gateway.client() as client:
        assert client.get("/v1/models?limit=1").json()["data"][0]["id"] == "tiny"
        answer = client.post("/v1/models", json={})
    assert refusal(answer) == (405, "method_not_supported")
    assert answer.headers["allow"] == "GET"
    assert [seen.path for seen in ready.engine.seen] == ["/v1/models?limit=1"]


CLOSED = [
    "/",
    "/metrics",
    "/load",
    "/ping",
    "/version",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/tokenize",
    "/detokenize",
    "/invocations",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/inference/v1/generate",
    "/inference/v1/abort_requests",
    "/generative_scoring",
    "/kv_event_sources",
    "/v1/chat/completions/batch",
    "/v1/chat/completions/render",
    "/v1/responses/resp_1",
    "/v1/responses/resp_1/cancel",
    "/v1/systemone",
    "/v1/models/tiny",
    "/v1/models/",
    "/v1",
    "/v1/",
    "/V1/models",
    "/health/",
    "/v1/x/../models",
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "//v1//models",
    "//v1/models",
    "/v1/./models",
    "/v1/models;x",
    "/v1/models%20",
    "/v1%2Fmodels",
    "/v1/model%73",
    "/v1/models%00",
    "/v1/models\\",
    "/.//v1/models",
    "http://g/metrics",
    "http://g//v1/models",
    "http://other/v1/models",
    "*",
    "v1/models",
]


@pytest.mark.parametrize("target", CLOSED)
def test_any_other_target_is_404_as_it_was_written(ready: Ready, target: str) -> None:
    for method in ("GET", "POST"):
        request = f"{method} {target} HTTP/1.1\r\nHost: g\r\n%AUTH%Connection: close\r\nContent-Length: 0\r\n\r\n"
        status = raw_status(ready.gateway.raw(request.encode()))
        # What is no target, or names another host than Host does, never becomes a request.
        assert status == 404 or (status == 400 and target in {"*", "v1/models", "http://other/v1/models"})
    assert ready.engine.seen == []


@pytest.mark.parametrize("request_line", ["CONNECT g:80", "GET /v1/models#x", "TRACE /v1/models", "get /v1/models"])
def test_odd_request_lines_reach_nothing(ready: Ready, request_line: str) -> None:
    answer = ready.gateway.raw(f"{request_line} HTTP/1.1\r\nHost: g\r\n%AUTH%Connection: close\r\n\r\n".encode())
    assert raw_status(answer) in {400, 404, 405}
    assert ready.engine.seen == []


def test_what_is_no_http_gets_400_in_the_same_shape(ready: Ready) -> None:
    answer = ready.gateway.raw(b"POST /v1/chat/completions\x01 HTTP/1.1\r\nHo st: g\r\n\r\n")
    assert raw_status(answer) == 400
    assert json_for_broken_requests() == (b'"code": "bad_request"' in answer[1])


def test_oversized_heads_are_refused(ready: Ready) -> None:
    with ready.gateway.client() as client:
        assert refusal(client.post(CHAT + "?" + "x" * 9000, json=chat())) == (414, "url_too_long")
        assert refusal(client.post(CHAT, json=chat(), headers={"x": "y" * 17000})) == (431, "headers_too_large")
        assert client.post(CHAT, json=chat(), headers={"x": "y" * 14000}).status_code == 200


def test_health_needs_no_key_and_is_the_gateways_own(ready: Ready) -> None:
    answer = get(ready.gateway.url + "/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
    assert refusal(post(ready.gateway.url + "/health")) == (405, "method_not_supported")
    assert ready.engine.seen == []


def test_the_engines_own_refusals_pass_untouched(ready: Ready) -> None:
    with ready.gateway.client() as client:
        answer = client.post(CHAT, json=chat(model="other"))
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NotFoundError"


def test_request_ids_are_passed_or_made_and_always_come_back(ready: Ready) -> None:
    with ready.gateway.client() as client:
        client.post(CHAT, json=chat(), headers={"X-Request-Id": "mine-1"})
        made = client.post(CHAT, json=chat())
        bad = client.post(CHAT, json=chat(), headers={"X-Request-Id": 'x" "y'})
        refused = client.get("/nothing", headers={"X-Request-Id": "mine-2"})
    at_engine = [seen.headers["x-request-id"] for seen in ready.engine.seen]
    assert at_engine == ["mine-1", made.headers["x-request-id"], bad.headers["x-request-id"]]
    assert all(re.fullmatch(r"[0-9a-f-]{36}", name) for name in at_engine[1:])
    assert refused.headers["x-request-id"] == "mine-2"


def test_the_log_has_the_name_of_the_key_and_never_a_key(ready: Ready) -> None:
    with ready.gateway.client(BOB_KEY) as client:
        client.post(CHAT + "?secret=1", json=chat(), headers={"X-Request-Id": "logged-1"})
    stranger = {"X-Request-Id": "logged-2", "Authorization": "Bearer nobody-knows"}
    get(ready.gateway.url + '/no"where', headers=stranger)
    until(lambda: {"logged-1", "logged-2"} <= {line["id"] for line in ready.gateway.records()}, "both are logged")
    lines = {line["id"]: line for line in ready.gateway.records()}
    good, bad = lines["logged-1"], lines["logged-2"]
    told = [good[name] for name in ("key", "method", "path", "status", "server")]
    assert told == ["bob@lab", "POST", CHAT, 200, "rank0"]
    assert good["bytes_in"] > 0
    assert good["bytes_out"] > 0
    assert 0 <= good["first_ms"] <= good["total_ms"]
    assert (bad["key"], bad["status"]) == ("-", 404)
    written = ready.gateway.log.read_text()
    assert not any(text in written for text in (ALICE_KEY, BOB_KEY, ENGINE_KEY, "nobody-knows", "secret=1"))


def test_secrets_show_in_neither_the_argv_nor_the_environment(ready: Ready) -> None:
    pid = ready.gateway.process.pid
    for name in ("cmdline", "environ"):
        shown = Path(f"/proc/{pid}/{name}").read_bytes()
        assert b"haproxy" in shown or name == "environ"
        assert not any(key.encode() in shown for key in (ALICE_KEY, BOB_KEY, ENGINE_KEY))


def test_metrics_are_prometheus_on_loopback(ready: Ready) -> None:
    port = ready.gateway.spec.stats_port
    text = get(f"http://127.0.0.1:{port}/metrics").text
    assert 'haproxy_server_status{proxy="engines",server="rank0",state="UP"} 1' in text
    assert get(f"http://127.0.0.1:{port}/").status_code == 404
