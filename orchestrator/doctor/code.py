"""A code of the doctor: what one rule expects and why, written once; findings are made from it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class Code:
    """``expected`` completes "should be …". ``remedy`` is what the table of codes says; a finding may say it closer."""

    code: str
    expected: str
    why: str
    remedy: str

    def passed(self, node: str, observed: str) -> Finding:
        return Finding(self.code, node, observed, self.expected, "", self.why, "pass")

    def unknown(self, node: str, observed: str, remedy: str = "") -> Finding:
        """``observed`` says what nobody could see."""
        return Finding(self.code, node, observed, self.expected, remedy or self.remedy, self.why, "unknown")

    def warn(self, node: str, observed: str, remedy: str = "") -> Finding:
        return Finding(self.code, node, observed, self.expected, remedy or self.remedy, self.why, "warn")

    def fail(self, node: str, observed: str, remedy: str = "") -> Finding:
        return Finding(self.code, node, observed, self.expected, remedy or self.remedy, self.why, "fail")
