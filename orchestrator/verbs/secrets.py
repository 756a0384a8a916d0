"""Keys: made here, carried to 0600 files on the nodes, and in no plan, argv, label or log."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from orchestrator.plan import gateway
from orchestrator.plan.launch import LaunchPlan
from orchestrator.run.transport import NodeError, Transport
from orchestrator.verbs.errors import UsageError


def client_key_path(deployment: str) -> Path:
    """Where the operator's own key for a deployment lies on the operator's machine (0600)."""
    root = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return root / "sparkctl" / "keys" / deployment


def started_here() -> tuple[str, ...]:
    """Names of the deployments that this machine holds a key for: they were started from here, and may be stopped."""
    try:
        return tuple(sorted(path.name for path in client_key_path("any").parent.iterdir()))
    except OSError:
        return ()


def client_key(deployment: str) -> str:
    """The operator's key; made on first use and kept, so that clients survive a ``down`` and an ``up``.

    Raises ``UsageError`` for a file that holds no key: a disk ran full, or somebody edited it.
    """
    path = client_key_path(deployment)
    if os.path.lexists(path):
        return _kept(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = f"sk-sparkctl-{secrets.token_urlsafe(32)}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(key + "\n")
    except BaseException:  # half a key would be taken for one
        path.unlink()
        raise
    return key


def _kept(path: Path) -> str:
    key = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
    if not gateway.is_key(key):
        raise UsageError(
            f"{path}: should hold a key of 16 to 512 letters, digits or -._~+/=, found something else",
            remedy=f"the next up makes a new one: rm -r {shlex.quote(str(path))}",
        )
    return key


def key_name() -> str:
    """Whose key it is, in the gateway's log and beside the keys of other operators: user@host."""
    try:
        words = f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a container whose user has no name
        words = f"uid-{os.getuid()}@{socket.gethostname()}"
    return re.sub(r"[^A-Za-z0-9._@-]", "-", words).lstrip("._@-")[:64] or "operator"


def for_generation(plan: LaunchPlan, known_keys: str) -> Mapping[str, bytes]:
    """Every secret of one generation by name. ``known_keys`` is the map of the generation before: hashes, no keys.

    A line of it that is damaged is left out, for the gateway would not start with it.
    """
    own = gateway.key_hash(client_key(plan.deployment))
    hashes = {name: digest for name, digest in gateway.known_hashes(known_keys).items() if digest != own}
    name = key_name()  # two laptops may well have the same user and host name
    hashes[f"{name[:57]}-{own[:6]}" if name in hashes else name] = own
    engine_key = secrets.token_urlsafe(32)
    return {
        "agent-token": secrets.token_urlsafe(32).encode(),
        "ray-token": secrets.token_hex(32).encode(),
        "engine-key": engine_key.encode(),
        "client-keys": gateway.keys_map(hashes).encode(),
        "gateway-engine-key": gateway.engine_map(engine_key).encode(),
    }


def known_keys(old: LaunchPlan | None, seats: Mapping[str, Transport]) -> str:
    """The key hashes that the running gateway knows, so that a redeploy locks nobody out.

    Raises a ``NodeError`` where they are there and cannot be read: the other operators' keys would end unsaid.
    """
    if old is None:
        return ""
    path = next(file.path for file in old.gateway.secrets if file.name == "client-keys")
    node = old.gateway.node
    result = seats[node].run(("sh", "-c", '[ ! -e "$1" ] || cat "$1"', "keys", path), deadline_s=20.0)
    if result.code != 0:
        raise NodeError(node, f"the gateway's keys cannot be read: {result.stderr.strip()}", f"ls -l {path}")
    return result.stdout
