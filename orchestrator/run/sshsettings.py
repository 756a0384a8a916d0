"""How the operator's own SSH configuration says a node is reached.

OpenSSH itself is asked (``ssh -G``), so ``Include``, ``Match`` and tokens mean what they mean to ``ssh``. Honoured:
HostName, User, Port, IdentityFile (with its ``-cert.pub``), IdentitiesOnly, IdentityAgent, HostKeyAlias,
UserKnownHostsFile, GlobalKnownHostsFile, ProxyJump and ProxyCommand. Not honoured: StrictHostKeyChecking (host keys are
always verified), anything that would prompt, RevokedHostKeys, KnownHostsCommand, ControlMaster, forwarding, SendEnv,
ConnectTimeout, ServerAliveInterval and algorithm lists. Without an ``ssh`` program, the configuration is not read.
"""

from __future__ import annotations

import getpass
import os
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.run.knownhosts import record_name
from orchestrator.run.transport import Unreachable
from orchestrator.spec.cluster import Ssh

DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
DEFAULT_KNOWN_HOSTS = "~/.ssh/known_hosts /etc/ssh/ssh_known_hosts"
ASK_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One login, resolved. ``target`` is what to type after ``ssh`` to get the same."""

    target: str
    host: str
    port: int
    user: str
    name: str
    known_hosts: tuple[Path, ...]
    identities: tuple[Path, ...]
    only_these: bool = False
    agent: str = ""
    jump: str = ""
    proxy_command: str = ""


@dataclass(frozen=True, slots=True)
class Files:
    """Files that stand in for the operator's own: a known_hosts file used alone, and an ssh_config."""

    known_hosts: Path | None = None
    config: Path | None = None


def by_hand(ssh: Ssh, files: Files) -> str:
    """The command that shows the operator why this login fails."""
    return f"ssh -v {target(ssh, files)} true"


def target(ssh: Ssh, files: Files) -> str:
    """What to type after ``ssh`` or ``ssh-copy-id`` to mean the same login: configuration, key, port, user and host."""
    words = ["-F", str(files.config)] if files.config else []
    words += ["-i", str(Path(ssh.identity).expanduser())] if ssh.identity else []
    words += ["-p", str(ssh.port)] if ssh.port != 22 else []
    return shlex.join((*words, f"{ssh.user}@{ssh.host}" if ssh.user else ssh.host))


def resolve(node: str, ssh: Ssh, files: Files) -> Settings:
    """Ask OpenSSH. Raises ``Unreachable`` when the operator's SSH configuration cannot be read."""
    words = ["ssh", "-G"]
    if files.config:
        words += ["-F", str(files.config)]
    if ssh.user:
        words += ["-l", ssh.user]
    if "port" in ssh.model_fields_set:
        words += ["-p", str(ssh.port)]
    try:
        done = subprocess.run(
            [*words, "--", ssh.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_DEADLINE_S,
            check=False,
        )
    except FileNotFoundError:
        return settings(ssh, {}, files)
    except subprocess.TimeoutExpired:
        raise Unreachable(
            node, f"`ssh -G {ssh.host}` did not answer within {ASK_DEADLINE_S:g} s: a Match exec hangs?"
        ) from None
    if done.returncode:
        why = done.stderr.strip() or f"exit code {done.returncode}"
        raise Unreachable(node, f"your SSH configuration cannot be read: {why}", f"ssh -G {target(ssh, files)}")
    return settings(ssh, answers(done.stdout), files)


def answers(output: str) -> dict[str, list[str]]:
    """The lines of ``ssh -G``, by keyword; a keyword may come several times."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in output.splitlines():
        keyword, _, value = line.partition(" ")
        found[keyword].append(value)
    return dict(found)


def settings(ssh: Ssh, said: Mapping[str, list[str]], files: Files) -> Settings:
    """The cluster file's word first, then the configuration's, then OpenSSH's defaults."""

    def one(keyword: str, default: str) -> str:
        value = said.get(keyword, [default])[0]
        return default if value == "none" else value

    host, user = one("hostname", ssh.host), ssh.user or one("user", "") or getpass.getuser()
    port = int(one("port", str(ssh.port)))
    tokens = {"%%": "%", "%d": str(Path.home()), "%h": host, "%n": ssh.host, "%p": str(port), "%r": user}
    tokens["%u"] = getpass.getuser()
    identities = (ssh.identity,) if ssh.identity else tuple(said.get("identityfile", DEFAULT_KEYS))
    known = one("userknownhostsfile", "") + " " + one("globalknownhostsfile", "") if said else DEFAULT_KNOWN_HOSTS
    own = (files.known_hosts,) if files.known_hosts else tuple(Path(word).expanduser() for word in known.split())
    return Settings(
        target=target(ssh, files),
        host=host,
        port=port,
        user=user,
        name=one("hostkeyalias", "").lower() or record_name(host, port),
        known_hosts=own,
        identities=tuple(Path(_expand(word, tokens)).expanduser() for word in identities),
        only_these=ssh.identity is not None or one("identitiesonly", "no") == "yes",
        agent=_agent(said.get("identityagent", ["SSH_AUTH_SOCK"])[0], tokens),
        jump=one("proxyjump", ""),
        proxy_command=_expand(one("proxycommand", ""), tokens),
    )


def hops(jump: str) -> tuple[Ssh, ...]:
    """``[user@]host[:port],...`` of ProxyJump, first hop first."""
    found = []
    for hop in filter(None, jump.removeprefix("ssh://").split(",")):
        user, _, place = hop.rpartition("@")
        host, colon, port = place.rpartition(":")
        if not colon or place.endswith("]"):
            host, port = place, ""
        fields = {"host": host.strip("[]"), "user": user or None, **({"port": int(port)} if port else {})}
        found.append(Ssh.model_validate(fields))
    return tuple(found)


def _expand(value: str, tokens: Mapping[str, str]) -> str:
    out, rest = "", value
    while rest:
        step = 2 if rest[:2] in tokens else 1
        out, rest = out + tokens.get(rest[:2], rest[:1]), rest[step:]
    return out


def _agent(value: str, tokens: Mapping[str, str]) -> str:
    """The agent's socket; empty when there is none."""
    if value == "none":
        return ""
    if value == "SSH_AUTH_SOCK" or value.startswith("$"):
        return os.environ.get(value.removeprefix("$").strip("{}"), "")
    return str(Path(_expand(value, tokens)).expanduser())
