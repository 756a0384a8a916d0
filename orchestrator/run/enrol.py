"""Host keys: what a node shows, and, once a person has agreed, its line in known_hosts.

A key that differs from the one on record is never enrolled: ``look`` raises ``HostKeyChanged`` with both fingerprints.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.run.hostkeys import HostKeys, comparing, records_of
from orchestrator.run.knownhosts import fingerprint
from orchestrator.run.sshlink import Dial
from orchestrator.run.sshsettings import Files
from orchestrator.run.transport import HostKeyUnknown, NodeError
from orchestrator.spec.cluster import Ssh


@dataclass(frozen=True, slots=True)
class Shown:
    """The host key that a node showed. ``name`` is what known_hosts calls the node, ``file`` where it would be added.

    ``known`` is true when the key is on record already.
    """

    node: str
    name: str
    kind: str
    blob: bytes
    file: Path
    known: bool

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.blob)

    @property
    def compare(self) -> str:
        return comparing(self.kind)


def look(node: str, ssh: Ssh, files: Files) -> Shown:
    """Ask the node for its key, of the type on record where there is one. Raises ``NodeError``, also if it changed."""
    dial = Dial(node, ssh, files)
    settings, key = dial.host_key()
    known = True
    try:
        HostKeys(node, settings, records_of(settings)).missing_host_key(None, settings.host, key)
    except HostKeyUnknown:
        known = False
    file = next((each for each in settings.known_hosts if str(each) != os.devnull), Path.home() / ".ssh/known_hosts")
    return Shown(node, settings.name, key.get_name(), key.asbytes(), file, known)


def enrol(shown: Shown) -> None:
    """Add the key to known_hosts, as OpenSSH writes it. Raises ``NodeError`` where that file cannot be written."""
    line = f"{shown.name} {shown.kind} {base64.b64encode(shown.blob).decode()}\n"
    try:
        shown.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(shown.file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                line = line if file.read(1) == b"\n" else f"\n{line}"
            file.write(line.encode())
    except OSError as problem:
        what = f"the host key cannot be recorded: {shown.file}: {problem.strerror}"
        raise NodeError(shown.node, what, f"ls -l {shown.file}") from None
