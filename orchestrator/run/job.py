"""A call in progress, as both transports see it: what to feed, where output goes, and how another thread ends it."""

from __future__ import annotations

import contextlib
import posixpath
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.run.transport import Cancelled, DeadlineExceeded, PutFailed

STOPPED = 143
"""Exit code of a ``follow`` that we ended ourselves: 128 + SIGTERM, as a shell would report it."""

LINGER_S = 2.0
"""How long output may stay silent after the command itself has ended, while a child of it holds the pipe open."""

WORDS_LIMIT_BYTES = 128 * 1024 - 1
"""Linux takes no longer single argument, and over SSH the whole command is one argument of the login shell."""

Chunk = Callable[[bytes], None]


class Job:
    """One call that ``cancel`` can end from another thread. Selectable, so a waiting loop wakes at once."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._flag = threading.Event()

    @property
    def cancelled(self) -> bool:
        return self._flag.is_set()

    def cancel(self) -> None:
        self._flag.set()
        with contextlib.suppress(OSError):  # the call has just ended and closed its side
            self._theirs.send(b"x")

    def wait(self, timeout_s: float) -> bool:
        return self._flag.wait(timeout_s)

    def fileno(self) -> int:
        return self._ours.fileno()

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


class Jobs:
    """The calls in progress on one node; usually one, two while a heartbeat runs beside an action."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Job] = set()

    @contextlib.contextmanager
    def one(self) -> Iterator[Job]:
        job = Job()
        with self._lock:
            self._open.add(job)
        try:
            yield job
        finally:
            with self._lock:
                self._open.discard(job)
            job.close()

    def cancel(self) -> None:
        with self._lock:
            for job in self._open:
                job.cancel()


@dataclass(frozen=True, slots=True)
class Talk:
    """What one command is fed and where its output goes."""

    out: Chunk
    err: Chunk
    stdin: bytes = b""
    deadline_s: float | None = None
    stop: Callable[[], bool] = lambda: False


class Watch:
    """The reasons to end a command before it ends itself, looked at on every turn of a waiting loop."""

    def __init__(self, node: str, argv: tuple[str, ...], job: Job, talk: Talk) -> None:
        self._node, self._argv, self._job, self._talk = node, argv, job, talk
        self._began = time.monotonic()

    def stopped(self) -> bool:
        """True when the caller's ``stop`` says so; raises ``Cancelled`` or ``DeadlineExceeded`` when it is time."""
        if self._job.cancelled:
            raise cancelled(self._node, brief(self._argv))
        limit_s = self._talk.deadline_s
        if limit_s is not None and time.monotonic() - self._began > limit_s:
            raise DeadlineExceeded(self._node, f"{brief(self._argv)} did not end within {limit_s:g} s; it was ended")
        return self._talk.stop()


class Lines:
    """Bytes of one stream in, whole lines out. A last line without a newline comes out at ``finish``."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line, self._rest = line, b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for one in whole:
            self._line(text(one))

    def finish(self) -> None:
        if self._rest:
            self._line(text(self._rest))
            self._rest = b""


def both(line: Callable[[str], None], stop: Callable[[], bool]) -> tuple[Talk, Callable[[], None]]:
    """A talk that hands over the whole lines of both streams, and what to call at the end.

    Each stream keeps its own rest, for they come over two pipes and a line must not be cut by one of the other.
    """
    out, err = Lines(line), Lines(line)

    def finish() -> None:
        out.finish()
        err.finish()

    return Talk(out.feed, err.feed, stop=stop), finish


def cancelled(node: str, what: str) -> Cancelled:
    return Cancelled(node, f"{what} was cancelled")


def disk_full(node: str, path: str, size_bytes: int) -> PutFailed:
    """The one way to say it, for both transports."""
    look = shlex.join(("df", "-h", posixpath.dirname(path)))
    return PutFailed(node, f"disk full on {node}: {path} needs {size_bytes} bytes", f"make room on {node}; see: {look}")


def text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", errors="replace")


def brief(argv: tuple[str, ...]) -> str:
    """The command for a message: one line, at most 80 characters."""
    words = " ".join(shlex.join(argv).split())
    return words if len(words) <= 80 else words[:77] + "..."


def quoted(argv: tuple[str, ...]) -> bytes:
    """The command line that a POSIX login shell reads back as exactly ``argv``.

    Raises ``ValueError`` for what no argument vector can carry: no words, a NUL, or more than 128 KiB.
    """
    if not argv:
        raise ValueError("a command should have at least one word")
    line = shlex.join(argv).encode("utf-8", errors="surrogateescape")
    if b"\0" in line:
        raise ValueError(f"a command cannot carry a NUL byte: {brief(argv)}")
    if len(line) > WORDS_LIMIT_BYTES:
        raise ValueError(
            f"a command should be at most {WORDS_LIMIT_BYTES} bytes, found {len(line)}: "
            "send the data through stdin or put"
        )
    return line
