"""A read-only image registry over one OCI image layout, for as long as nodes pull from it.

``docker pull`` by digest asks for manifests and blobs, both named by their sha256: files of the layout, served as they
are. Docker verifies every digest itself and takes plain http from a loopback address without any setting. A
registry program would do the same, but a laptop has none, and it would want its own storage next to the layout.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

from orchestrator.run.layout import LARGEST_MANIFEST_BYTES

CHUNK_BYTES = 4 * 1024 * 1024
IDLE_S = 120.0
TLS_GREETING = b"\x16"
_THING = re.compile(r"/v2/[a-z0-9][a-z0-9._/-]{0,254}/(manifests|blobs)/sha256:([0-9a-f]{64})")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@contextlib.contextmanager
def serving(layout: Path) -> Iterator[Registry]:
    """A registry over ``layout`` on a free loopback port; when the block ends, so do all its connections."""
    registry = Registry(layout)
    thread = threading.Thread(target=registry.serve_forever, args=(0.05,), name="registry", daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        registry.server_close()
        registry.hang_up()
        thread.join()


class Registry(ThreadingHTTPServer):
    """``served_bytes`` counts what has gone out in bodies, for a progress line."""

    daemon_threads = True

    def __init__(self, layout: Path) -> None:
        self.blobs = layout / "blobs" / "sha256"
        self.served_bytes = 0
        self._counting = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def count(self, more_bytes: int) -> None:
        with self._counting:
            self.served_bytes += more_bytes

    def opened(self, line: socket.socket) -> None:
        with self._counting:
            self._open.add(line)

    def closed(self, line: socket.socket) -> None:
        with self._counting:
            self._open.discard(line)

    def hang_up(self) -> None:
        with self._counting:
            for line in self._open:
                with contextlib.suppress(OSError):  # the client was faster
                    line.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news: whoever pulls says what went wrong."""


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry
    timeout = IDLE_S

    def setup(self) -> None:
        self.server.opened(self.request)
        super().setup()

    def handle(self) -> None:
        """Docker tries TLS first, and a greeting in TLS may have no line end to wait for.

        With containerd's image store it goes on in plain http only after an answer that begins with ``HTTP/``.
        """
        if self.connection.recv(1, socket.MSG_PEEK) == TLS_GREETING:
            self.connection.recv(CHUNK_BYTES)
            self.connection.sendall(b"HTTP/1.0 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        super().handle()

    def finish(self) -> None:
        self.server.closed(self.request)
        super().finish()

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if path in {"/v2", "/v2/"}:
            self._say(200, b"{}", with_body)
            return
        wanted = _THING.fullmatch(path)
        if wanted is None:
            self._say(404, _error("UNSUPPORTED", "only manifests and blobs by digest are served here"), with_body)
            return
        try:
            file = (self.server.blobs / wanted[2]).open("rb")
        except OSError:
            code = "MANIFEST_UNKNOWN" if wanted[1] == "manifests" else "BLOB_UNKNOWN"
            self._say(404, _error(code, f"no sha256:{wanted[2]} in this layout"), with_body)
            return
        with file:
            self._send(file, wanted[1], wanted[2], with_body)

    def _send(self, file: BinaryIO, what: str, value: str, with_body: bool) -> None:
        size = file.seek(0, 2)
        part = _part(self.headers.get("Range", ""), size)
        if part is None:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, count = part
        self.send_response(200 if count == size else 206)
        self.send_header("Content-Type", _media_type(file, size) if what == "manifests" else "application/octet-stream")
        self.send_header("Content-Length", str(count))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Docker-Content-Digest", f"sha256:{value}")
        if count != size:
            self.send_header("Content-Range", f"bytes {first}-{first + count - 1}/{size}")
        self.end_headers()
        while with_body and count > 0:
            sent = self.connection.sendfile(file, first, min(count, CHUNK_BYTES))
            if sent == 0:  # the file was cut short while it was read
                self.close_connection = True
                return
            self.server.count(sent)
            first, count = first + sent, count - sent

    def _say(self, code: int, body: bytes, with_body: bool) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name is the standard library's
        """Nothing: the terminal belongs to the operator."""


def _error(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def _part(header: str, size: int) -> tuple[int, int] | None:
    """(first byte, count) that a Range header asks for; the whole without one that we know; ``None``: not to be had."""
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or asked[1] == asked[2] == "":
        return 0, size
    if asked[1] == "":
        count = min(int(asked[2]), size)
        return (size - count, count) if count else None
    first = int(asked[1])
    last = min(int(asked[2]), size - 1) if asked[2] else size - 1
    return (first, last - first + 1) if first <= last else None


def _media_type(file: BinaryIO, size: int) -> str:
    """What the manifest says it is; an OCI manifest may leave that out."""
    file.seek(0)
    with contextlib.suppress(ValueError):
        manifest = json.loads(file.read(LARGEST_MANIFEST_BYTES)) if size <= LARGEST_MANIFEST_BYTES else {}
        if isinstance(manifest, dict):
            kind = "index" if "manifests" in manifest else "manifest"
            return str(manifest.get("mediaType") or f"application/vnd.oci.image.{kind}.v1+json")
    return "application/octet-stream"
