"""One open SSH connection: dialled, its host key verified, logged in, and watched until it ends.

Everything up to a usable connection has ten seconds. After that, a connection that says nothing for ten seconds is
asked a question, and one that is silent for 22 is closed, so that whoever waits on a half-open link knows within 30.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from orchestrator.run.hostkeys import HostKeys, records_of
from orchestrator.run.job import Job, cancelled
from orchestrator.run.knownhosts import kinds
from orchestrator.run.sshkeys import Keys
from orchestrator.run.sshsettings import Files, Settings, by_hand, hops, resolve
from orchestrator.run.transport import NodeError, Unreachable
from orchestrator.spec.cluster import Ssh

CONNECT_DEADLINE_S = 10.0
ASK_AFTER_S = 10.0
GIVE_UP_AFTER_S = 22.0
TCP_USER_TIMEOUT_MS = 20_000

# Without a handler of its own, Paramiko's tracebacks of refused logins would land on the operator's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Link:
    """A logged-in connection (``fabric`` is Fabric's) and the silence watch over it."""

    def __init__(self, fabric: Any, heard: Heard, let_go: Callable[[], None]) -> None:
        self.fabric = fabric
        self._heard, self._let_go = heard, let_go
        self._over = threading.Event()
        threading.Thread(target=self._watch, name=f"link {fabric.host}", daemon=True).start()

    @property
    def alive(self) -> bool:
        return bool(self.fabric.is_connected)

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(Exception):  # a dead connection may object to being closed
            self.fabric.client.close()
        self._let_go()

    def _watch(self) -> None:
        asked = False
        while not self._over.wait(1.0) and self.alive:
            silent_s = time.monotonic() - self._heard.at
            if silent_s > GIVE_UP_AFTER_S:
                self.close()
            elif silent_s > ASK_AFTER_S and not asked:
                # A thread of its own: on a link that takes no more bytes, asking blocks.
                threading.Thread(target=self._ask, daemon=True).start()
                asked = True
            elif silent_s <= ASK_AFTER_S:
                asked = False

    def _ask(self) -> None:
        with contextlib.suppress(Exception):
            self.fabric.transport.global_request("keepalive@openssh.com", wait=True)


class Heard:
    """A socket that remembers when bytes last came in (monotonic seconds)."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.at = time.monotonic()

    def recv(self, size: int) -> bytes:
        data: bytes = self._inner.recv(size)
        self.at = time.monotonic()
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Dial:
    """One attempt to get a link. ``stage`` says how far it came, for the message when time runs out."""

    def __init__(self, node: str, ssh: Ssh, files: Files) -> None:
        self._node, self._ssh, self._files = node, ssh, files
        self._closers: list[Callable[[], object]] = []
        self._given_up = False
        self.stage = "reading your SSH configuration"

    def within_deadline(self, job: Job) -> Link:
        """Dial in a thread, so that neither a slow name server nor a mute node outlasts the deadline or a Ctrl-C."""
        box: list[Link | BaseException] = []
        done = threading.Event()

        def work() -> None:
            try:
                box.append(self._link())
            except BaseException as problem:
                self._let_go()
                box.append(problem)
            if self._given_up:
                self._let_go()
            done.set()

        threading.Thread(target=work, name=f"dial {self._node}", daemon=True).start()
        end = time.monotonic() + CONNECT_DEADLINE_S
        try:
            while not done.wait(0.02):
                if job.cancelled:
                    raise cancelled(self._node, "connecting")
                if time.monotonic() > end:
                    raise self._too_slow()
        except BaseException:
            self._given_up = True
            self._let_go()
            raise
        if isinstance(box[0], BaseException):
            raise self._in_words(box[0])
        return box[0]

    def host_key(self) -> tuple[Settings, Any]:
        """The key that the node shows, with no login there (to gates before it, yes). Raises ``NodeError``."""
        try:
            to = resolve(self._node, self._ssh, self._files)
            transport = _preferring(kinds(records_of(to), to.name))(self._way_to(to))
            self._closers.append(transport.close)
            transport.banner_timeout = CONNECT_DEADLINE_S
            transport.start_client(timeout=CONNECT_DEADLINE_S)
            return to, transport.get_remote_server_key()
        except Exception as problem:
            raise self._in_words(problem) from None
        finally:
            self._let_go()

    def _link(self) -> Link:
        settings = resolve(self._node, self._ssh, self._files)
        heard = Heard(self._way_to(settings))
        return Link(self._login(settings, heard), heard, self._let_go)

    def _way_to(self, to: Settings) -> Any:
        if to.proxy_command:
            return self._through_command(to.proxy_command)
        channel: Any = None
        places = [*(resolve(self._node, hop, self._files) for hop in hops(to.jump)), to]
        for here, there in pairwise(places):
            gate = self._login(here, channel or self._tcp(here.host, here.port))
            channel = gate.transport.open_channel(
                "direct-tcpip", (there.host, there.port), ("", 0), timeout=CONNECT_DEADLINE_S
            )
        return channel or self._tcp(to.host, to.port)

    def _tcp(self, host: str, port: int) -> socket.socket:
        self.stage = f"connecting to {host} port {port}"
        line = socket.create_connection((host, port), CONNECT_DEADLINE_S)
        self._closers.append(line.close)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
        return line

    def _through_command(self, command: str) -> socket.socket:
        self.stage = f"connecting through `{command}`"
        ours, theirs = socket.socketpair()
        line = command if command.startswith("exec ") else f"exec {command}"
        with theirs:  # in a session of its own, so that Ctrl-C does not cut the way that the clean-up needs
            child = subprocess.Popen(
                ["/bin/sh", "-c", line], stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True
            )
        self._closers += [functools.partial(child.wait, 2.0), child.terminate, ours.close]
        return ours

    def _login(self, settings: Settings, line: Any) -> Any:
        from fabric import Config, Connection
        from paramiko.config import SSHConfig  # type: ignore[import-untyped, unused-ignore]

        self.stage = (
            f"{settings.host} port {settings.port} accepted the connection; waiting for its SSH greeting and keys"
        )
        keys, records = Keys(self._node, settings), records_of(settings)

        def logging_in() -> None:
            self.stage = f"logging in to {settings.host} as {settings.user}"

        fabric = Connection(
            settings.host,
            user=settings.user,
            port=settings.port,
            config=Config(lazy=True, ssh_config=SSHConfig()),
            gateway=False,
            forward_agent=False,
            connect_timeout=int(CONNECT_DEADLINE_S),
            connect_kwargs={
                "sock": line,
                "auth_strategy": keys,
                "transport_factory": _preferring(kinds(records, settings.name)),
                "channel_timeout": CONNECT_DEADLINE_S,
            },
        )
        fabric.client.set_missing_host_key_policy(HostKeys(self._node, settings, records, logging_in))
        self._closers.append(fabric.client.close)
        fabric.open()
        return fabric

    def _let_go(self) -> None:
        while self._closers:
            with contextlib.suppress(Exception):
                self._closers.pop()()

    def _too_slow(self) -> Unreachable:
        return Unreachable(self._node, f"no answer within {CONNECT_DEADLINE_S:g} s while {self.stage}", self._look())

    def _look(self) -> str:
        return by_hand(self._ssh, self._files)

    def _in_words(self, problem: BaseException) -> BaseException:
        if isinstance(problem, NodeError):
            return problem
        if isinstance(problem, socket.gaierror):
            return Unreachable(self._node, f"the name {self._ssh.host} is not known: {problem.strerror}", self._look())
        if isinstance(problem, ConnectionRefusedError):
            return Unreachable(self._node, f"connection refused while {self.stage}: does sshd run there?", self._look())
        if isinstance(problem, TimeoutError):
            return self._too_slow()
        if "SSH protocol banner" in str(problem):
            what = f"no SSH greeting came ({self.stage}): is another service there, or a proxy between?"
            return Unreachable(self._node, what, self._look())
        if isinstance(problem, (OSError, EOFError)) or type(problem).__module__.startswith("paramiko"):
            return Unreachable(self._node, f"{problem or 'the other side hung up'} while {self.stage}", self._look())
        return problem


def _preferring(on_record: tuple[str, ...]) -> Callable[..., Any]:
    """A Paramiko transport that asks the node for the key types on record first."""

    def make(line: Any, **options: Any) -> Any:
        from paramiko import Transport  # type: ignore[import-untyped, unused-ignore]

        transport = Transport(line, **options)
        wanted = [w for kind in on_record for w in (("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,))]
        choices = transport.get_security_options()
        first = [kind for kind in wanted if kind in choices.key_types]
        choices.key_types = (*first, *(kind for kind in choices.key_types if kind not in first))
        return transport

    return make
