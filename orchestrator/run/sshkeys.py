"""Logging in with keys, and never with a prompt: no password, no passphrase, no question on the terminal.

The order is OpenSSH's: no key at all first (a node behind a VPN that vouches for the operator accepts that), then the
agent's keys, the named ones first, then key files that need no passphrase.
"""

from __future__ import annotations

import base64
import contextlib
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.run.knownhosts import fingerprint
from orchestrator.run.sshsettings import Settings
from orchestrator.run.transport import AuthRefused


class Keys:
    """Paramiko calls ``authenticate`` once the host key is verified. ``tried`` is told when nothing worked."""

    def __init__(self, node: str, settings: Settings) -> None:
        self._node, self._settings = node, settings
        self.tried: list[str] = []
        self._locked: list[Path] = []

    def authenticate(self, transport: Any) -> None:
        """Raises ``AuthRefused``."""
        if self._without_key(transport):
            return
        with contextlib.closing(_Agent(self._settings.agent)) as agent:
            for label, key in self._candidates(agent.keys()):
                self.tried.append(label)
                if self._accepted(transport, key):
                    return
        raise self._refused("the node takes none of these keys" if self.tried else "there is no key to try")

    def _without_key(self, transport: Any) -> bool:
        from paramiko import BadAuthenticationType  # type: ignore[import-untyped, unused-ignore]

        try:
            transport.auth_none(self._settings.user)
        except BadAuthenticationType as answer:
            if "publickey" not in answer.allowed_types:
                raise self._refused(
                    f"the node takes no keys, only: {', '.join(answer.allowed_types)}",
                    "on the node: set PubkeyAuthentication yes in /etc/ssh/sshd_config, then sudo systemctl reload ssh",
                ) from None
            return False
        return True

    def _accepted(self, transport: Any, key: Any) -> bool:
        from paramiko import AuthenticationException, SSHException

        try:
            also = transport.auth_publickey(self._settings.user, key)
        except (AuthenticationException, SSHException):
            if not transport.is_active():
                raise self._refused(
                    "the node hung up after that many keys",
                    "name the right key as `identity` of this node in cluster.yaml",
                ) from None
            return False
        if also:
            raise self._refused(
                f"the node takes the key but also asks for: {', '.join(also)}; a prompt is never answered"
            )
        return True

    def _candidates(self, held: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        files = [path for path in self._settings.identities if path.is_file()]
        named = {public for path in files if (public := _public(path))}
        offered = set()
        for comment, key in sorted(held, key=lambda one: one[1].asbytes() not in named):
            blob = key.asbytes()
            if blob in named or not self._settings.only_these:
                offered.add(blob)
                yield f"{fingerprint(blob)} ({comment or 'no comment'}, from the agent)", key
        for path in files:
            if _public(path) in offered:
                continue
            key = self._load(path)
            if key is not None and key.asbytes() not in offered:
                yield f"{fingerprint(key.asbytes())} ({path})", key
        for path in self._settings.identities if self._settings.only_these else ():
            if not path.is_file():
                self.tried.append(f"{path} (does not exist)")

    def _load(self, path: Path) -> Any:
        from paramiko import PKey, SSHException
        from paramiko.pkey import UnknownKeyType  # type: ignore[import-untyped, unused-ignore]

        try:
            return PKey.from_path(path)
        except TypeError:  # the one way in which the library says that a key is encrypted
            self._locked.append(path)
            self.tried.append(f"{path} (needs a passphrase and no agent holds it)")
        except OSError as problem:
            self.tried.append(f"{path} ({problem.strerror})")
        except (ValueError, UnknownKeyType, SSHException):
            self.tried.append(f"{path} (not a key that can be used here)")
        return None

    def _refused(self, why: str, remedy: str = "") -> AuthRefused:
        user, target = self._settings.user, self._settings.target
        listed = "".join(f"\n  tried {label}" for label in self.tried)
        unlock = f"ssh-add {shlex.join(map(str, self._locked))}\nor: " if self._locked else ""
        return AuthRefused(
            self._node, f"login as {user} refused: {why}{listed}", remedy or f"{unlock}ssh-copy-id {target}"
        )


class _Agent:
    """The operator's SSH agent, if there is one that answers."""

    def __init__(self, path: str) -> None:
        from paramiko.agent import AgentSSH  # type: ignore[import-untyped, unused-ignore]

        self._agent = AgentSSH()
        self._socket: socket.socket | None = None
        if path:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                line.connect(path)
                self._agent._connect(line)
                self._socket = line
            except OSError:  # a stale SSH_AUTH_SOCK is no reason not to try the key files
                line.close()

    def keys(self) -> list[tuple[str, Any]]:
        return [(key.comment, key) for key in self._agent.get_keys()]

    def close(self) -> None:
        if self._socket:
            self._socket.close()


def _public(path: Path) -> bytes:
    """The public half that lies beside a key file; empty when there is none."""
    try:
        return base64.b64decode(Path(f"{path}.pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return b""
