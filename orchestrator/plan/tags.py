"""Local names of images on the nodes."""

from __future__ import annotations

from orchestrator.spec.pins import Image


def local_tag(image: Image) -> str:
    """The name a unit runs: one tag per digest, so what runs is what was pinned however the image came to the node."""
    digest = (image.digest or "sha256:unset").partition(":")[2]
    return f"sparkctl.local/{image.repository.replace(':', '-')}:{digest[:32]}"
