"""The family SSH and user: a code for each way in which a node does not answer, and what an answer tells of a login."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

import orchestrator
from orchestrator.doctor.catalogue import NEVER_WAIVED
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.login import UNANSWERED
from orchestrator.doctor.rules import fast
from orchestrator.doctor.waive import problems
from orchestrator.run import transport
from orchestrator.run.transport import (
    AuthRefused,
    Cancelled,
    CommandFailed,
    ConnectionLost,
    DeadlineExceeded,
    HostKeyChanged,
    HostKeyUnknown,
    NodeError,
    PutFailed,
    Unreachable,
)
from orchestrator.spec.cluster import Cluster, Node, Rail, Ssh
from orchestrator.verbs.unanswered import code_of, findings
from tests.unit.builders import SHIPPED, facts
from tests.unit.patients import fabric, quiet, sight, spark

RAILS = (Rail(netdev="eth0", address="198.51.100.1"),)
AWAY = Cluster(nodes=(Node(name="a", ssh=Ssh(host="desk", user="eva", port=23), rails=RAILS),), ssh_config="/x/config")
HERE = Cluster(nodes=(Node(name="a", rails=RAILS),))

# Every kind of the transports, so that whoever adds one decides on its code.
MEANT: dict[type[NodeError], tuple[str, str]] = {
    Unreachable: ("SSH_UNREACHABLE", "unknown"),
    HostKeyUnknown: ("SSH_HOST_KEY_UNKNOWN", "fail"),
    HostKeyChanged: ("SSH_HOST_KEY_CHANGED", "fail"),
    AuthRefused: ("SSH_AUTH_REFUSED", "fail"),
    ConnectionLost: ("SSH_CONNECTION_LOST", "unknown"),
    DeadlineExceeded: ("NODE_SLOW", "unknown"),
    NodeError: ("NODE_SILENT", "unknown"),
    CommandFailed: ("NODE_SILENT", "unknown"),
    PutFailed: ("NODE_SILENT", "unknown"),
    Cancelled: ("NODE_SILENT", "unknown"),
}


def told(error: NodeError, cluster: Cluster = AWAY) -> Finding:
    (found,) = findings({"a": error}, cluster)
    return found


def below(kind: type[NodeError]) -> Iterator[type[NodeError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


# --- no answer


@pytest.mark.parametrize("kind", MEANT, ids=lambda kind: kind.__name__)
def test_a_kind_has_its_code_and_its_verdict_whatever_it_says(kind: type[NodeError]) -> None:
    found = told(kind("a", "host key refused: timed out", "the way out"))
    assert (found.code, found.verdict) == MEANT[kind]
    assert (found.node, found.observed) == ("a", "host key refused: timed out")
    assert found.expected
    assert found.why
    assert found.remedy


def test_every_kind_that_there_is_has_a_code() -> None:
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = set(below(NodeError))
    assert {each for each in kinds if each.__module__ == transport.__name__} == set(MEANT)
    assert len(kinds) > len(MEANT)
    assert {code_of(each).code for each in kinds} == UNANSWERED


@pytest.mark.parametrize("kind", [Unreachable, HostKeyUnknown, HostKeyChanged, AuthRefused])
def test_at_a_closed_door_the_transport_s_own_remedy_is_kept(kind: type[NodeError]) -> None:
    assert told(kind("a", "closed", "ssh-copy-id -p 23 eva@desk")).remedy == "ssh-copy-id -p 23 eva@desk"
    assert "-p 23 eva@desk" in told(Unreachable("a", "closed")).remedy


@pytest.mark.parametrize("kind", [ConnectionLost, DeadlineExceeded, NodeError])
def test_behind_the_door_the_remedy_is_a_command_for_this_login(kind: type[NodeError]) -> None:
    assert told(kind("a", "gone", "look before you repeat it")).remedy.startswith("ssh -F /x/config -p 23 eva@desk ")
    assert "ssh" not in told(kind("a", "gone"), HERE).remedy


def test_what_makes_nothing_work_cannot_be_waived() -> None:
    assert UNANSWERED | {"SHELL_PRINTS"} <= NEVER_WAIVED
    waivers = dict.fromkeys(UNANSWERED, "it will do")
    assert len(problems(quiet(waivers=waivers), SHIPPED.known_bad())) == len(UNANSWERED)


# --- an answer


def test_a_shell_that_prints_is_found_before_a_start() -> None:
    of = spark()
    known = facts(of)
    known["node-b"] = replace(known["node-b"], prelude="Welcome to DGX OS")
    (found,) = [each for each in fast(sight(of, known)) if each.verdict == "fail"]
    assert (found.code, found.node, found.observed) == ("SHELL_PRINTS", "node-b", "'Welcome to DGX OS'")
    assert ".bashrc" in found.remedy


def machines(*held: tuple[str, tuple[str, ...]], topology: str = "switch") -> list[tuple[str, str, str]]:
    """Verdict, node and words of what is said about nodes with these host names and addresses."""
    of = spark(cluster=fabric(tuple(f"n{number}" for number in range(len(held))), topology), nodes=len(held))
    known = facts(of)
    for (name, each), (hostname, addresses) in zip(known.items(), held, strict=True):
        known[name] = replace(each, hostname=hostname, addresses=dict.fromkeys(addresses, "eth0"))
    return [(e.verdict, e.node, e.observed) for e in fast(sight(of, known)) if e.code == "SAME_MACHINE"]


def test_two_names_of_one_machine() -> None:
    one, other = ("spark", ("127.0.0.1", "10.0.0.1")), ("spark", ("127.0.0.1", "10.0.0.2"))
    assert machines(one, one) == [("fail", "n0, n1", "n0 and n1 are both spark with 10.0.0.1")]
    assert [each[:2] for each in machines(one, other, one, ("x", ("10.0.0.4",)))] == [("fail", "n0, n2")]


def test_machines_that_are_set_up_alike_are_two_and_what_nobody_told_is_unknown() -> None:
    """Loopback is everywhere, and so is docker's bridge."""
    one = ("spark", ("127.0.0.1", "172.17.0.1", "10.0.0.1"))
    assert machines(one, ("spark", ("127.0.0.1", "172.17.0.1", "10.0.0.2"))) == [("pass", "", "2 machines")]
    assert machines(one, ("spark", ("127.0.0.1",))) == [("unknown", "", "n1 did not tell")]
