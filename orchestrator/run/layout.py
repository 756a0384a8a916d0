"""An OCI image layout on the operator's disk: is it whole, for which machines, and how many bytes.

Written by ``crane pull --format oci``, ``skopeo copy --preserve-digests … oci:`` or ``docker buildx build`` with output
``type=oci``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST_MANIFEST_BYTES = 4 * 1024 * 1024


class BrokenLayoutError(Exception):
    """A layout that cannot be sent, and why."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One image in a layout directory. ``total_bytes`` is what a node without any of its layers takes."""

    path: Path
    architectures: frozenset[str]
    total_bytes: int


def find(images_from: Path, digest: str, arch: str) -> Layout:
    """The layout that holds ``digest`` for nodes of ``arch``. Raises ``BrokenLayoutError`` when there is none whole."""
    path = images_from / digest.replace(":", "-")
    if not (path / "oci-layout").is_file():
        raise BrokenLayoutError(f"no image layout at {path}")
    manifest = _json(path, digest)
    known: dict[str, str] = {}
    for entry in manifest.get("manifests", []):
        platform = entry.get("platform", {})
        if platform.get("os", "linux") == "linux" and _blob(path, entry["digest"]).is_file():
            known.setdefault(platform.get("architecture", ""), entry["digest"])
    if "manifests" in manifest:
        if arch not in known:
            return Layout(path, frozenset(known), 0)
        manifest = _json(path, known[arch])
    else:
        known = {_json(path, manifest["config"]["digest"]).get("architecture", ""): digest}
    parts = [manifest["config"], *manifest.get("layers", [])]
    for part in parts:
        blob = _blob(path, part["digest"])
        size = blob.stat().st_size if blob.is_file() else -1
        if size != part["size"]:
            found = "nothing" if size < 0 else f"{size} bytes"
            raise BrokenLayoutError(f"{blob} should be {part['size']} bytes, found {found}")
    return Layout(path, frozenset(known), sum(part["size"] for part in parts))


def _blob(path: Path, digest: str) -> Path:
    algorithm, _, value = str(digest).partition(":")
    if algorithm != "sha256" or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise BrokenLayoutError(f"{path} should name blobs by sha256 digests, found {str(digest)[:80]}")
    return path / "blobs" / "sha256" / value


def _json(path: Path, digest: str) -> dict[str, Any]:
    blob = _blob(path, digest)
    try:
        if blob.stat().st_size > LARGEST_MANIFEST_BYTES:
            raise BrokenLayoutError(f"{blob} should be a manifest, found {blob.stat().st_size} bytes")
        value = json.loads(blob.read_bytes())
    except (OSError, ValueError) as error:
        raise BrokenLayoutError(f"{blob} should be a manifest, found {error}") from None
    if not isinstance(value, dict):
        raise BrokenLayoutError(f"{blob} should be a manifest, found something else")
    return value
