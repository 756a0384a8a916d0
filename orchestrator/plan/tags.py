"""Local names of images on the nodes."""

from __future__ import annotations

from orchestrator.spec.pins import Image


def local_tag(image: Image) -> str:
    """The name a unit runs: one tag per digest, so what runs is what was pinned however the image came to the node."""
    tag = image.digest.partition(":")[2][:32] if image.digest else "digest-not-known"
    return f"sparkctl.local/{image.repository.removeprefix('sparkctl.local/').replace(':', '-')}:{tag}"
