"""OpenSSH as a subprocess, for bulk: several times as fast as forwarding inside Python, and what rsync speaks through.

It reads the operator's own configuration like the transport does, and never asks a question on the terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.run.job import STOPPED
from orchestrator.run.sshsettings import Files, by_hand
from orchestrator.run.transport import Cancelled, NodeError, Transport, Unreachable
from orchestrator.spec.cluster import Ssh

TUNNEL_DEADLINE_S = 20.0
KILL_AFTER_S = 2.0
_ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward")
_REFUSED = re.compile(r"remote port forwarding failed|forwarding request failed", re.IGNORECASE)

_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "5",
    "ControlMaster": "no",
    "ControlPath": "none",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "LogLevel": "INFO",
}


class TunnelRefused(NodeError):
    """The node's sshd does not let us listen on its loopback."""


@dataclass(frozen=True, slots=True)
class Way:
    """How OpenSSH reaches a node: what the cluster file says, over the operator's own configuration."""

    node: str
    ssh: Ssh
    files: Files

    def words(self) -> tuple[str, ...]:
        """``ssh`` and its options, without the host."""
        words = ["ssh", *(("-F", str(self.files.config)) if self.files.config else ())]
        for name, value in _OPTIONS.items():
            words += ["-o", f"{name}={value}"]
        if self.files.known_hosts:
            words += ["-o", f'UserKnownHostsFile="{self.files.known_hosts}"', "-o", "GlobalKnownHostsFile=/dev/null"]
        if self.ssh.identity:
            words += ["-o", "IdentitiesOnly=yes", "-i", self.ssh.identity]
        if self.ssh.user:
            words += ["-l", self.ssh.user]
        if "port" in self.ssh.model_fields_set:
            words += ["-p", str(self.ssh.port)]
        return tuple(words)


class Child:
    """A program on the operator's machine, in a session of its own; both output streams are read as one."""

    def __init__(self, node: str, argv: tuple[str, ...], remedy: str = "") -> None:
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            raise NodeError(node, f"{argv[0]} should be installed on this machine, found none", remedy) from None

    def follow(self, line: Callable[[str], None], stop: Callable[[], bool]) -> int:
        """Hand over lines (ended by a newline or a carriage return) until the end. Exit code; 143 when stopped."""
        rest = b""
        while (data := self.read(0.1)) != b"":
            if stop():
                self.end()
                return STOPPED
            *whole, rest = re.split(rb"[\r\n]+", rest + (data or b""))
            for one in whole:
                line(one.decode("utf-8", errors="replace"))
        if rest:
            line(rest.decode("utf-8", errors="replace"))
        return self._process.wait()

    def read(self, wait_s: float) -> bytes | None:
        """What has come within ``wait_s``; ``None`` when nothing has, ``b""`` at the end."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], wait_s)[0]:
            return None
        return os.read(self._process.stdout.fileno(), 65536)

    def end(self) -> None:
        """SIGTERM to the whole group, then SIGKILL. Harmless when it has ended."""
        for number, wait_s in ((signal.SIGTERM, KILL_AFTER_S), (signal.SIGKILL, None)):
            if self._process.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def cancelled_with(transport: Transport) -> Iterator[Callable[[], bool]]:
    """True once ``transport`` is cancelled: a program of this machine is no call of the transport, and must end too."""
    over, cancelled = threading.Event(), threading.Event()

    def wait() -> None:
        try:
            transport.follow(("sleep", "604800"), lambda _: None, over.is_set)
        except Cancelled:
            cancelled.set()
        except NodeError:
            """A lost connection ends nothing here: the program has its own and will notice."""

    thread = threading.Thread(target=wait, name=f"watch {transport.node}", daemon=True)
    thread.start()
    try:
        yield cancelled.is_set
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def tunnel(way: Way, port: int, stop: Callable[[], bool]) -> Iterator[int]:
    """A port on the node's loopback, chosen by its sshd, that leads to ``port`` on ours while the block runs.

    Raises ``TunnelRefused``, ``Unreachable`` or ``Cancelled``. ``ExitOnForwardFailure`` is not asked for: it would also
    end the connection when a LocalForward of the operator's own configuration is taken by another session.
    """
    forward = ("-N", "-T", "-R", f"127.0.0.1:0:127.0.0.1:{port}", "--", way.ssh.host)
    child = Child(way.node, (*way.words(), *forward), "install OpenSSH's client program on this machine")
    try:
        yield _allocated(way, child, stop)
    finally:
        child.end()


def _allocated(way: Way, child: Child, stop: Callable[[], bool]) -> int:
    said, began = "", time.monotonic()
    while time.monotonic() - began < TUNNEL_DEADLINE_S:
        if stop():
            raise Cancelled(way.node, "opening the tunnel was cancelled")
        data = child.read(0.05)
        said += (data or b"").decode("utf-8", errors="replace")
        found = _ALLOCATED.search(said)
        if found:
            return int(found[1])
        if _REFUSED.search(said):
            raise TunnelRefused(
                way.node,
                "its sshd refuses remote forwarding (ssh -R), so no image can be sent through it",
                "set AllowTcpForwarding to yes or remote in /etc/ssh/sshd_config on the node, then reload sshd",
            )
        if data == b"":
            raise Unreachable(
                way.node, f"ssh ended before the tunnel stood: {_last_line(said)}", by_hand(way.ssh, way.files)
            )
    raise Unreachable(
        way.node, f"no tunnel within {TUNNEL_DEADLINE_S:g} s: {_last_line(said)}", by_hand(way.ssh, way.files)
    )


def _last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
