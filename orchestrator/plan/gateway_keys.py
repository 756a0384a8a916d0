"""The gateway's two secret files as text: who may come in, and what the engine is shown instead.

HAProxy reads both maps when it starts, so no key shows in an argv, an environment or the plan. A key is taken away
from a running gateway by sending the lines of ``map_changes`` to its ``admin.sock``; the file is rewritten as well,
so that a restart agrees. Nothing here touches a file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

KEYS_FILE = "keys.map"
ENGINE_FILE = "engine.map"

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
SHA256_HEX = re.compile(r"[0-9a-f]{64}")
BEARER = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


def is_key(text: str) -> bool:
    """Whether a client could send this as its key."""
    return BEARER.fullmatch(text) is not None


def known_hashes(text: str) -> dict[str, str]:
    """Key names to hashes, from a ``keys.map`` that lay on a disk: only the lines that ``keys_map`` would write."""
    pairs = [line.split() for line in text.splitlines()]
    good = {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and SHA256_HEX.fullmatch(pair[0])}
    return {name: digest for digest, name in good.items() if KEY_NAME.fullmatch(name)}


def key_hash(key: str) -> str:
    """How a client's key stands in the map. Raises ``ValueError`` (without the key) when no client could send it."""
    if not BEARER.fullmatch(key):
        raise ValueError("a client key should be 16 to 512 letters, digits or -._~+/=, found something else")
    return hashlib.sha256(key.encode()).hexdigest()


def keys_map(hashes: Mapping[str, str]) -> str:
    """``keys.map`` from key names to sha256 hex; sorted, so equal keys give equal bytes.

    Raises ``ValueError`` for a name that would not survive a log line, something that is no sha256, or a key twice.
    """
    owners: dict[str, str] = {}
    for name in sorted(hashes):
        digest = hashes[name]
        if not KEY_NAME.fullmatch(name):
            raise ValueError(f"key name: should be 1 to 64 letters, digits or ._@-, found {name!r}")
        if not SHA256_HEX.fullmatch(digest):
            raise ValueError(f"key {name}: should be a sha256 in lower-case hex, found something else")
        if digest in owners:
            raise ValueError(f"key {name}: should differ from every other key, found the same as {owners[digest]}")
        owners[digest] = name
    return "".join(f"{digest} {name}\n" for digest, name in owners.items())


def engine_map(engine_key: str) -> str:
    """``engine.map``: the key that the gateway shows to the engine in place of the client's."""
    if not BEARER.fullmatch(engine_key):
        raise ValueError("the engine key should be 16 to 512 letters, digits or -._~+/=, found something else")
    return f"engine {engine_key}\n"


def map_changes(shown: str, wanted: str) -> tuple[str, ...]:
    """The lines to send to ``admin.sock`` so that a running gateway's keys become ``wanted`` without a restart.

    ``shown`` is what ``show map keys.map`` answered, ``wanted`` the new ``keys.map``. Removals come first.
    """
    now = {digest: name for _, digest, name in (line.split() for line in shown.splitlines() if line.strip())}
    then: dict[str, str] = dict(line.split() for line in wanted.splitlines() if line.strip())
    gone = [f"del map {KEYS_FILE} {digest}" for digest in sorted(now) if digest not in then]
    kept = [digest for digest in sorted(now) if digest in then]
    renamed = [f"set map {KEYS_FILE} {digest} {then[digest]}" for digest in kept if then[digest] != now[digest]]
    new = [f"add map {KEYS_FILE} {digest} {then[digest]}" for digest in sorted(then) if digest not in now]
    return (*gone, *renamed, *new)
