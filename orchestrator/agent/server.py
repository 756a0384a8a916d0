"""What one agent answers: its status to peers and operators, metrics, readiness, HAProxy's agent-check."""

from __future__ import annotations

import hmac
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.plan.rankfile import RankFile, RankState, RankStatus

STALE_S = 5.0
"""A status older than this is not believed: the agent's own loop has stopped."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What the agent last published, and when (monotonic)."""

    status: RankStatus
    at: float
    was_ready: bool = False
    leaving: bool = False
    failed_total: int = 0


class Board:
    """Where the agent publishes and the servers read; one reference, replaced whole, so no lock is needed."""

    def __init__(self) -> None:
        self.notice: Notice | None = None

    def ready(self) -> bool:
        """Fails closed: false as well when nothing was published lately."""
        notice = self.notice
        return notice is not None and notice.status.ready and time.monotonic() - notice.at < STALE_S

    def check(self) -> str:
        """HAProxy's word: nothing new for one that leaves or is interrupted, ``down`` for a dead one."""
        notice = self.notice
        if self.ready():
            return "up ready"
        if notice is None or time.monotonic() - notice.at >= STALE_S:
            return "down"
        interrupted = notice.status.state == "running" and notice.was_ready
        return "drain" if notice.leaving or interrupted else "down"


class BoardCollector(Collector):
    """The board as Prometheus metrics."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def collect(self) -> Iterator[Metric]:
        notice = self.board.notice
        if notice is None:
            return
        status = notice.status
        info = {name: str(getattr(status, name)) for name in ("deployment", "generation", "rank", "node")}
        yield _gauge("sparkctl_rank_info", "Which rank this is.", info, 1)
        states = GaugeMetricFamily("sparkctl_rank_state", "1 for the state this rank is in.", labels=["state"])
        for state in get_args(RankState):
            states.add_metric([state], float(state == status.state))
        yield states
        yield GaugeMetricFamily("sparkctl_attempt", "The attempt at hand.", value=status.attempt)
        yield GaugeMetricFamily("sparkctl_ready", "1 while every gate is open.", value=float(self.board.ready()))
        gates = GaugeMetricFamily("sparkctl_gate_open", "1 while this gate is open.", labels=["gate"])
        for gate in status.gates:
            gates.add_metric([gate.name], float(gate.open is True))
        yield gates
        yield GaugeMetricFamily("sparkctl_processes", "Processes of the attempt.", value=len(status.processes))
        yield CounterMetricFamily(
            "sparkctl_attempts_failed", "Attempts that ended in failure.", value=notice.failed_total
        )


def _gauge(name: str, text: str, labels: dict[str, str], value: float) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=list(labels))
    gauge.add_metric(list(labels.values()), value)
    return gauge


def token(plan: RankFile) -> str:
    """The bearer token of this generation. Raises ``ValueError`` for an empty one: it would let anyone in."""
    text = Path(plan.agent_token_file).read_text().strip()
    if not text:
        raise ValueError(f"{plan.agent_token_file} should hold the token of this generation, found an empty file")
    return text


class Quiet(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A threading server that says nothing of clients that hang up."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class Server(Quiet):
    """``/rank`` for who has the token; ``/ready`` and ``/metrics`` for anyone on the fabric.

    Not the library's ThreadingHTTPServer: that looks its name up when it binds, which takes long without DNS.
    """

    def __init__(self, plan: RankFile, board: Board) -> None:
        self.board = board
        self.token = token(plan).encode()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(BoardCollector(board))
        super().__init__((plan.address, plan.agent_port), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10.0
    protocol_version = "HTTP/1.1"
    server_version = "sparkctl-agent"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/rank":
            self._rank()
        elif path == "/ready":
            ready = self.server.board.ready()
            self._answer(200 if ready else 503, "text/plain", b"ready\n" if ready else b"not ready\n")
        elif path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", generate_latest(self.server.registry))
        else:
            self._answer(404, "text/plain", b"not found\n")

    def _rank(self) -> None:
        given = self.headers.get("Authorization", "").encode()
        notice = self.server.board.notice
        if not hmac.compare_digest(given, b"Bearer " + self.server.token):
            self._answer(401, "text/plain", b"the bearer token of this generation is needed\n")
        elif notice is None:
            self._answer(503, "text/plain", b"no status yet\n")
        else:
            self._answer(200, "application/json", notice.status.to_json().encode())

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing: polls come every second."""


class CheckServer(Quiet):
    """HAProxy's agent-check: one line, then the end."""

    def __init__(self, plan: RankFile, board: Board) -> None:
        self.board = board
        super().__init__((plan.address, plan.check_port), CheckHandler)


class CheckHandler(socketserver.BaseRequestHandler):
    server: CheckServer

    def handle(self) -> None:
        self.request.sendall(f"{self.server.board.check()}\n".encode())


def serve(plan: RankFile, board: Board) -> None:
    """Listen on the fabric address. Raises ``OSError`` while that is not possible (yet)."""
    servers: list[socketserver.BaseServer] = [Server(plan, board)]
    if plan.rank == 0 and plan.check_port:
        try:
            servers.append(CheckServer(plan, board))
        except OSError:
            servers[0].server_close()
            raise
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
