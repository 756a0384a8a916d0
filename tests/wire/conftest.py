"""Fixtures over a real sshd (``server.py``)."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.run.local import LocalTransport
from orchestrator.run.ssh import SshTransport
from orchestrator.run.transport import Transport
from tests.wire.server import CONFIG, SSHD, Relay, Sshd, answers, free_port, keygen, wait_for


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.fail("these tests need OpenSSH's server program: apt-get install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd refuses to start as root without it
    folder, port = tmp_path_factory.mktemp("sshd"), free_port()
    keygen(folder / "host_ed25519")
    keygen(folder / "host_rsa", "rsa")
    keygen(folder / "client")
    shutil.copy(folder / "client.pub", folder / "authorized_keys")
    config = folder / "sshd_config"
    config.write_text(CONFIG.format(port=port, folder=folder))
    with subprocess.Popen([SSHD, "-D", "-f", str(config), "-E", str(folder / "log")]) as child:
        try:
            wait_for(lambda: answers(port), f"sshd to listen; its log:\n{folder / 'log'}")
            yield Sshd(folder, port, child.pid)
        finally:
            child.terminate()


@pytest.fixture(scope="session", params=["local", "ssh"])
def transport(request: pytest.FixtureRequest, sshd: Sshd) -> Iterator[Transport]:
    """The same tests over both transports, for the contract is one; and all over one connection, as in real life."""
    made: Transport = LocalTransport("spark-1") if request.param == "local" else sshd.transport()
    with contextlib.closing(made):
        yield made


@pytest.fixture
def over_ssh(sshd: Sshd) -> Iterator[SshTransport]:
    with contextlib.closing(sshd.transport()) as made:
        yield made


@pytest.fixture
def relay(sshd: Sshd) -> Iterator[Relay]:
    with contextlib.closing(Relay(sshd.port)) as made:
        yield made


@pytest.fixture
def mute() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])
