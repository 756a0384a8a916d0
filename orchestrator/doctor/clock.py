"""Rules over the nodes' clocks, measured against the operator's."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight

CLOCK_OFF = Code(
    "CLOCK_OFF",
    "a clock within 2 s of the operator's",
    "Logs of several nodes are merged by time, and tokens and certificates are refused when a clock is a minute off.",
    "sudo timedatectl set-ntp true, then timedatectl timesync-status",
)
WARN_S, FAIL_S = 2.0, 60.0


def findings(sight: Sight) -> Iterator[Finding]:
    for node, detail in sight.seen():
        offset = detail.clock_offset_s
        if offset is None:
            yield CLOCK_OFF.unknown(node.name, "nobody compared the clock")
            continue
        said = f"{offset:+.1f} s"
        if abs(offset) > FAIL_S:
            yield CLOCK_OFF.fail(node.name, said)
        elif abs(offset) > WARN_S:
            yield CLOCK_OFF.warn(node.name, said)
        else:
            yield CLOCK_OFF.passed(node.name, said)
