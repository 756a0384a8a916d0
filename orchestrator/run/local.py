"""The operator's own machine as a node: the same contract as SSH, with subprocesses.

Each command runs in the home directory and in a session of its own, so Ctrl-C on the terminal does not reach it; on
cancel or deadline its whole process group gets SIGTERM and, two seconds later, SIGKILL. A command that starts a daemon
and ends leaves the daemon alone, as over SSH.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from orchestrator.run.job import (
    LINGER_S,
    STOPPED,
    Chunk,
    Job,
    Jobs,
    Talk,
    Watch,
    both,
    cancelled,
    disk_full,
    quoted,
    text,
)
from orchestrator.run.transport import PutFailed, Result

KILL_AFTER_S = 2.0
CHUNK_BYTES = 65536
TURN_S = 0.1


class LocalTransport:
    """One node that is this machine. Any number of calls may run at once; ``cancel`` ends all of them."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._jobs = Jobs()

    def run(self, argv: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"") -> Result:
        """As ``Transport.run``. A command that does not exist answers 127, one that may not run 126."""
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
        """As ``Transport.put``. ``path`` is absolute or begins with ``~/``. Raises ``PutFailed``, with no file left."""
        target = Path(path).expanduser()
        if not target.is_absolute():
            raise ValueError(f"a path on a node should be absolute or begin with ~/, found {path}")
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        with self._jobs.one() as job:
            try:
                _make_dirs(target.parent)
                _write(beside, data, mode, job)
                if job.cancelled:
                    raise cancelled(self.node, f"writing {path}")
                beside.replace(target)
                _sync_dir(target.parent)
            except OSError as problem:
                raise _put_failed(self.node, path, len(data), problem) from problem
            finally:
                with contextlib.suppress(OSError):
                    beside.unlink()

    def cancel(self) -> None:
        self._jobs.cancel()

    def close(self) -> None:
        """There is nothing to let go of."""

    def _command(self, argv: tuple[str, ...], talk: Talk) -> int:
        quoted(argv)  # what SSH would refuse is refused here too
        with self._jobs.one() as job:
            try:
                child = _start(argv, talk)
            except FileNotFoundError:
                return _no_start(talk, 127, f"{argv[0]}: not found")
            except PermissionError:
                return _no_start(talk, 126, f"{argv[0]}: may not be run")
            try:
                return _pump(child, job, talk, Watch(self.node, argv, job, talk))
            finally:
                _let_go(child)


def _start(argv: tuple[str, ...], talk: Talk) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if talk.stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path.home(),
        start_new_session=True,
    )


def _no_start(talk: Talk, code: int, why: str) -> int:
    talk.err(f"{why}\n".encode())
    return code


def _pump(child: subprocess.Popen[bytes], job: Job, talk: Talk, watch: Watch) -> int:
    """Move bytes until the command has ended and its output too (or is silent for LINGER_S after the end)."""
    rest, heard = memoryview(talk.stdin), time.monotonic()
    sinks: dict[IO[bytes], Chunk] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(job, selectors.EVENT_READ)
        for pipe, sink in ((child.stdout, talk.out), (child.stderr, talk.err)):
            if pipe:
                sinks[pipe] = sink
                ready.register(pipe, selectors.EVENT_READ)
        if child.stdin:
            os.set_blocking(child.stdin.fileno(), False)
            ready.register(child.stdin, selectors.EVENT_WRITE)
        while sinks or child.poll() is None:
            if watch.stopped():
                return STOPPED
            if child.poll() is not None and time.monotonic() - heard > LINGER_S:
                break
            for key, _ in ready.select(TURN_S if sinks else 0.01):
                if key.fileobj is child.stdin:
                    rest = _feed(child.stdin, rest, ready)
                elif key.fileobj in sinks:
                    heard = time.monotonic()
                    _drain(key.fileobj, sinks, ready)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _feed(pipe: IO[bytes], rest: memoryview, ready: selectors.BaseSelector) -> memoryview:
    try:
        rest = rest[os.write(pipe.fileno(), rest[:CHUNK_BYTES]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:  # the command does not read the rest, and that is its right
        rest = rest[:0]
    if not rest:
        ready.unregister(pipe)
        pipe.close()
    return rest


def _drain(pipe: IO[bytes], sinks: dict[IO[bytes], Chunk], ready: selectors.BaseSelector) -> None:
    data = os.read(pipe.fileno(), CHUNK_BYTES)
    if data:
        sinks[pipe](data)
    else:
        ready.unregister(pipe)
        del sinks[pipe]


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """End the group if the command still runs, and close our ends of its pipes."""
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            _signal_group(child.pid, signal.SIGKILL)
            child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


def _signal_group(leader: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, what)


def _make_dirs(path: Path) -> None:
    """Missing directories become 0700, whatever the umask; those that are there stay as they are."""
    if not path.is_dir():
        _make_dirs(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)


def _write(beside: Path, data: bytes, mode: int, job: Job) -> None:
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.fchmod(handle, mode)
        rest = memoryview(data)
        while rest and not job.cancelled:
            rest = rest[os.write(handle, rest[: 1 << 20]) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_dir(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put_failed(node: str, path: str, size_bytes: int, problem: OSError) -> PutFailed:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(node, path, size_bytes)
    return PutFailed(node, f"cannot write {path}: {problem.strerror}")
