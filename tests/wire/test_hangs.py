"""Nothing hangs: every wait on a node that fell silent ends in its time. All the waits run side by side, once."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.run.ssh import SshTransport
from orchestrator.run.transport import ConnectionLost, NodeError, Unreachable
from tests.wire.server import Relay, Sshd, wait_for

SILENCE_BOUND_S = 30.0

Call = Callable[[SshTransport, Relay, Path], None]


def run_then_freeze(transport: SshTransport, relay: Relay, folder: Path) -> None:
    started = folder / "started"
    freeze_when(started.exists, relay)
    transport.run(("sh", "-c", 'touch "$1"; exec sleep 100', "sh", str(started)), deadline_s=90)


def follow_then_freeze(transport: SshTransport, relay: Relay, folder: Path) -> None:
    started = folder / "started"
    freeze_when(started.exists, relay)
    transport.follow(("sh", "-c", 'touch "$1"; exec sleep 100', "sh", str(started)), lambda _: None, lambda: False)


def put_then_freeze(transport: SshTransport, relay: Relay, folder: Path) -> None:
    freeze_when(lambda: any(folder.iterdir()), relay)
    transport.put(str(folder / "file"), b"x" * 200_000_000, 0o600)


def freeze_when(holds: Callable[[], bool], relay: Relay) -> None:
    def watch() -> None:
        wait_for(holds, "the call to be under way", 30.0)
        relay.freeze()

    threading.Thread(target=watch, daemon=True).start()


def lost_after_s(sshd: Sshd, folder: Path, call: Call) -> float:
    folder.mkdir()
    with (
        contextlib.closing(Relay(sshd.port)) as relay,
        contextlib.closing(sshd.transport(port=relay.port)) as transport,
    ):
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="the connection was lost during"):
            call(transport, relay, folder)
        took_s = time.monotonic() - began
        relay.thaw()
        assert transport.run(("echo", "again"), deadline_s=10).stdout == "again\n"
        return took_s


def idle_then_freeze(sshd: Sshd) -> None:
    """A link that died while nobody used it is replaced without a word."""
    with (
        contextlib.closing(Relay(sshd.port)) as relay,
        contextlib.closing(sshd.transport(port=relay.port)) as transport,
    ):
        assert transport.run(("true",), deadline_s=10).code == 0
        relay.freeze()
        threading.Timer(1.0, relay.thaw).start()
        assert transport.run(("echo", "again"), deadline_s=10).stdout == "again\n"


def mute_port(sshd: Sshd) -> NodeError:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with contextlib.closing(sshd.transport(port=port)) as transport, pytest.raises(Unreachable) as caught:
            transport.run(("true",), deadline_s=10)
        return caught.value


@pytest.mark.slow
def test_every_silent_link_is_given_up_in_time(sshd: Sshd, tmp_path: Path) -> None:
    calls: dict[str, Call] = {"run": run_then_freeze, "follow": follow_then_freeze, "put": put_then_freeze}
    with ThreadPoolExecutor(len(calls) + 2) as pool:
        lost = {name: pool.submit(lost_after_s, sshd, tmp_path / name, call) for name, call in calls.items()}
        idle, mute = pool.submit(idle_then_freeze, sshd), pool.submit(mute_port, sshd)
        for name, took in lost.items():
            assert took.result() < SILENCE_BOUND_S, name
        idle.result()
        problem = mute.result()
    assert "no answer within 10 s while 127.0.0.1 port" in problem.what
    assert "waiting for its SSH greeting" in problem.what
