"""A gateway under test: the files in a folder, the real haproxy process, and how to talk to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.plan import gateway
from tests.gateway.fakes import FakeAgent, FakeEngine

ALICE_KEY = "sk-alice-0123456789abcdefghij"
BOB_KEY = "sk-bob-0123456789abcdefghijkl"
ENGINE_KEY = "engine-0123456789abcdefghijkl"
MAX_BODY_BYTES = 1048576
CHAT = "/v1/chat/completions"

# Another build of HAProxy can be judged with HAPROXY=/path/to/haproxy. Debian's lies where only root's PATH looks.
BINARY = shutil.which(
    os.environ.get("HAPROXY", "haproxy"), path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
)
needs_haproxy = pytest.mark.skipif(BINARY is None, reason="no haproxy binary found: apt-get install haproxy")


# Everything here is plain HTTP; loading the system's certificates for every client would be most of the tests' time.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def get(url: str, **more: Any) -> httpx.Response:
    return httpx.get(url, verify=NO_TLS, **more)


def post(url: str, **more: Any) -> httpx.Response:
    return httpx.post(url, verify=NO_TLS, **more)


def haproxy_version() -> tuple[int, int]:
    assert BINARY is not None
    told = subprocess.run([BINARY, "-v"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", told)
    assert found, told
    return int(found[1]), int(found[2])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(true: Callable[[], bool], what: str, deadline_s: float = 10.0) -> float:
    """Look again and again until ``true()``; returns the seconds it took. Otherwise fails the test, saying ``what``."""
    start = time.monotonic()
    while not true():
        if time.monotonic() - start > deadline_s:
            pytest.fail(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - start


def spec_for(*pairs: tuple[FakeEngine, FakeAgent], **changes: Any) -> gateway.GatewaySpec:
    backends = tuple(
        gateway.Backend(engine.name, "127.0.0.1", engine.port, "127.0.0.1", agent.check_port, agent.ready_port)
        for engine, agent in pairs
    )
    given: dict[str, Any] = {"stats_port": free_port(), "max_body_bytes": MAX_BODY_BYTES, "retry_after_s": 7, **changes}
    return gateway.GatewaySpec("127.0.0.1", free_port(), backends, **given)


class Gateway:
    """A running haproxy. ``folder`` has exactly what a node would have."""

    def __init__(self, spec: gateway.GatewaySpec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        hashes = {"alice": gateway.key_hash(ALICE_KEY), "bob@lab": gateway.key_hash(BOB_KEY)}
        for name, text in gateway.files(spec).items():
            place(folder / name, text)
        place(folder / gateway.KEYS_FILE, gateway.keys_map(hashes))
        place(folder / gateway.ENGINE_FILE, gateway.engine_map(ENGINE_KEY))
        self.log = folder.parent / f"{folder.name}.log"
        assert BINARY is not None
        with self.log.open("w") as log, (folder.parent / f"{folder.name}.err").open("w") as errors:
            self.process = subprocess.Popen(gateway.argv(str(folder), BINARY), stdout=log, stderr=errors)
        self.url = f"http://127.0.0.1:{spec.bind_port}"
        until(self.accepts, "haproxy accepts connections")

    def accepts(self) -> bool:
        """On both of its ports: it binds one after the other."""
        assert self.process.poll() is None, "haproxy ended"
        for port in (self.spec.bind_port, self.spec.stats_port or self.spec.bind_port):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) != 0:
                    return False
        return True

    def ready(self) -> bool:
        return get(self.url + "/health").status_code == 200

    def client(self, key: str = ALICE_KEY, **more: Any) -> httpx.Client:
        bearer = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=bearer, timeout=20, verify=NO_TLS, **more)

    def raw(self, data: bytes, key: str | None = ALICE_KEY) -> tuple[int, bytes]:
        """Send bytes as they are (``%AUTH%`` becomes the key's header); status and body of the one answer."""
        auth = f"Authorization: Bearer {key}\r\n" if key else ""
        with socket.create_connection(("127.0.0.1", self.spec.bind_port), timeout=20) as wire:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                wire.sendall(data.replace(b"%AUTH%", auth.encode()))
            answer = http.client.HTTPResponse(wire)
            try:
                answer.begin()
                return answer.status, answer.read()
            finally:
                answer.close()

    def records(self) -> list[dict[str, Any]]:
        """The access log, parsed; what HAProxy itself says (a server is up) is not in it."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def admin(self, *lines: str) -> str:
        """What the runtime socket answers to ``lines``."""
        here = os.open(self.folder, os.O_RDONLY)  # the path of a unix socket has at most 107 bytes; ours may lie deep
        try:
            with socket.socket(socket.AF_UNIX) as wire:
                wire.connect(f"/proc/self/fd/{here}/{gateway.SOCKET_FILE}")
                wire.sendall(";".join(lines).encode() + b"\n")
                return read_all(wire).decode()
        finally:
            os.close(here)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def place(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(0o600)


def read_all(wire: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := wire.recv(65536):
            got += data
    return got


def chat(**fields: object) -> dict[str, object]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **fields}


@contextlib.contextmanager
def gateway_over(folder: Path, *pairs: tuple[FakeEngine, FakeAgent], **changes: Any) -> Iterator[Gateway]:
    """A gateway over ``pairs``; everything is ended on the way out."""
    running = Gateway(spec_for(*pairs, **changes), folder)
    try:
        yield running
    finally:
        running.close()
        for engine, agent in pairs:
            agent.close()
            engine.close()
