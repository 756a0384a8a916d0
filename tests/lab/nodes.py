"""Real nodes on one machine: each boots systemd with its own sshd, dockerd, disk, processes and links.

    with Lab(Path("/var/tmp/somewhere"), 2) as lab:
        lab.nodes[0].sh("docker info")

Root only. Assertions look from behind, by `nsenter`, and not over SSH; SSH is what is tested. One lab at a time per
machine: a second one waits. Start and power on from the main thread: nodes die with the thread that started them, so
that a killed test run leaves no process.

By hand: `python -m tests.lab.nodes FOLDER [COUNT]` keeps a lab up until Ctrl-C.
"""

import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Self

from tests.lab import leftovers, network, processes
from tests.lab.disk import Disk, make_key
from tests.lab.node import Container, Node, Snapshot
from tests.lab.rootfs import CACHE, node_rootfs

__all__ = ["Container", "Lab", "Node", "Snapshot"]

_LOCK = CACHE / "lab.lock"


class Lab:
    """`count` nodes whose disks, keys and logs are under `folder` (which must not lie on an overlay or a tmpfs).

    `key` is the operator's private key; `known_hosts` lists every node's key by name and by each of its addresses.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.key = folder / "id"
        self.known_hosts = folder / "known_hosts"
        self._count = count
        self._lock: IO[str] | None = None
        self.nodes: tuple[Node, ...] = ()

    def up(self, wait_s: float = 900) -> None:
        """Cleans up after a lab that was killed, then starts the nodes on empty disks and waits until all answer.

        Raises TimeoutError when another lab holds this machine for longer than `wait_s`, or a node does not come up.
        """
        rootfs = node_rootfs()
        self._lock = _acquire(wait_s)
        leftovers.remove_recorded()
        self.folder.mkdir(parents=True, exist_ok=True)
        leftovers.Record(str(self.folder), self._count).write()
        try:
            self._start(rootfs)
        except BaseException:
            self.down()
            raise

    def _start(self, rootfs: Path) -> None:
        for command in network.up(self._count):
            _run(command)
        operator_key, known = make_key(self.key, "operator"), ""
        nodes = []
        for number in range(1, self._count + 1):
            disk = Disk(self.folder / leftovers.node_name(number), rootfs)
            node = Node(number, disk, self.folder)
            host_key = " ".join(disk.lay(node.name, operator_key).split()[:2])
            known += f"{','.join((node.name, node.address, *node.fabric))} {host_key}\n"
            nodes.append(node)
        self.known_hosts.write_text(known)
        self.nodes = tuple(nodes)
        for node in self.nodes:
            node.power_on()
            self._record()
        for node in self.nodes:
            node.wait_ready()

    def _record(self) -> None:
        started = {str(pid): processes.started_at(pid) for node in self.nodes if (pid := node.process_id) is not None}
        leftovers.Record(str(self.folder), self._count, started).write()

    def down(self) -> None:
        """Pulls every node's plug and removes all that the lab made but its keys. Does nothing when the lab is down."""
        if self._lock is None:
            return
        for node in self.nodes:
            node.power_off()
        self.nodes = ()
        leftovers.remove_recorded()
        self._lock.close()
        self._lock = None

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *error: object) -> None:
        self.down()


def _run(command: tuple[str, ...]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` exited {done.returncode}: {done.stderr.strip()}")


def _acquire(wait_s: float) -> IO[str]:
    """The machine's lab lock; the kernel frees it when this process ends, however it ends."""
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    handle = _LOCK.open("w")
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                handle.close()
                raise TimeoutError(f"another lab runs on this machine and did not end within {wait_s:g} s") from None
            time.sleep(0.5)
        else:
            return handle


def main() -> None:
    """Keeps a lab up until Ctrl-C and prints how to get in."""
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m tests.lab.nodes FOLDER [COUNT]")
    with Lab(Path(sys.argv[1]), int((sys.argv[2:] or ["2"])[0])) as lab:
        for node in lab.nodes:
            print(f"{node.name}: {' '.join(node.ssh)}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
