"""One node of the lab: power, links, and a view of it from behind."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab import network, processes
from tests.lab.disk import ON_NODE, Disk

# unshare's pid namespace inside this machine's, and nspawn's inside that.
_PID_DEPTH = 2
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = ("env", "-i", _PATH, "HOME=/root", "LC_ALL=C.UTF-8")
_SESSION = r"sshd(-session)?: |/usr/lib/systemd/systemd --user|\(sd-pam\)"
_TABLE = "inet lab_block_ssh"
_BLOCK_SSH = f"table {_TABLE} {{ chain ssh {{ type filter hook input priority -10; tcp dport 22 drop; }}; }}"


@dataclass(frozen=True)
class Container:
    """A container as the node's docker lists it. `state` is docker's word: running, exited, restarting, ..."""

    id: str
    name: str
    image: str
    state: str
    labels: str


@dataclass(frozen=True)
class Snapshot:
    """What a command may have changed on a node: files under /home/spark (path to mode and sha256), containers,
    listening TCP ports, temporary files, command lines (without sessions, which end a moment after their client)."""

    files: Mapping[str, str]
    containers: frozenset[Container]
    listening: frozenset[str]
    temporary: frozenset[str]
    processes: tuple[str, ...]


class Node:
    """A node, numbered from 1. `ssh` is the argv prefix that logs in as user spark with the operator's key."""

    def __init__(self, number: int, disk: Disk, operator: Path) -> None:
        self.number = number
        self.name = f"spark-{number}"
        self.address = network.address(network.MANAGEMENT, number)
        self.fabric = tuple(network.address(rail.subnet, number) for rail in network.RAILS)
        known = f"UserKnownHostsFile={operator / 'known_hosts'}"
        options = ("-o", known, "-o", "GlobalKnownHostsFile=none", "-o", "BatchMode=yes")
        self.ssh = ("ssh", "-F", "none", "-i", str(operator / "id"), *options, f"spark@{self.address}")
        self._disk = disk
        self._process: subprocess.Popen[bytes] | None = None

    # Power

    def power_on(self) -> None:
        """Starts the node (main thread only); `wait_ready` waits until it is of use."""
        boot = ("bash", str(ON_NODE / "boot.sh"), self.name, str(self._disk.folder), str(self._disk.rootfs))
        unshare = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--")
        argv = ("setpriv", "--pdeathsig", "KILL", *unshare, *boot, f"/run/netns/{network.namespace(self.number)}")
        with (self._disk.folder / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def power_off(self) -> None:
        """Pulls the plug: everything on the node ends at once; the disk stays. A node that is off stays off."""
        if self._process is not None:
            processes.end(processes.descendants(self._process.pid))
            self._process.wait()
            self._process = None

    def reboot(self, deadline_s: float = 60) -> None:
        """`systemctl reboot`, then waits until sshd and dockerd answer from the new boot."""
        before = self.pid1
        self.sh("systemctl reboot", check=False)
        processes.wait_until(lambda: self._pid1() not in (None, before), f"{self.name} shuts down", deadline_s)
        self.wait_ready(deadline_s)

    def wait_ready(self, deadline_s: float = 60) -> None:
        """Waits until sshd greets and dockerd answers. Raises TimeoutError with the end of the console log."""
        try:
            processes.wait_until(lambda: self._greets() and self._docker_answers(), f"{self.name} is up", deadline_s)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; its console ends with:\n{self.console()[-2000:]}") from None

    def console(self) -> str:
        """What the node's boots have printed so far."""
        return (self._disk.folder / "console.log").read_text(errors="replace")

    def _greets(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _docker_answers(self) -> bool:
        pid1 = self._pid1()
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(f"/proc/{pid1}/root/run/docker.sock")
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(64)
        except OSError:
            return False

    # From behind

    @property
    def process_id(self) -> int | None:
        """The process on this machine that the node lives and dies with; None when it was not started."""
        return self._process.pid if self._process else None

    def _pid1(self) -> int | None:
        return processes.first_in_namespace(self._process.pid, _PID_DEPTH) if self._process else None

    @property
    def pid1(self) -> int:
        """The node's process 1, as a process id of this machine. Raises RuntimeError when the node is off."""
        pid = self._pid1()
        if pid is None:
            raise RuntimeError(f"{self.name} is off; power_on() starts it")
        return pid

    @property
    def root(self) -> Path:
        """The node's running file system as seen from this machine; valid until it reboots."""
        return Path(f"/proc/{self.pid1}/root")

    def sh(self, cmd: str, *, check: bool = True, timeout_s: float = 60) -> str:
        """Runs a bash line as root inside the node, not over SSH; returns its standard output without the last newline.

        Raises RuntimeError with both outputs when it fails and `check` is set.
        """
        enter = ("nsenter", "--target", str(self.pid1), "--all", "--root", "--wd=/", *_ENVIRONMENT, "bash", "-c", cmd)
        done = subprocess.run(
            enter, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            said = f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
            raise RuntimeError(f"{self.name}: `{cmd}` exited {done.returncode}: {said}")
        return done.stdout.rstrip("\n")

    def containers(self) -> tuple[Container, ...]:
        """All containers, running or not, newest first."""
        lines = self.sh("docker ps --all --no-trunc --format '{{json .}}'").splitlines()
        rows = [json.loads(line) for line in lines]
        # Docker writes labels in any order, another one each time.
        labels = [",".join(sorted(row["Labels"].split(","))) for row in rows]
        return tuple(
            Container(row["ID"], row["Names"], row["Image"], row["State"], label)
            for row, label in zip(rows, labels, strict=True)
        )

    def pids(self, pattern: str) -> tuple[int, ...]:
        """Processes, containers' included, whose command line matches a regular expression; ids are this machine's,
        so they tell two boots apart."""
        found = processes.descendants(self.pid1)
        return tuple(pid for pid in found if re.search(pattern, processes.command_line(pid)))

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to a process that `pids` gave. Raises ValueError when it is not one of this node's."""
        if pid not in processes.descendants(self.pid1):
            raise ValueError(f"process {pid} is not on {self.name}")
        os.kill(pid, number)

    def snapshot(self) -> Snapshot:
        """What a later snapshot can be compared with."""
        home = self.root / "home/spark"
        files = {str(path.relative_to(home)): _describe(path) for path in sorted(home.rglob("*"))}
        listening = frozenset(line.split()[3] for line in self.sh("ss -Hltn").splitlines())
        lines = (processes.command_line(pid) for pid in processes.descendants(self.pid1))
        running = sorted(line for line in lines if line and not re.match(_SESSION, line))
        return Snapshot(files, frozenset(self.containers()), listening, self._temporary(), tuple(running))

    def _temporary(self) -> frozenset[str]:
        """What lies in the shared places; systemd's own folders there have another name at each boot."""
        found = [path for place in ("tmp", "var/tmp", "dev/shm") for path in (self.root / place).rglob("*")]
        names = (f"/{path.relative_to(self.root)}" for path in found)
        return frozenset(name for name in names if "systemd-private-" not in name)

    # Links

    def link_down(self, rail: int) -> None:
        """Pulls the cable of rail 0 or 1 at the switch: the node's device loses its carrier and keeps its address."""
        self._switch_port(rail, "down")

    def link_up(self, rail: int) -> None:
        """Puts the cable back."""
        self._switch_port(rail, "up")

    def _switch_port(self, rail: int, state: str) -> None:
        port = network.switch_port(self.number, rail)
        subprocess.run(("ip", "-n", network.SWITCH, "link", "set", port, state), check=True)

    def rail_bytes(self, rail: int) -> int:
        """Bytes received and sent on a rail since the lab came up."""
        netdev, inside = network.RAILS[rail].netdev, network.namespace(self.number)
        shown = subprocess.run(
            ("ip", "-n", inside, "-s", "-j", "link", "show", "dev", netdev), capture_output=True, check=True
        )
        counted = json.loads(shown.stdout)[0]["stats64"]
        return int(counted["rx"]["bytes"]) + int(counted["tx"]["bytes"])

    def block_ssh(self) -> None:
        """Drops every packet to port 22, of open connections too: the node seems unreachable and goes on working."""
        self._nft(_BLOCK_SSH)

    def unblock_ssh(self) -> None:
        """Lets SSH in again."""
        self._nft(f"delete table {_TABLE}")

    def _nft(self, rules: str) -> None:
        subprocess.run(("ip", "netns", "exec", network.namespace(self.number), "nft", rules), check=True)


def _describe(path: Path) -> str:
    status = path.lstat()
    if path.is_symlink():
        return f"link to {path.readlink()}"
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return f"{status.st_mode & 0o7777:04o} {content}"
