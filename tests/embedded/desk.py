"""An operator's desk for tests: runs the real command in a home of its own and looks from outside and from behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
from pathlib import Path

from tests.operator import Operator

ROOT = Path(__file__).parent.parent.parent
PORTS = ("engine", "agent", "check", "gateway_metrics", "ray", "ray_client", "rendezvous")


class Desk(Operator):
    """Both loopback nodes are this machine, so everything can be seen from behind, through /proc."""

    @staticmethod
    def make(folder: Path) -> Desk:
        """Ports are asked from the OS once and written into a profile and a cluster file of this folder."""
        gateway, *ports = _free_ports(len(PORTS) + 1)
        profile = (ROOT / "profiles" / "tiny.yaml").read_text(encoding="utf-8")
        profile += "ports:\n" + "".join(f"  {name}: {port}\n" for name, port in zip(PORTS, ports, strict=True))
        (folder / "profiles").mkdir()
        (folder / "profiles" / "tiny.yaml").write_text(profile, encoding="utf-8")
        broken = profile.replace("name: tiny\n", "name: broken\n", 1).replace("  dtype:", "  no-such-flag: 1\n  dtype:")
        broken = broken.replace("readiness:\n", "readiness:\n  breaker_attempts: 1\n")
        (folder / "profiles" / "broken.yaml").write_text(broken, encoding="utf-8")
        (folder / "cluster.yaml").write_text(CLUSTER.format(port=gateway), encoding="utf-8")
        (folder / "home").mkdir()
        env = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKCTL_"))}
        env |= {"HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""}
        return Desk(folder, env, gateway)

    @property
    def state(self) -> Path:
        return self.folder / "home" / ".local" / "state" / "sparkctl"

    @property
    def model(self) -> Path:
        return self.folder / "home" / ".cache" / "sparkctl" / "models" / "tiny-moe"

    def pids(self, word: str) -> list[int]:
        return [pid for pid, line in self.processes().items() if word in line]

    def generations(self) -> set[int]:
        """Whose processes run: the environment of each that an agent started names its generation's directory."""
        marks: list[str] = []
        for pid, line in self.processes().items():
            with contextlib.suppress(OSError):  # it ended while we looked
                environ = Path(f"/proc/{pid}/environ").read_text(errors="replace")
                marks += re.findall(rf"{self.state}/[a-z]+/g(\d+)/", f"{line} {environ}")
        return {int(mark) for mark in marks}

    def held(self) -> set[str]:
        """Files in /tmp and /dev/shm that our processes have open or mapped."""
        found: set[str] = set()
        for pid in self.processes():
            with contextlib.suppress(OSError):  # it ended while we looked
                found |= {line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
                for handle in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        found.add(str(handle.readlink()))
        elsewhere = (str(self.folder), str(ROOT), sys.prefix)  # a clone may itself lie in /tmp
        return {path for path in found if path.startswith(("/tmp/", "/dev/shm/")) and not path.startswith(elsewhere)}

    def scratch(self) -> set[str]:
        """The directories of this desk's own in /tmp, as the plan names them."""
        plan = json.loads(self.run("plan", "tiny", "--nodes", "2", "--json", "--offline").stdout)
        return {rank["unit"]["scratch"] for rank in plan["ranks"]}

    def listening(self) -> set[int]:
        """Which of our ports are listened on, by connecting to them."""
        text = (self.folder / "profiles" / "tiny.yaml").read_text(encoding="utf-8").partition("ports:")[2]
        ours = {int(line.split(":")[1]) for line in text.splitlines() if ":" in line} | {self.gateway_port}
        return {port for port in ours if any(_answers(host, port) for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"))}


CLUSTER = """\
name: desk
topology: loopback
nodes:
  - {{name: node-a, accelerator: none, rails: [{{netdev: lo, address: 127.0.0.2}}]}}
  - {{name: node-b, accelerator: none, rails: [{{netdev: lo, address: 127.0.0.3}}]}}
gateway: {{address: 127.0.0.1, port: {port}}}
bits: {{models: ~/.cache/sparkctl/models, models_from: ~/.cache/sparkctl/models}}
"""


def _free_ports(count: int) -> list[int]:
    """Ports outside the ephemeral range are not handed out to others between now and their use."""
    found: list[int] = []
    candidate = 21000 + os.getpid() % 9000
    while len(found) < count:
        candidate += 1
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", candidate))
            except OSError:
                continue
        found.append(candidate)
    return found


def _answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0
