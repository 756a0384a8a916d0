"""Ctrl-C, counted. The handler does nothing but count, for it may interrupt the main thread in the middle of anything.

A closed terminal (SIGHUP) and a polite kill (SIGTERM) count as presses too: they deserve the same clean-up.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Presses:
    """Counts while entered. Outside the main thread no signal arrives, so there it stays at zero."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Presses:
        if threading.current_thread() is threading.main_thread():
            for one in SIGNALS:
                if signal.getsignal(one) is not signal.SIG_IGN or one is signal.SIGINT:  # nohup stays nohup
                    self._before[one] = signal.signal(one, self._pressed) or signal.SIG_DFL
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
