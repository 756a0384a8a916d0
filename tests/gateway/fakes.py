"""Stand-ins for what the gateway talks to: an engine and an agent, each deciding nothing by itself."""

from __future__ import annotations

import json
import select
import socket
import socketserver
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONG_S = 60.0
ANSWER = {"id": "x", "created": 0, "model": "tiny"}


@dataclass(frozen=True)
class Seen:
    """One request as it reached the engine. ``body_bytes`` is what arrived, not what was announced."""

    method: str
    path: str
    headers: dict[str, str]
    body_bytes: int


class QuietServer(ThreadingHTTPServer):
    """A server whose broken connections are part of the test and not worth a traceback."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


class FakeEngine:
    """An OpenAI-like upstream. A request's ``fake`` says what it does: ``stream``, ``silent``, ``die``, ``drop``.

    Streams send one token, then wait for ``go``; silent requests wait for ``go`` before any byte. A client that goes
    away while the engine waits sets ``hung_up``.
    """

    def __init__(self, name: str = "rank0") -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.go = threading.Event()
        self.hung_up = threading.Event()
        self.streaming = threading.Semaphore(0)
        engine = self

        class Handler(EngineHandler):
            """The handler of this engine alone."""

            fake = engine

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop listening and let every waiting request end."""
        self.go.set()
        self.server.shutdown()
        self.server.server_close()


class EngineHandler(BaseHTTPRequestHandler):
    """Answers like vLLM where the gateway could tell the difference."""

    protocol_version = "HTTP/1.1"
    fake: FakeEngine

    def do_GET(self) -> None:
        self._note(0)
        self._json(200, {"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    def do_POST(self) -> None:
        body = self._body()
        self._note(len(body))
        asked = json.loads(body or b"{}")
        what = asked.get("fake", "stream" if asked.get("stream") else "")
        if asked.get("model", "tiny") != "tiny":
            self._json(404, {"error": {"message": "no such model", "type": "NotFoundError", "param": "", "code": 404}})
        elif what == "stream":
            self._stream(asked.get("tokens", 3))
        elif what == "die":
            self._stream(1, whole=False)
        elif what == "drop" or (what == "silent" and not self._wait()):
            self.close_connection = True
        else:
            message = {"role": "assistant", "content": f"hello from {self.fake.name}"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._json(200, {**ANSWER, "object": "chat.completion", "choices": [choice]})

    def _note(self, body_bytes: int) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.fake.seen.append(Seen(self.command, self.path, headers, body_bytes))

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _json(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, tokens: int, whole: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for count in range(tokens):
            choice = {"index": 0, "delta": {"content": f"t{count} "}, "finish_reason": None}
            event = {**ANSWER, "object": "chat.completion.chunk", "choices": [choice]}
            self._chunk(f"data: {json.dumps(event)}\n\n".encode())
            self.fake.streaming.release()
            if count == 0 and not self._wait():
                break
        else:
            if whole:
                self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")
                return
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _wait(self) -> bool:
        """Wait for ``go``; False when the other side went away before that."""
        while not self.fake.go.wait(0.02):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and self._gone():
                self.fake.hung_up.set()
                return False
        return True

    def _gone(self) -> bool:
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except ConnectionResetError:
            return True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


class FakeAgent:
    """An agent: ``word`` on its check port, ``ready_status`` on ``GET /ready`` (503 when it is down, unless told).

    It can die, hang and come back.
    """

    def __init__(self, word: str = "up ready") -> None:
        self.word = word
        self.ready_status: int | None = None
        self.thawed = threading.Event()
        self.thawed.set()
        self.check_port = self.ready_port = 0
        self.servers: list[socketserver.BaseServer] = []
        self.revive()

    def say(self, word: str) -> None:
        """Say ``word`` from now on; ``/ready`` follows it."""
        self.word = word

    def revive(self) -> None:
        """Listen, on the same ports as before."""
        agent = self

        class Check(socketserver.BaseRequestHandler):
            """One line a connection."""

            def handle(self) -> None:
                if agent.thawed.wait(LONG_S):
                    self.request.sendall(f"{agent.word}\n".encode())

        class Ready(BaseHTTPRequestHandler):
            """``GET /ready``."""

            def do_GET(self) -> None:
                if agent.thawed.wait(LONG_S):
                    self.send_response(agent.ready_status or (503 if agent.word == "down" else 200))
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
                """Say nothing."""

        check = CheckServer(("127.0.0.1", self.check_port), Check)
        ready = QuietServer(("127.0.0.1", self.ready_port), Ready)
        self.check_port, self.ready_port = int(check.server_address[1]), int(ready.server_address[1])
        self.servers = [check, ready]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def die(self) -> None:
        """Stop listening on both ports at once."""
        servers, self.servers = self.servers, []
        for server in servers:
            server.shutdown()
            server.server_close()

    def freeze(self) -> None:
        """Accept connections and never answer them, as a stopped process does."""
        self.thawed.clear()

    def close(self) -> None:
        """The end of the test."""
        self.thawed.set()
        self.die()


class CheckServer(socketserver.ThreadingTCPServer):
    """The agent-check port."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""
