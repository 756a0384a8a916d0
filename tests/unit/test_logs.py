"""Which lines of output a person is not shown unless they ask for all."""

import pytest

from orchestrator.verbs.logs import Line, noise

DOWN = "Server engine/rank-0 is DOWN, reason: Layer4 connection problem"
NOISE = (
    ("0", 'engine: INFO:     127.0.0.1:46594 - "GET /health HTTP/1.1" 200 OK'),
    ("0", 'engine: (APIServer pid=7) INFO:     127.0.0.1:46594 - "GET /v1/models HTTP/1.1" 200 OK'),
    ("0", 'INFO:     127.0.0.1:46594 - "GET /metrics HTTP/1.1" 200 OK'),
    ("gateway", f"[WARNING]  (12028) : {DOWN}"),
    ("gateway", "[ALERT]    (12028) : backend 'engine' has no server available!"),
)
NEWS = (
    ("0", 'engine: INFO:     127.0.0.1:46594 - "GET /health HTTP/1.1" 503 Service Unavailable'),
    ("0", 'engine: INFO:     127.0.0.1:46594 - "POST /v1/chat/completions HTTP/1.1" 200 OK'),
    ("0", "sparkctl: attempt 1 running"),
    ("gateway", DOWN),
    ("gateway", "backend engine has no server available!"),
    ("gateway", "[ALERT]    (12028) : Binding [c.cfg:9] for frontend f: cannot bind socket (Address already in use)"),
)


@pytest.mark.parametrize(("rank", "text"), NOISE)
def test_noise(rank: str, text: str) -> None:
    assert noise(Line("a", rank, text))


@pytest.mark.parametrize(("rank", "text"), NEWS)
def test_news(rank: str, text: str) -> None:
    assert not noise(Line("a", rank, text))
