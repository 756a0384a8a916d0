"""How long the doctor takes to ask many nodes: each one an sshd of its own here, against ``ssh`` asking them in turn.

All of them are this one machine, so their processors are shared by all: a real desk answers sooner. The cluster has
neither rails nor a profile, so pings, models and images are not in the figure.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from tests.wire.server import CONFIG, SSHD, answers, free_port, keygen, wait_for

# Nodes -> seconds that a doctor over them should take at most.
TARGETS = {4: 3.0, 64: 10.0}
ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def nodes(folder: Path, count: int) -> Iterator[list[int]]:
    """Ports of ``count`` sshd instances with one host key and one client key, ended on the way out."""
    if SSHD is None:
        raise RuntimeError("there is no sshd; apt-get install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host_ed25519", "client"):
        keygen(folder / name)
    keygen(folder / "host_rsa", "rsa")
    shutil.copy(folder / "client.pub", folder / "authorized_keys")
    with contextlib.ExitStack() as stack:
        ports = []
        for number in range(count):
            port, config = free_port(), folder / f"sshd_config.{number}"
            config.write_text(CONFIG.format(port=port, folder=folder))
            child = subprocess.Popen([SSHD, "-D", "-f", str(config), "-E", str(folder / "log")])
            stack.callback(child.wait)
            stack.callback(child.terminate)
            ports.append(port)
        for port in ports:
            wait_for(lambda port=port: answers(port), f"sshd at {port}", 30)  # type: ignore[misc]
        yield ports


def desk(folder: Path, ports: list[int]) -> dict[str, str]:
    """A cluster file over ``ports`` and an SSH configuration of its own; answers with the environment to run in."""
    public = (folder / "host_ed25519.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"[127.0.0.1]:{port} {public}" for port in ports))
    (folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {folder}/client\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
    )
    rows = "".join(
        f"  - {{name: n{number}, accelerator: none, ssh: {{host: 127.0.0.1, user: {getpass.getuser()}, port: {port}}}, "
        f"rails: [{{netdev: lo, address: 127.1.0.{number}}}]}}\n"
        for number, port in enumerate(ports, 1)
    )
    (folder / "cluster.yaml").write_text(f"topology: loopback\nssh_config: {folder}/ssh_config\nnodes:\n{rows}")
    return {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT)}


def run() -> list[str]:
    """Seconds of one ``doctor`` over all nodes, and of ``ssh`` asking one node after the other for nothing at all."""
    lines = []
    for count, target in TARGETS.items():
        with tempfile.TemporaryDirectory() as name, nodes(Path(name), count) as ports:
            folder = Path(name)
            env = desk(folder, ports)
            began = perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "orchestrator.cli", "doctor"],
                check=False,
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
            )
            took = perf_counter() - began
            began = perf_counter()
            for port in ports:
                argv = [
                    "ssh",
                    "-F",
                    str(folder / "ssh_config"),
                    "-p",
                    str(port),
                    f"{getpass.getuser()}@127.0.0.1",
                    "true",
                ]
                subprocess.run(argv, check=True, capture_output=True)
            turns = perf_counter() - began
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()
        lines.append(
            f"{count:>3} nodes  doctor {took:5.1f} s (target {target:g} s)   "
            f"ssh in turn {turns:5.1f} s   {took / turns:.2f}x   {last}"
        )
    return lines
