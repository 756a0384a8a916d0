"""Is this the node's key? Pure reading and judging of OpenSSH's known_hosts files.

Understood: several names on a line, ``*`` ``?`` and ``!`` patterns, ``[host]:port``, hashed names, ``@revoked``.
Not understood: ``@cert-authority`` (such lines are passed over: a node known only through a CA counts as unknown).
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Known:
    """One line of one file."""

    file: str
    line: int
    marker: str
    hosts: str
    kind: str
    blob: bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """``entry`` is the line that decided: the other key on record if ``changed``, the revoking line if ``revoked``."""

    state: Literal["ok", "unknown", "changed", "revoked"]
    entry: Known | None = None


def parse(file: str, content: str) -> tuple[Known, ...]:
    """Every line that can be read; a broken line proves nothing and is passed over, as OpenSSH does."""
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except ValueError:  # of binascii, or for what is not ASCII
            continue
        found.append(Known(file, number, marker, words[0], words[1], blob))
    return tuple(found)


def judge(entries: Sequence[Known], name: str, kind: str, blob: bytes) -> Verdict:
    """``name`` is the host, or ``[host]:port`` for another port than 22 (a line without port then also vouches)."""
    for entry in entries:
        if entry.marker == "@revoked" and entry.blob == blob and _names(entry, name):
            return Verdict("revoked", entry)
    here = [entry for entry in entries if not entry.marker and _names(entry, name)]
    bare = [entry for entry in entries if not entry.marker and _names(entry, bare_name(name))]
    if any(entry.blob == blob for entry in [*here, *bare]):
        return Verdict("ok")
    if here:
        return Verdict("changed", next((entry for entry in here if entry.kind == kind), here[0]))
    return Verdict("unknown")


def kinds(entries: Iterable[Known], name: str) -> tuple[str, ...]:
    """The key types on record for ``name``, so that the node is asked for one of those first."""
    names = (name, bare_name(name))
    found = [e.kind for e in entries if not e.marker and any(_names(e, one) for one in names)]
    return tuple(dict.fromkeys(found))


def record_name(host: str, port: int) -> str:
    """The name under which OpenSSH records a host."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def bare_name(name: str) -> str:
    return name[1:].partition("]:")[0] if name.startswith("[") else name


def fingerprint(blob: bytes) -> str:
    """As ``ssh-keygen -l`` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _names(entry: Known, name: str) -> bool:
    if entry.hosts.startswith("|1|"):
        return _hashed(entry.hosts, name)
    hit = False
    for pattern in entry.hosts.lower().split(","):
        against = pattern.removeprefix("!").replace("[", "[[]")  # only * and ? are special here
        if fnmatch.fnmatchcase(name, against):
            if pattern.startswith("!"):
                return False
            hit = True
    return hit


def _hashed(field: str, name: str) -> bool:
    try:
        _, _, salt, digest = field.split("|")
        made = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    except ValueError:
        return False
