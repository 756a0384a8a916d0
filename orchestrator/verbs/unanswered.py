"""Nodes that did not answer, as findings of the doctor: a code for each kind of ``NodeError``, whatever its words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.doctor import login
from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.run.sshsettings import target
from orchestrator.run.transport import (
    AuthRefused,
    ConnectionLost,
    DeadlineExceeded,
    HostKeyChanged,
    HostKeyUnknown,
    NodeError,
    Unreachable,
)
from orchestrator.spec.cluster import Cluster
from orchestrator.verbs.world import ssh_files

CODES: Mapping[type[NodeError], Code] = {
    Unreachable: login.SSH_UNREACHABLE,
    HostKeyUnknown: login.SSH_HOST_KEY_UNKNOWN,
    HostKeyChanged: login.SSH_HOST_KEY_CHANGED,
    AuthRefused: login.SSH_AUTH_REFUSED,
    ConnectionLost: login.SSH_CONNECTION_LOST,
    DeadlineExceeded: login.NODE_SLOW,
    NodeError: login.NODE_SILENT,
}
# Known to be wrong, and a person has to set it right; of any other node nobody knows.
FAIL = (HostKeyUnknown, HostKeyChanged, AuthRefused)
# At a closed door the transport's own remedy is the closer one: it knows the keys and files. Behind it one can ask.
_AT_THE_DOOR = (Unreachable, *FAIL)


def code_of(kind: type[NodeError]) -> Code:
    """By the nearest of the kinds above it, so that every kind has a code."""
    return next(CODES[each] for each in kind.__mro__ if each in CODES)


def findings(silent: Mapping[str, NodeError], cluster: Cluster) -> Iterator[Finding]:
    """One for each node that did not answer: the transport's words, and its remedy or a command for that login."""
    places, files = {node.name: node.ssh for node in cluster.nodes}, ssh_files(cluster)
    for name, error in silent.items():
        code, ssh = code_of(type(error)), places.get(name)
        remedy = code.remedy.replace("HOST", target(ssh, files)) if ssh else code.remedy.removeprefix("ssh HOST ")
        if error.remedy and isinstance(error, _AT_THE_DOOR):
            remedy = error.remedy
        if isinstance(error, FAIL):
            yield code.fail(name, error.what, remedy)
        else:
            yield code.unknown(name, error.what, remedy)
