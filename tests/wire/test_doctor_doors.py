"""``sparkctl doctor`` in front of a real sshd: every closed door has a code of its own, and no other code alarms."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.run.catalog import Catalog
from orchestrator.verbs import world
from orchestrator.verbs.doctor import doctor
from orchestrator.verbs.world import Ask
from tests.unit import sysfs
from tests.wire.server import Sshd, free_port, keygen

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Said:
    """Exit code; (verdict, code, node) of what fails, warns or says why a node told nothing; the words of these."""

    code: int
    alarms: list[tuple[str, str, str]]
    words: str

    def only(self, *codes: str) -> list[tuple[str, str, str]]:
        """Without what is true of the machine that the test runs on."""
        return [each for each in self.alarms if each[1] in codes]


@dataclass(frozen=True)
class Desk:
    """An operator's folder whose SSH configuration lets him in; every test changes single lines of it."""

    folder: Path
    sshd: Sshd

    def doctor(self, *names: str, **ssh: object) -> Said:
        self.write(*names, **ssh)
        done = self.run("doctor", "--json")
        value = json.loads(done.stdout)
        untold = set(value["silent"].values())
        loud = [each for each in value["findings"] if each["verdict"] in {"fail", "warn"} or each["observed"] in untold]
        alarms = [(each["verdict"], each["code"], each["node"]) for each in loud]
        words = "\n".join(f"{each['observed']}\n-> {each['remedy']}" for each in loud)
        return Said(done.returncode, alarms, words)

    def write(self, *names: str, **ssh: object) -> None:
        lines = {"HostName": "127.0.0.1", "Port": self.sshd.port, "User": getpass.getuser(), "HostKeyAlias": "here"}
        lines |= {"IdentityFile": self.sshd.key, "IdentitiesOnly": "yes", "IdentityAgent": "none"}
        lines |= {"UserKnownHostsFile": self.known("host_ed25519"), "GlobalKnownHostsFile": "/dev/null"}
        config = "".join(f"  {key} {value}\n" for key, value in (lines | ssh).items())
        (self.folder / "config").write_text(f"Host *\n{config}")
        rows = [
            f"  - {{name: {name}, ssh: {{host: {name}}}, accelerator: none, "
            f"rails: [{{netdev: eth0, address: 198.51.100.{number}}}]}}\n"
            for number, name in enumerate(names or ("a",), 1)
        ]
        text = f"topology: switch\nssh_config: {self.folder / 'config'}\nnodes:\n{''.join(rows)}"
        (self.folder / "cluster.yaml").write_text(text)

    def up(self, **ssh: object) -> subprocess.CompletedProcess[str]:
        """A shipped profile for two Sparks."""
        self.write("a", "b", **ssh)
        file = self.folder / "cluster.yaml"
        file.write_text(file.read_text().replace("accelerator: none, ", ""))
        return self.run("up", "deepseek-v4-flash")

    def known(self, key: str) -> Path:
        """A known_hosts file that vouches for the public half of ``key`` in sshd's folder or ours."""
        public = next(path for path in (self.sshd.folder / f"{key}.pub", self.folder / f"{key}.pub") if path.exists())
        file = self.folder / f"known_by_{key}"
        file.write_text(f"here {public.read_text()}")
        return file

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKCTL_", "SSH_"))}
        env |= {"PYTHONPATH": str(ROOT), "HOME": str(self.folder), "COLUMNS": "120"}
        argv = [sys.executable, "-m", "orchestrator.cli", *words]
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def forced(self, name: str, script: str) -> Path:
        """A key for which sshd runs ``script`` in place of a login shell."""
        key, program = keygen(self.folder / name), self.folder / f"{name}.sh"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with (self.sshd.folder / "authorized_keys").open("a") as file:
            file.write(f'command="{program}" {key.with_suffix(".pub").read_text()}')
        return key


@pytest.fixture
def desk(sshd: Sshd, tmp_path: Path) -> Iterator[Desk]:
    keys = sshd.folder / "authorized_keys"
    before = keys.read_text()
    yield Desk(tmp_path, sshd)
    keys.write_text(before)


UNREACHABLE = [("unknown", "SSH_UNREACHABLE", "a")]
REFUSED = [("fail", "SSH_AUTH_REFUSED", "a")]
CHANGED = [("fail", "SSH_HOST_KEY_CHANGED", "a")]


def test_a_closed_port(desk: Desk) -> None:
    said = desk.doctor(Port=free_port())
    assert (said.code, said.alarms) == (1, UNREACHABLE)
    assert "connection refused" in said.words
    assert f"-> ssh -v -F {desk.folder / 'config'} a true" in said.words


def test_an_unknown_name(desk: Desk) -> None:
    said = desk.doctor(HostName="no-such-host.invalid")
    assert (said.code, said.alarms) == (1, UNREACHABLE)


def test_a_port_that_never_says_a_word(desk: Desk, mute: int) -> None:
    said = desk.doctor(Port=mute)
    assert (said.code, said.alarms) == (1, UNREACHABLE)


def test_an_unknown_host_key(desk: Desk) -> None:
    said = desk.doctor(UserKnownHostsFile=desk.folder / "none")
    assert (said.code, said.alarms) == (5, [("fail", "SSH_HOST_KEY_UNKNOWN", "a")])
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in said.words


def test_a_changed_host_key(desk: Desk) -> None:
    keygen(desk.folder / "other")
    said = desk.doctor(UserKnownHostsFile=desk.known("other"))
    assert (said.code, said.alarms) == (5, CHANGED)
    assert "ssh-keygen -R 'here'" in said.words


def test_a_revoked_host_key(desk: Desk) -> None:
    known = desk.known("host_ed25519")
    revoked = desk.folder / "revoked"
    revoked.write_text(f"{known.read_text()}@revoked {known.read_text()}")
    said = desk.doctor(UserKnownHostsFile=revoked)
    assert (said.code, said.alarms) == (5, CHANGED)


def test_a_key_that_the_node_does_not_take(desk: Desk) -> None:
    said = desk.doctor(IdentityFile=keygen(desk.folder / "wrong"))
    assert (said.code, said.alarms) == (5, REFUSED)
    assert f"-> ssh-copy-id -F {desk.folder / 'config'} a" in said.words


def test_a_key_with_a_passphrase_that_no_agent_holds(desk: Desk) -> None:
    said = desk.doctor(IdentityFile=keygen(desk.folder / "locked", passphrase="secret words"))
    assert (said.code, said.alarms) == (5, REFUSED)
    assert f"-> ssh-add {desk.folder / 'locked'}\n" in said.words


def test_a_node_that_hangs_up_in_the_middle(desk: Desk) -> None:
    said = desk.doctor(IdentityFile=desk.forced("dies", "kill -9 $PPID"))
    assert (said.code, said.alarms) == (1, [("unknown", "SSH_CONNECTION_LOST", "a")])
    assert f"-> ssh -F {desk.folder / 'config'} a uptime" in said.words


def test_a_node_that_takes_too_long(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(IdentityFile=desk.forced("slow", "exec sleep 60"))
    monkeypatch.setattr(world, "GATHER_DEADLINE_S", 1.0)
    report = doctor(Catalog((desk.folder,)), Ask(""))
    assert (report.code, [(each.verdict, each.code) for each in report.untold]) == (1, [("unknown", "NODE_SLOW")])


def test_a_shell_that_answers_something_else(desk: Desk) -> None:
    said = desk.doctor(IdentityFile=desk.forced("closed", "echo This account is currently not available."))
    assert (said.code, said.alarms) == (1, [("unknown", "NODE_SILENT", "a")])
    assert "This account is currently not available." in said.words
    command = said.words.partition("\n-> ")[2].partition("   (")[0]
    pasted = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert pasted.stdout == "This account is currently not available.\n"


def test_the_page_says_why_a_node_told_nothing_and_what_to_do(desk: Desk) -> None:
    desk.write("a", "b", IdentityFile=keygen(desk.folder / "wrong"))
    page = desk.run("doctor").stdout
    assert page.count("fail    SSH_AUTH_REFUSED: ") == page.count("-> ssh-copy-id ") == 2
    assert "\n             tried SHA256:" in page


def test_up_goes_no_further_than_a_closed_door(desk: Desk) -> None:
    """No rule of a plan has failed, for nobody could look: exit code 1, as of every node that does not answer."""
    done = desk.up(IdentityFile=keygen(desk.folder / "wrong"))
    assert done.returncode == 1
    assert done.stderr.count("ssh-copy-id ") == 2


# What a login shell does, with tools that make every login one machine that is well.
_NODE = 'PATH={bin}:$PATH; export PATH; exec sh -c "$SSH_ORIGINAL_COMMAND"'


@pytest.fixture
def node(desk: Desk) -> str:
    rows = [{"ifname": "eth0", "addr_info": [{"family": "inet", "local": "198.51.100.1", "prefixlen": 24}]}]
    plain = "2: eth0    inet 198.51.100.1/24 scope global eth0"
    tools = {"ip": f"case $1 in -j) echo '{json.dumps(rows)}' ;; *) echo '{plain}' ;; esac", "docker": "exit 1"}
    sysfs.tools(desk.folder / "bin", tools)
    return _NODE.format(bin=desk.folder / "bin")


def test_a_shell_that_greets_every_command(desk: Desk, node: str) -> None:
    said = desk.doctor(IdentityFile=desk.forced("loud", f"echo Welcome; {node}"))
    assert (said.code, said.only("SHELL_PRINTS")) == (5, [("fail", "SHELL_PRINTS", "a")])
    assert "'Welcome'" in said.words
    assert desk.doctor(IdentityFile=desk.forced("quiet", node)).only("SHELL_PRINTS") == []


def test_two_names_of_one_machine(desk: Desk, node: str) -> None:
    said = desk.doctor("a", "b", IdentityFile=desk.forced("quiet", node))
    assert (said.code, said.only("SAME_MACHINE")) == (5, [("fail", "SAME_MACHINE", "a, b")])
    assert "a and b are both " in said.words
