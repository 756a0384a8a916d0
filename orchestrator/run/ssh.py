"""A node over SSH: one connection, opened when first needed and again after it was lost.

Fabric makes the connection (``sshlink.py``); this module talks over it. The node's login shell must read quotes as
POSIX does (bash, dash, zsh); fish and csh garble backslashes. Fabric and Paramiko are imported with the first
connection, not before.
"""

from __future__ import annotations

import contextlib
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.run.job import LINGER_S, STOPPED, Job, Jobs, Talk, Watch, both, brief, cancelled, quoted, text
from orchestrator.run.sftp import disk_is_full, write_whole
from orchestrator.run.sshlink import Dial, Link
from orchestrator.run.sshsettings import Files
from orchestrator.run.transport import ConnectionLost, NodeError, PutFailed, Result, Unreachable
from orchestrator.spec.cluster import Ssh

CHUNK_BYTES = 65536
OPEN_DEADLINE_S = 5.0


class SshTransport:
    """One node over SSH. Any number of calls may run at once over the one connection; ``cancel`` ends all of them.

    ``known_hosts`` is used alone, in place of the operator's own files; ``config`` in place of the operator's
    ``~/.ssh/config``. What of that configuration is honoured: see ``sshsettings.py``.
    """

    def __init__(self, node: str, ssh: Ssh, known_hosts: Path | None = None, config: Path | None = None) -> None:
        self.node = node
        self._ssh, self._files = ssh, Files(known_hosts, config)
        self._jobs = Jobs()
        self._dialling = threading.Lock()
        self._link: Link | None = None

    def run(self, argv: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"") -> Result:
        """As ``Transport.run``. A command that a signal ended answers 255: Paramiko does not pass on which signal.

        ``deadline_s`` counts from the moment the connection stands; connecting has its own ten seconds. On a deadline
        or a cancel, sshd is asked to send SIGTERM to the command's process group, and the channel is closed. OpenSSH
        7.9 or newer does so, except for a login as root: there, and where a command ignores SIGTERM or the node cannot
        be reached any more, the command may run on until it next writes.
        """
        out, err = bytearray(), bytearray()
        code = self._command(argv, Talk(out.extend, err.extend, stdin, deadline_s))
        return Result(code, text(out), text(err))

    def follow(self, argv: tuple[str, ...], line: Callable[[str], None], stop: Callable[[], bool]) -> int:
        """As ``Transport.follow``, the lines of stdout and of stderr. Ended by ``stop``, the exit code is 143."""
        talk, finish = both(line, stop)
        code = self._command(argv, talk)
        finish()
        return code

    def put(self, path: str, data: bytes, mode: int) -> None:
        """As ``Transport.put``, over SFTP. ``path`` is absolute or begins with ``~/``.

        Raises ``PutFailed``. No temporary file stays behind, except when the connection is lost in the middle.
        """
        with self._jobs.one() as job, self._channel(job, f"writing {path}") as channel:
            try:
                write_whole(channel, self.node, (path, data, mode), job)
            except PutFailed as problem:
                raise self._explained(problem, path, len(data)) from problem

    def cancel(self) -> None:
        self._jobs.cancel()

    def close(self) -> None:
        with self._dialling:
            if self._link:
                self._link.close()
            self._link = None

    def _command(self, argv: tuple[str, ...], talk: Talk) -> int:
        line = quoted(argv)
        with self._jobs.one() as job, self._channel(job, brief(argv)) as channel:
            channel.exec_command(line)
            code = _converse(channel, job, talk, Watch(self.node, argv, job, talk))
            if code == -1 and _is_dead(channel.transport):
                raise EOFError
            return code if code >= 0 else 255

    @contextlib.contextmanager
    def _channel(self, job: Job, what: str) -> Iterator[Any]:
        """A channel of the open connection; whatever goes wrong with it is told as a ``NodeError``."""
        channel = self._opened(job)
        try:
            yield channel
        except (NodeError, ValueError):
            raise
        except Exception as problem:  # Paramiko has a dozen ways to say that a connection is gone
            if job.cancelled:
                raise cancelled(self.node, what) from problem
            if _is_dead(channel.transport):
                why = f"the connection was lost during: {what}"
                raise ConnectionLost(
                    self.node, why, "it may have run, or still run, there; look before you repeat it"
                ) from problem
            raise Unreachable(self.node, f"the node's sshd refuses: {what}: {problem}") from problem
        finally:
            _hang_up(channel)

    def _opened(self, job: Job) -> Any:
        """A connection that died unnoticed is replaced without a word, for nothing has been asked of it yet."""
        from paramiko import ChannelException, SSHException  # type: ignore[import-untyped, unused-ignore]

        known = self._link
        while True:
            link = self._open(job)
            try:
                return link.fabric.transport.open_session(timeout=OPEN_DEADLINE_S)
            except ChannelException as problem:
                raise Unreachable(self.node, f"the node's sshd refuses another session: {problem}") from problem
            except (SSHException, EOFError, OSError) as problem:
                link.close()
                if link is not known:
                    raise ConnectionLost(self.node, f"the connection was lost at once: {problem}") from problem

    def _open(self, job: Job) -> Link:
        while not self._dialling.acquire(timeout=0.05):
            if job.cancelled:
                raise cancelled(self.node, "connecting")
        try:
            if self._link is None or not self._link.alive:
                if self._link:
                    self._link.close()
                self._link = None
                self._link = Dial(self.node, self._ssh, self._files).within_deadline(job)
            return self._link
        finally:
            self._dialling.release()

    def _explained(self, problem: PutFailed, path: str, size_bytes: int) -> PutFailed:
        """SFTP says only "Failure" for a full disk, so the disk is asked."""
        try:
            full = disk_is_full(self, path, size_bytes)
        except NodeError:
            return problem
        return full or problem


def _converse(channel: Any, job: Job, talk: Talk, watch: Watch) -> int:
    """Move bytes until the command and its output have ended. -1 when no exit code came."""
    rest, heard = memoryview(talk.stdin), time.monotonic()
    with selectors.DefaultSelector() as ready:
        ready.register(job, selectors.EVENT_READ)
        ready.register(channel.fileno(), selectors.EVENT_READ)
        if not rest:
            channel.shutdown_write()
        while True:
            finished = channel.exit_status_ready()  # asked before the pipes, so that nothing slips in between
            quiet = not _drain(channel, talk)
            if not quiet:
                heard = time.monotonic()
            if watch.stopped():
                return STOPPED
            if finished and quiet and (channel.eof_received or channel.closed or time.monotonic() - heard > LINGER_S):
                return int(channel.recv_exit_status())
            if rest:
                rest = _feed(channel, rest)
            if channel.eof_received or channel.closed:
                job.wait(0.01)  # the channel is readable for ever now
            else:
                ready.select(0.0 if rest and channel.send_ready() else 0.02 if rest else 0.1)


def _drain(channel: Any, talk: Talk) -> bool:
    moved = False
    while channel.recv_ready():
        talk.out(channel.recv(CHUNK_BYTES))
        moved = True
    while channel.recv_stderr_ready():
        talk.err(channel.recv_stderr(CHUNK_BYTES))
        moved = True
    return moved


def _feed(channel: Any, rest: memoryview) -> memoryview:
    try:
        while rest and channel.send_ready():
            rest = rest[channel.send(rest[:CHUNK_BYTES]) :]
    except OSError:  # the command does not read the rest, and that is its right
        rest = rest[:0]
    if not rest:
        with contextlib.suppress(OSError):
            channel.shutdown_write()
    return rest


def _hang_up(channel: Any) -> None:
    """Ask sshd to end the command if it still runs, then close the channel. Nobody waits for an answer."""
    from paramiko import Message  # type: ignore[import-untyped, unused-ignore]
    from paramiko.common import cMSG_CHANNEL_REQUEST  # type: ignore[import-untyped, unused-ignore]

    with contextlib.suppress(Exception):  # best effort: the link may be what is broken
        if not channel.exit_status_ready():
            ask = Message()
            ask.add_byte(cMSG_CHANNEL_REQUEST)
            ask.add_int(channel.remote_chanid)
            ask.add_string("signal")
            ask.add_boolean(False)
            ask.add_string("TERM")
            channel.transport._send_user_message(ask)  # the library has no public way to send a signal
    with contextlib.suppress(Exception):
        channel.close()


def _is_dead(connection: Any) -> bool:
    """A channel learns of the end a moment before its connection does."""
    end = time.monotonic() + 0.3
    while connection.is_active() and time.monotonic() < end:
        time.sleep(0.01)
    return not connection.is_active()
