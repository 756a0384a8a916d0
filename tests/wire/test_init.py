"""``sparkctl init`` over a real sshd: two logins that behave like two nodes, each with a sysfs and tools of its own."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.spec.cluster import Cluster, Rail
from orchestrator.spec.parsing import parse
from tests.unit import sysfs
from tests.wire.server import Sshd, keygen

ROOT = Path(__file__).parents[2]

# What sshd runs for one key, in place of a login shell: the command that was sent, with that node's tools and tree.
FORCED = """\
#!/bin/sh
PATH={node}/bin:$PATH; export PATH
exec sh -c "$(printf '%s' "$SSH_ORIGINAL_COMMAND" | sed "s#sparkctl-detail ''#sparkctl-detail {node}#")"
"""


@dataclass(frozen=True)
class Desk:
    """An operator's folder with an SSH configuration that knows ``node-a`` and ``node-b``."""

    folder: Path
    sshd: Sshd

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def fingerprint(self) -> str:
        argv = ["ssh-keygen", "-lf", str(self.sshd.folder / "host_ed25519.pub")]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[1]

    def argv(self, *words: str) -> list[str]:
        config = str(self.folder / "config")
        return [sys.executable, "-m", "orchestrator.cli", "init", "--ssh-config", config, *words]

    @property
    def env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKCTL_", "SSH_"))}
        return kept | {"PYTHONPATH": str(ROOT), "HOME": str(self.folder), "COLUMNS": "120"}

    def init(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv, pipe = self.argv(*(words or ("node-a", "node-b"))), subprocess.DEVNULL
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, stdin=pipe, capture_output=True, text=True, check=False, timeout=60
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def trusting(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.init("node-a", "node-b", "--accept-fingerprint", self.fingerprint, *words)

    def ssh_host(self, name: str) -> str:
        lines = {"HostName": "127.0.0.1", "Port": self.sshd.port, "User": getpass.getuser(), "HostKeyAlias": name}
        lines |= {"IdentityFile": self.folder / name / "key", "IdentitiesOnly": "yes"}
        lines |= {"UserKnownHostsFile": self.known_hosts, "GlobalKnownHostsFile": "/dev/null"}
        return f"Host {name}\n" + "".join(f"  {key} {value}\n" for key, value in lines.items())

    def node(self, name: str, number: int) -> None:
        """Give ``name`` a tree, tools and a key; ``node-a`` and ``node-b`` ping each other over any cable."""
        folder = self.folder / name
        sysfs.build(folder, sysfs.gb10())
        at = {"enp1s0f0np0": "192.168.100", "enP2p1s0f0np0": "192.168.101", "enP7s7": "10.0.0", "wlP9s9": "10.0.1"}
        rows = [
            {"ifname": netdev, "addr_info": [{"family": "inet", "local": f"{net}.{number}", "prefixlen": 24}]}
            for netdev, net in at.items()
        ]
        tools = {
            "ip": f"case $* in '-j addr show') echo '{json.dumps(rows)}' ;; esac",
            "uname": f'case $1 in -n) echo Spark-{name[-1].upper()} ;; *) exec /bin/uname "$@" ;; esac',
            "nvidia-smi": "echo 'NVIDIA GB10, 580.95.05, [N/A]'",
            "ping": f'echo "$*" >> {folder}/pinged',
            "docker": "exit 1",
        }
        sysfs.tools(folder / "bin", tools)
        forced = folder / "forced"
        forced.write_text(FORCED.format(node=folder))
        forced.chmod(0o755)
        public = keygen(folder / "key").with_suffix(".pub").read_text()
        with (self.sshd.folder / "authorized_keys").open("a") as file:
            file.write(f'command="{forced}" {public}')


@pytest.fixture
def desk(sshd: Sshd, tmp_path: Path) -> Iterator[Desk]:
    before = (sshd.folder / "authorized_keys").read_text()
    made = Desk(tmp_path, sshd)
    made.node("node-a", 11)
    made.node("node-b", 12)
    (tmp_path / "config").write_text("".join(made.ssh_host(name) for name in ("node-a", "node-b")))
    yield made
    (sshd.folder / "authorized_keys").write_text(before)


def read(desk: Desk) -> Cluster:
    return parse((desk.folder / "cluster.yaml").read_text(), "cluster.yaml", Cluster)


def test_two_nodes_become_a_commented_cluster_file(desk: Desk) -> None:
    done = desk.trusting()
    assert done.returncode == 0, done.stderr
    cluster = read(desk)
    assert (cluster.topology, [node.name for node in cluster.nodes]) == ("direct", ["spark-a", "spark-b"])
    assert cluster.nodes[0].rails == (
        Rail(netdev="enp1s0f0np0", rdma="rocep1s0f0", address="192.168.100.11"),
        Rail(netdev="enP2p1s0f0np0", rdma="roceP2p1s0f0", address="192.168.101.11"),
    )
    assert cluster.nodes[1].ssh is not None
    assert (cluster.nodes[1].ssh.host, cluster.nodes[1].ssh.user) == ("node-b", getpass.getuser())
    assert {node.accelerator for node in cluster.nodes} == {"gb10"}
    text = (desk.folder / "cluster.yaml").read_text()
    for comment in ("# Two nodes that reach each other.", "never share one private key", "# towards spark-b: physical"):
        assert comment in text
    assert [line.split()[0] for line in desk.known_hosts.read_text().splitlines()] == ["node-a", "node-b"]


def test_pings_are_bound_to_the_netdev_and_sent_both_ways(desk: Desk) -> None:
    assert desk.trusting().returncode == 0
    for node, other in (("node-a", 12), ("node-b", 11)):
        sent = (desk.folder / node / "pinged").read_text()
        assert f"-I enp1s0f0np0 -c 1 -W 1 192.168.100.{other}" in sent
        assert f"-I enP2p1s0f0np0 -c 1 -W 1 192.168.101.{other}" in sent
        assert "10.0." not in sent


def test_unknown_host_keys_are_never_enrolled_silently(desk: Desk) -> None:
    done = desk.init()
    assert done.returncode == 1
    assert done.stderr.count(f"showed ssh-ed25519 {desk.fingerprint}") == 2
    assert f"then add: --accept-fingerprint {desk.fingerprint}" in done.stderr
    assert "compare with what the node's own screen shows" in done.stderr
    assert not desk.known_hosts.exists()
    assert not (desk.folder / "cluster.yaml").exists()


def test_a_fingerprint_that_is_not_the_nodes_is_of_no_use(desk: Desk) -> None:
    done = desk.init("node-a", "--accept-fingerprint", "SHA256:" + "A" * 43)
    assert done.returncode == 1
    assert "which is none of the fingerprints given" in done.stderr
    done = desk.init("node-a", "--accept-fingerprint", "md5:00")
    assert done.returncode == 2
    assert "should be SHA256: and 43 characters, found md5:00" in done.stderr


@pytest.mark.parametrize(("answers", "code", "enrolled"), [("yy", 0, 2), ("yn", 1, 1), ("\r\r", 1, 0)])
def test_on_a_terminal_a_person_is_asked(desk: Desk, answers: str, code: int, enrolled: int) -> None:
    ended, shown = on_a_terminal(desk, answers)
    assert ended == code, shown
    assert desk.fingerprint in shown
    assert "[y/N]" in shown
    lines = desk.known_hosts.read_text().splitlines() if desk.known_hosts.exists() else []
    assert len(lines) == enrolled
    assert (desk.folder / "cluster.yaml").exists() == (code == 0)


def on_a_terminal(desk: Desk, answers: str) -> tuple[int, str]:
    import pty

    argv = desk.argv("node-a", "node-b")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(desk.folder)
        os.execve(argv[0], argv, desk.env)
    shown, left = b"", list(answers)
    with contextlib.suppress(OSError):  # how Linux says that the other end of a terminal is closed
        while data := os.read(terminal, 4096):
            shown += data
            if left and shown.count(b"[y/N]") > len(answers) - len(left):
                answer = left.pop(0)
                os.write(terminal, answer.encode() if answer == "\r" else f"{answer}\r".encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_another_key_on_record_is_refused_even_with_its_fingerprint(desk: Desk) -> None:
    other = keygen(desk.folder / "other").with_suffix(".pub").read_text()
    desk.known_hosts.write_text(f"node-a {other}")
    before = desk.known_hosts.read_text()
    done = desk.trusting()
    assert done.returncode == 1
    assert "host key of node-a has changed" in done.stderr
    assert desk.known_hosts.read_text().startswith(before)
    assert "node-a" not in desk.known_hosts.read_text().removeprefix(before)
    assert not (desk.folder / "cluster.yaml").exists()


def test_a_node_that_takes_no_key_is_named_and_the_other_still_shown(desk: Desk) -> None:
    keygen(desk.folder / "wrong")
    config = desk.folder / "config"
    config.write_text(config.read_text().replace(str(desk.folder / "node-b" / "key"), str(desk.folder / "wrong")))
    done = desk.trusting()
    assert done.returncode == 1
    assert "spark-a: enp1s0f0np0 up, 192.168.100.11/24" in done.stdout
    assert "node-b: login as" in done.stderr
    assert f"ssh-copy-id -F {desk.folder / 'config'} node-b   (makes your public key known there" in done.stderr
    assert "ssh-keygen -t ed25519" in done.stderr
    assert not (desk.folder / "cluster.yaml").exists()


def test_nodes_that_do_not_pair_are_shown_with_the_rules_of_addressing(desk: Desk) -> None:
    ip = desk.folder / "node-b" / "bin" / "ip"
    ip.write_text(ip.read_text().replace("192.168.10", "192.168.20"))
    done = desk.trusting()
    assert done.returncode == 1
    assert "spark-b: enP2p1s0f0np0 up, 192.168.201.12/24" in done.stdout
    assert "no two nodes have addresses in the same subnet" in done.stderr
    assert "each in a subnet of its own" in done.stderr
    assert "MTU 9000" in done.stderr
    assert not (desk.folder / "cluster.yaml").exists()


def test_an_unanswered_ping_is_no_cable(desk: Desk) -> None:
    sysfs.tools(desk.folder / "node-b" / "bin", {"ping": "exit 1"})
    done = desk.trusting()
    assert done.returncode == 1
    assert "are in one subnet, but no ping came back from spark-b" in done.stderr


def test_a_file_that_is_there_is_overwritten_only_by_force(desk: Desk) -> None:
    (desk.folder / "cluster.yaml").write_text("mine: true\n")
    done = desk.trusting()
    assert done.returncode == 2
    assert "cluster.yaml is there already" in done.stderr
    assert (desk.folder / "cluster.yaml").read_text() == "mine: true\n"
    assert not desk.known_hosts.exists()
    assert desk.trusting("--force").returncode == 0
    assert read(desk).topology == "direct"


def test_json_prints_the_facts_and_writes_only_where_told_to(desk: Desk) -> None:
    done = desk.trusting("--json")
    value = json.loads(done.stdout)
    assert (value["topology"], value["order"], value["written"]) == ("direct", ["spark-a", "spark-b"], False)
    assert value["nodes"][0]["rdma"][0]["gids"][3]["kind"] == "RoCE v2"
    assert not (desk.folder / "cluster.yaml").exists()
    assert json.loads(desk.trusting("--json", "--out", "other.yaml").stdout)["written"]
    assert (desk.folder / "other.yaml").exists()


def test_one_machine_under_two_names_is_refused(desk: Desk) -> None:
    config = desk.folder / "config"
    config.write_text(
        config.read_text().replace(str(desk.folder / "node-b" / "key"), str(desk.folder / "node-a" / "key"))
    )
    done = desk.trusting()
    assert done.returncode == 2
    assert "node-a and node-b are the same machine (Spark-A)" in done.stderr


def test_no_private_key_leaves_and_nothing_is_left_on_a_node(desk: Desk) -> None:
    before = {path for path in desk.folder.rglob("*") if path.is_file()}
    assert desk.trusting().returncode == 0
    made = {path.name for path in desk.folder.rglob("*") if path.is_file() and path not in before}
    assert made == {"cluster.yaml", "known_hosts", "pinged"}


def test_words_that_are_no_hosts(desk: Desk) -> None:
    done = desk.init("me@a:ssh", "b", "b", "x y")
    assert done.returncode == 2
    for says in ("b: should be named once", "me@a:ssh: should be [USER@]HOST[:PORT]", "x y: should be"):
        assert says in done.stderr
