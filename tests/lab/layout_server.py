"""A read-only registry over an OCI image layout, for trying the lab without the product's own."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serving(layout: Path) -> Iterator[int]:
    """Serves the layout's blobs under any repository name on a loopback port, which it yields."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, digest = self.path.rpartition("/")
            blob = layout / "blobs" / digest.replace(":", "/")
            if self.path == "/v2/":
                self._answer(HTTPStatus.OK, "application/json", 0)
            elif not (kind.endswith(("/manifests", "/blobs")) and blob.is_file()):
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", 0)
            else:
                manifest = kind.endswith("/manifests")
                media = json.loads(blob.read_bytes())["mediaType"] if manifest else "application/octet-stream"
                self._answer(HTTPStatus.OK, media, blob.stat().st_size)
                if self.command == "GET":
                    with blob.open("rb") as content:
                        shutil.copyfileobj(content, self.wfile, 1 << 20)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _answer(self, status: HTTPStatus, media: str, length: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
