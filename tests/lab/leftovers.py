"""What a lab leaves on this machine when it is killed: recorded while it runs, removed by the next one."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.lab import network, processes
from tests.lab.rootfs import CACHE

_RECORD = CACHE / "running.json"
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Record:
    """A running lab: its folder, how many nodes it has, and each node's first process with its start time in ticks."""

    folder: str
    count: int
    processes: Mapping[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """Stores the record, so that a later run can clean up after this one."""
        half = _RECORD.with_suffix(".half")
        half.write_text(json.dumps(asdict(self)))
        half.rename(_RECORD)


def node_name(number: int) -> str:
    """The name of node `number`, from 1."""
    return f"spark-{number}"


def remove_recorded() -> None:
    """Removes what the recorded lab made: processes, wires, cgroups, disks; then the record. Without one, nothing."""
    if not _RECORD.exists():
        return
    record = Record(**json.loads(_RECORD.read_text()))
    for pid, started in record.processes.items():
        if processes.started_at(int(pid)) == started:  # else the number is another process's by now
            processes.end(processes.descendants(int(pid)))
    for command in network.down(record.count):
        subprocess.run(command, capture_output=True, check=False)
    for group in _cgroups():
        for inner in sorted(group.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
            inner.rmdir()
        group.rmdir()
    for number in range(1, record.count + 1):
        shutil.rmtree(Path(record.folder) / node_name(number), ignore_errors=True)
    _RECORD.unlink()


def _cgroups() -> list[Path]:
    return [path for path in (_CGROUPS / "sparkctl-lab", *_CGROUPS.glob("*/sparkctl-lab")) if path.is_dir()]


def find() -> list[str]:
    """Everything of a lab that this machine still has, in words; looked for by name and not by record."""

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    found = [f"device: {line}" for line in lines("ip", "-o", "link") if "sparklab" in line]
    found += [f"namespace: {line}" for line in lines("ip", "netns") if "sparklab" in line]
    found += [f"route: {line}" for line in lines("ip", "route", "show", "table", "all") if "10.77." in line]
    mounts = Path("/proc/mounts").read_text().splitlines()
    found += [f"mount: {line}" for line in mounts if "lab-spark-" in line or "sparklab" in line]
    found += [f"cgroup: {path}" for path in _cgroups()]
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    commands = {pid: processes.command_line(pid) for pid in pids}
    ours = ("boot.sh spark-", "--machine=spark-")
    found += [f"process: {pid} {line}" for pid, line in commands.items() if any(mark in line for mark in ours)]
    return found
