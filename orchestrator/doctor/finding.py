"""What the doctor says: one value per thing looked at, with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "warn", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``remedy`` is a command to paste, or a sentence. ``unknown`` is neither a pass nor a fail: nobody could look.

    ``node`` is empty for what concerns the plan and no node of its own.
    """

    code: str
    node: str
    observed: str
    expected: str
    remedy: str
    why: str = ""
    verdict: Verdict = "fail"

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        return f"{where}should be {self.expected}, found {self.observed} [{self.code}]"
