"""Whether the key that a node shows is the one on record, and what to do where it is not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.run.knownhosts import Known, fingerprint, judge, parse
from orchestrator.run.sshsettings import Settings
from orchestrator.run.transport import HostKeyChanged, HostKeyUnknown


class HostKeys:
    """Asked by Paramiko about every host key, for it is given no key of its own to compare with."""

    def __init__(
        self, node: str, settings: Settings, records: Sequence[Known], seen: Callable[[], None] = lambda: None
    ) -> None:
        """``seen`` is called when the node has shown its key: what comes next is the login."""
        self._node, self._settings, self._records, self._seen = node, settings, records, seen

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Raises ``HostKeyUnknown`` or ``HostKeyChanged`` unless the key is on record."""
        to, blob, kind = self._settings, key.asbytes(), key.get_name()
        shown = f"{kind} {fingerprint(blob)}"
        verdict = judge(self._records, to.name, kind, blob)
        self._seen()
        if verdict.state == "unknown":
            files = ", ".join(map(str, to.known_hosts)) or "no known_hosts file"
            what = f"host key of {to.name} is unknown: it showed {shown}, found in none of: {files}"
            raise HostKeyUnknown(self._node, what, f"{comparing(kind)}\nthen: {self._enrol(kind)}")
        if verdict.entry and verdict.state == "revoked":
            where = f"{verdict.entry.file} line {verdict.entry.line}"
            what = f"host key {shown} of {to.name} is marked as revoked in {where}"
            raise HostKeyChanged(self._node, what, f"whoever revoked it knows why; then, there: {renewing(kind)}")
        if verdict.entry and verdict.state == "changed":
            on_record = f"{verdict.entry.kind} {fingerprint(verdict.entry.blob)}"
            where = f"{verdict.entry.file} line {verdict.entry.line}"
            what = f"host key of {to.name} has changed: it showed {shown}, on record is {on_record} ({where})"
            forget = f"ssh-keygen -R '{to.name}' -f {verdict.entry.file}"
            remedy = f"if the node was not reinstalled, stop here: somebody may stand in between. {comparing(kind)}"
            raise HostKeyChanged(self._node, what, f"{remedy}\nthen: {forget}\nthen: {self._enrol(kind)}")

    def _enrol(self, kind: str) -> str:
        to = self._settings
        if to.jump or to.proxy_command or to.name not in (to.host.lower(), f"[{to.host.lower()}]:{to.port}"):
            return f"ssh {to.target} true   (and answer yes)"
        short = next((name for name in ("ed25519", "ecdsa", "rsa") if name in kind), kind)
        port = f"-p {to.port} " if to.port != 22 else ""
        file = next((str(one) for one in to.known_hosts if str(one) != "/dev/null"), "~/.ssh/known_hosts")
        return f"ssh-keyscan {port}-t {short} {to.host} >> {file}"


def comparing(kind: str) -> str:
    """What a person does to know that a key is the node's own."""
    return f"compare with what the node's own screen shows for: ssh-keygen -lf {_key_file(kind)}.pub"


def renewing(kind: str) -> str:
    """What gives the node another key of this kind."""
    return f"sudo rm {_key_file(kind)} && sudo ssh-keygen -A && sudo systemctl restart ssh"


def _key_file(kind: str) -> str:
    short = next((name for name in ("ed25519", "ecdsa", "rsa") if name in kind), "*")
    return f"/etc/ssh/ssh_host_{short}_key"


def records_of(settings: Settings) -> tuple[Known, ...]:
    """What the known_hosts files of this login hold."""
    found: list[Known] = []
    for path in settings.known_hosts:
        with contextlib.suppress(OSError):  # a file that is not there vouches for nobody
            found += parse(str(path), path.read_text(encoding="utf-8", errors="replace"))
    return tuple(found)
