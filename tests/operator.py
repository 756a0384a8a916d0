"""An operator for tests: runs the real command in a folder and a home of its own, and talks to the endpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx

UNDO_S = 120.0
"""How long a command may take to undo what it began."""


@dataclass(frozen=True)
class Operator:
    """``deployment`` is what his verbs name, ``host`` and ``gateway_port`` where its clients come in."""

    folder: Path
    env: dict[str, str]
    gateway_port: int
    deployment: str = "tiny"
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.gateway_port}"

    @property
    def key(self) -> str:
        return (self.folder / "home/.config/sparkctl/keys" / self.deployment).read_text(encoding="utf-8").strip()

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command that ends with the block at the latest, as with Ctrl-C: a failed assertion leaves none behind."""
        argv = [sys.executable, "-m", "orchestrator.cli", *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    try:
                        process.communicate(timeout=UNDO_S)
                    except subprocess.TimeoutExpired:
                        process.kill()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=600)
            return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def processes(self) -> dict[int, str]:
        """Every process that runs in this home, seen from behind: through /proc, not through sparkctl."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                env = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                name = line or (entry / "comm").read_text().strip()
            except (OSError, ValueError, IndexError):  # not a process, or one that ended while we looked
                continue
            if state != "Z" and f"HOME={self.folder}/home".encode() in env.split(b"\0"):
                found[int(entry.name)] = name
        return found

    def status(self) -> dict[str, Any]:
        (found,) = json.loads(self.run("status", self.deployment, "--json").stdout)
        return dict(found)

    def chat(self, tokens: int = 4, **more: Any) -> httpx.Response:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello fox"}], "max_tokens": tokens}
        body |= {"temperature": 0, "ignore_eos": True, **more}
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def answers(self) -> bool:
        try:
            return self.chat().status_code == 200
        except httpx.HTTPError:
            return False

    def refuses(self) -> bool:
        """As it must while the gang is not ready: 503, and when to come again."""
        try:
            response = self.chat()
        except httpx.HTTPError:
            return False
        return response.status_code == 503 and "retry-after" in response.headers


def wait_for(what: str, probe: Callable[[], bool], deadline_s: float) -> None:
    """Ask until it is so; a time-out is a failure that says what was waited for."""
    until = monotonic() + deadline_s
    while not probe():
        assert monotonic() < until, f"{what}: not within {deadline_s:g} s"
        sleep(0.2)


def begins(process: subprocess.Popen[str], phase: str) -> None:
    """Read on until a command says that ``phase`` begins."""
    said = []
    for line in process.stderr or ():
        said.append(line)
        if f"] {phase}" in line:
            return
    raise AssertionError(f"{phase}: has not begun; it said\n{''.join(said)}")


def press_ctrl_c(process: subprocess.Popen[str], phase: str, first: Callable[[], object] = bool) -> str:
    """Ctrl-C as soon as a command says that ``phase`` begins, after a call of ``first``; all that it said then."""
    assert process.stderr is not None
    begins(process, phase)
    first()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=UNDO_S)
    assert process.returncode == 130, err
    return err
