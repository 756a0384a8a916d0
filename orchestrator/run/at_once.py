"""The same job for many nodes at once, on threads that a Ctrl-C ends wherever it falls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from orchestrator.run.presses import Presses
from orchestrator.run.transport import Transport

TURN_S = 0.05

LET_GO_S = 5.0
"""How long jobs that were cancelled may take to end before they are left behind."""

T = TypeVar("T")


def at_once(
    job: Callable[[str], T], names: Iterable[str], seats: Mapping[str, Transport] | None = None
) -> dict[str, T]:
    """What ``job`` answered for every name, in the order of ``names``; each on a thread of its own.

    The first job that raises ends all: its exception is raised here. So does Ctrl-C, as ``KeyboardInterrupt``. In both
    cases ``seats`` are cancelled, again and again until the jobs are over, for a cancel between two calls of a job
    finds nothing to end; a second Ctrl-C, or ``LET_GO_S``, leaves them behind. The signal is only counted while threads
    are begun and waited for: raised in the middle of that, it could leave one that nobody ends.
    """
    values: dict[str, T] = {}
    raised: list[BaseException] = []

    def one(name: str) -> None:
        try:
            values[name] = job(name)
        except BaseException as error:  # raised again where the caller is
            raised.append(error)

    asked = list(names)
    threads = [threading.Thread(target=one, args=(name,), name=f"ask {name}", daemon=True) for name in asked]
    with Presses() as presses:
        for thread in threads:
            thread.start()
        let_go = float("inf")
        while running := [thread for thread in threads if thread.is_alive()]:
            running[0].join(TURN_S)
            if presses.count or raised:
                let_go = min(let_go, time.monotonic() + LET_GO_S)
                for transport in (seats or {}).values():
                    transport.cancel()
            if presses.count > 1 or time.monotonic() > let_go:
                break
    if presses.count:
        raise KeyboardInterrupt
    if raised:
        raise raised[0]
    return {name: values[name] for name in asked}
