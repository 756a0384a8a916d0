"""FakeEngine: an engine's HTTP face in a page, run as a process. Files in its directory change how it behaves.

``key`` holds its API key. While ``hang`` exists completions do not end, while ``sick`` exists /health says 503, and
``model`` holds the name it serves.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONTEXT_TOKENS = 512


class FakeEngine(BaseHTTPRequestHandler):
    generated = 0
    running = 0
    here = Path()

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if (self.here / "sick").exists() else 200, "")
        elif self.path == "/metrics":
            counters = {"generation_tokens_total": FakeEngine.generated, "num_requests_running": FakeEngine.running}
            self.answer(200, "".join(f'vllm:{name}{{engine="0"}} {value}.0\n' for name, value in counters.items()))
        elif self.allowed():
            model = {"id": (self.here / "model").read_text(), "max_model_len": CONTEXT_TOKENS}
            self.answer(200, json.dumps({"object": "list", "data": [model]}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if not self.allowed():
            return
        FakeEngine.running += 1
        while (self.here / "hang").exists():
            time.sleep(0.05)
        FakeEngine.running -= 1
        FakeEngine.generated += 2
        self.answer(200, json.dumps({"choices": [], "usage": {"completion_tokens": 2}}))

    def allowed(self) -> bool:
        if self.headers.get("Authorization") == "Bearer " + (self.here / "key").read_text():
            return True
        self.answer(401, "no key")
        return False

    def answer(self, code: int, body: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    FakeEngine.here = Path(sys.argv[2])
    print("FakeEngine listens", flush=True)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), FakeEngine).serve_forever()
