"""Transports that are let go on every way out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from orchestrator.run.transport import NodeError, Transport


@contextlib.contextmanager
def sitting(seats: dict[str, Transport]) -> Iterator[dict[str, Transport]]:
    try:
        yield seats
    finally:
        for transport in seats.values():
            with contextlib.suppress(NodeError):
                transport.close()
