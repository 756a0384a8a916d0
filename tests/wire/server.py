"""A real sshd of the test's own on 127.0.0.1, and a relay in front of it that can stop forwarding.

Runs as root and as any other user; the system's own sshd is never touched.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.run.ssh import SshTransport
from orchestrator.spec.cluster import Ssh

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")

CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_ed25519
HostKey {folder}/host_rsa
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 50
MaxSessions 20
UseDNS no
# bash reads ~/.bashrc for a command over SSH unless it believes to be nested: this keeps tests apart from the user.
SetEnv SHLVL=2
Subsystem sftp internal-sftp
"""


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    size = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *size, "-N", passphrase, "-C", "test", "-f", str(path)], check=True)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Sshd:
    """Where the test's sshd listens and the files that belong to it."""

    folder: Path
    port: int
    pid: int

    @property
    def key(self) -> Path:
        return self.folder / "client"

    def ssh(self, *, port: int = 0, identity: Path | None = None) -> Ssh:
        return Ssh(host="127.0.0.1", user=getpass.getuser(), port=port or self.port, identity=str(identity or self.key))

    def known_hosts(self, port: int = 0, kind: str = "ed25519") -> Path:
        """A known_hosts file that vouches for this sshd at ``port``."""
        port = port or self.port
        file = self.folder / f"known_hosts.{kind}.{port}"
        public = (self.folder / f"host_{kind}.pub").read_text()
        beside = file.with_name(f"{file.name}.{threading.get_ident()}")
        beside.write_text(f"[127.0.0.1]:{port} {public}")
        beside.replace(file)  # threads of one test may read it meanwhile
        return file

    def transport(self, node: str = "spark-1", port: int = 0) -> SshTransport:
        return SshTransport(node, self.ssh(port=port), self.known_hosts(port), config=Path("/dev/null"))


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as line:
        return line.recv(4) == b"SSH-"
    return False


def wait_for(holds: Callable[[], bool], what: str, deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, f"waited {deadline_s:g} s in vain for {what}"
        time.sleep(0.01)


class Relay:
    """Forwards bytes between one client and the sshd until told to freeze; then both sides stay open and silent."""

    def __init__(self, to_port: int) -> None:
        self._to_port, self._frozen, self._lines = to_port, threading.Event(), list[socket.socket]()
        self._front = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._front.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        self._frozen.set()

    def thaw(self) -> None:
        """New connections are forwarded again; the frozen ones stay dead."""
        self._frozen = threading.Event()

    def cut(self) -> None:
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._front.shutdown(socket.SHUT_RDWR)
        self._front.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._front.accept()
                far = socket.create_connection(("127.0.0.1", self._to_port))
                self._lines += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(*pair, self._frozen), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, frozen: threading.Event) -> None:
        with contextlib.suppress(OSError), source:
            while data := source.recv(65536):
                if frozen.is_set():
                    while True:
                        time.sleep(1.0)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
