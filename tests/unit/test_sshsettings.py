"""From the cluster file and the answer of ``ssh -G`` to the settings of one login."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.run.sshsettings import Files, answers, hops, settings
from orchestrator.spec.cluster import Ssh

SAID = """\
user eva
hostname 192.168.1.5
port 2222
identitiesonly yes
identityfile ~/.ssh/%h_key
identityfile /keys/%r%%
userknownhostsfile /home/eva/.ssh/known_hosts /home/eva/.ssh/known_hosts2
globalknownhostsfile /etc/ssh/ssh_known_hosts
proxycommand nc -x gate %h %p
hostkeyalias Spark
identityagent none
"""


def test_everything_that_is_honoured() -> None:
    found = settings(Ssh(host="desk"), answers(SAID), Files())
    assert (found.host, found.port, found.user, found.name) == ("192.168.1.5", 2222, "eva", "spark")
    assert found.identities == (Path.home() / ".ssh/192.168.1.5_key", Path("/keys/eva%"))
    assert found.known_hosts[-1] == Path("/etc/ssh/ssh_known_hosts")
    assert len(found.known_hosts) == 3
    assert found.proxy_command == "nc -x gate 192.168.1.5 2222"
    assert found.only_these
    assert found.agent == ""


def test_the_cluster_file_comes_first() -> None:
    found = settings(Ssh(host="desk", user="spark", identity="~/k"), answers(SAID), Files(known_hosts=Path("/kh")))
    assert (found.user, found.identities, found.known_hosts) == ("spark", (Path.home() / "k",), (Path("/kh"),))
    assert found.target == f"-i {Path.home()}/k spark@desk"


def test_without_a_configuration_openssh_s_defaults_hold() -> None:
    found = settings(Ssh(host="desk", port=23), {}, Files())
    assert (found.host, found.port, found.name, found.target) == ("desk", 23, "[desk]:23", "-p 23 desk")
    assert Path.home() / ".ssh/id_ed25519" in found.identities
    assert found.known_hosts == (Path.home() / ".ssh/known_hosts", Path("/etc/ssh/ssh_known_hosts"))
    assert not found.only_these


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("$OTHER", "/run/other"),
        ("${OTHER}", "/run/other"),
        ("none", ""),
        ("/a/%r", "/a/eva"),
    ],
)
def test_the_agent(monkeypatch: pytest.MonkeyPatch, value: str, path: str) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER", "/run/other")
    assert settings(Ssh(host="desk"), {"user": ["eva"], "identityagent": [value]}, Files()).agent == path


def test_hops_of_a_jump() -> None:
    assert [(hop.user, hop.host, hop.port) for hop in hops("eva@gate:2222,inner,[fe80::1]:23")] == [
        ("eva", "gate", 2222),
        (None, "inner", 22),
        (None, "fe80::1", 23),
    ]
    assert hops("") == ()
