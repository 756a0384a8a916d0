"""Writing one file whole or not at all over SFTP."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
import stat
import threading
from collections.abc import Iterator
from typing import Any

from orchestrator.run.job import Job, cancelled, disk_full
from orchestrator.run.transport import PutFailed, Transport

CHUNK_BYTES = 1 << 18
OPEN_DEADLINE_S = 10.0

File = tuple[str, bytes, int]
"""Path (absolute, or beginning with ``~/``), content, mode."""


def write_whole(channel: Any, node: str, file: File, job: Job) -> None:
    """Temporary file beside, mode, content, fsync, rename. Raises ``PutFailed`` or ``Cancelled``, with no file left."""
    path, data, mode = file
    if not path.startswith(("/", "~/")):
        raise ValueError(f"a path on a node should be absolute or begin with ~/, found {path}")
    connection = channel.transport
    with _session(channel, job) as sftp:
        target = posixpath.join(sftp.normalize("."), path[2:]) if path.startswith("~/") else path
        folder, name = posixpath.split(target)
        beside = posixpath.join(folder, f".{name}.{secrets.token_hex(4)}")
        done = False
        try:
            _make_dirs(sftp, folder)
            _write(sftp, beside, (data, mode), job)
            if job.cancelled:
                raise cancelled(node, f"writing {path}")
            sftp.posix_rename(beside, target)
            done = True
        except (OSError, EOFError) as problem:
            if job.cancelled or not connection.is_active():
                raise
            raise PutFailed(node, f"cannot write {path}: {_reason(problem)}") from problem
        finally:
            if not done:
                _forget(connection, beside)


def disk_is_full(transport: Transport, path: str, size_bytes: int) -> PutFailed | None:
    """Ask ``df`` about the nearest directory that exists; None when there is room for ``size_bytes``."""
    script = (
        'd=$1; case $d in "~/"*) d=$HOME/${d#??};; esac; while ! [ -d "$d" ]; do d=$(dirname "$d"); done; df -Pk "$d"'
    )
    answer = transport.run(("sh", "-c", script, "sparkctl-df", path), deadline_s=10.0)
    lines = answer.stdout.splitlines()
    words = lines[-1].split() if answer.code == 0 and len(lines) > 1 else []
    free_kib = next((int(w[3]) for w in [words] if len(w) >= 6 and w[3].isdigit()), None)
    if free_kib is None or free_kib * 1024 > size_bytes:
        return None
    return disk_full(transport.node, path, size_bytes)


@contextlib.contextmanager
def _session(channel: Any, job: Job) -> Iterator[Any]:
    from paramiko import SFTPClient  # type: ignore[import-untyped, unused-ignore]

    channel.invoke_subsystem("sftp")
    with _closed_on_cancel(channel, job):
        yield SFTPClient(channel)


@contextlib.contextmanager
def _closed_on_cancel(channel: Any, job: Job) -> Iterator[None]:
    """SFTP calls block and know nothing of a cancel; closing their channel wakes them."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            if job.cancelled:
                channel.close()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _make_dirs(sftp: Any, folder: str) -> None:
    try:
        if stat.S_ISDIR(sftp.stat(folder).st_mode):
            return
    except FileNotFoundError:
        _make_dirs(sftp, posixpath.dirname(folder))
    with contextlib.suppress(OSError):  # somebody else may be making it; if it is missing, the write says so
        sftp.mkdir(folder, 0o700)


def _write(sftp: Any, beside: str, content: tuple[bytes, int], job: Job) -> None:
    data, mode = content
    with sftp.open(beside, "wx") as handle:
        handle.chmod(mode)  # before the first byte, so that a secret is never readable by others
        handle.set_pipelined(True)
        for start in range(0, len(data), CHUNK_BYTES):
            if job.cancelled:
                return
            handle.write(data[start : start + CHUNK_BYTES])
        _fsync(sftp, handle)
    written = sftp.stat(beside).st_size
    if written != len(data):
        raise OSError(f"only {written} of {len(data)} bytes arrived")


def _fsync(sftp: Any, handle: Any) -> None:
    from paramiko.sftp import CMD_EXTENDED  # type: ignore[import-untyped, unused-ignore]

    handle.set_pipelined(False)
    with contextlib.suppress(OSError):  # an extension of OpenSSH; without it the rename is still atomic
        sftp._request(CMD_EXTENDED, "fsync@openssh.com", handle.handle)


def _forget(connection: Any, beside: str) -> None:
    """Remove the temporary file, over a session of its own: the first may be what was cancelled."""
    if not connection.is_active():
        return
    with (
        contextlib.suppress(Exception),
        contextlib.closing(Job()) as job,
        contextlib.closing(connection.open_session(timeout=OPEN_DEADLINE_S)) as channel,
        _session(channel, job) as sftp,
    ):
        sftp.remove(beside)


def _reason(problem: OSError | EOFError) -> str:
    if isinstance(problem, PermissionError):
        return "permission denied"
    if isinstance(problem, FileNotFoundError):
        return "no such directory, and it could not be made"
    return str(problem) or "the node's SFTP server ended"
