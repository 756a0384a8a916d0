"""What a failed start leaves for the morning: every unit's output, the plan, what happened and what the rules said.

It is kept on the operator's machine before the undo, which leaves nothing of a first start on the nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.doctor.finding import Finding
from orchestrator.doctor.redact import redact
from orchestrator.plan import runtime
from orchestrator.plan.events import Event
from orchestrator.plan.launch import LaunchPlan
from orchestrator.run.transport import NodeError, Transport

LINES = 5000
KEPT = ("*.log", "plan.json", "events.jsonl", "findings.txt")


def root() -> Path:
    """The folder with one folder a failed start: ``NODE-RANK.log`` a rank, ``plan.json``, events, findings."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sparkctl-failures"


def kept_logs(deployment: str) -> tuple[tuple[str, str], ...]:
    """(path below the folder of failures, text) of what was kept of ``deployment`` and can be read."""
    found = []
    folders = root().glob(f"{deployment}-g[0-9]*")
    for path in sorted(path for folder in folders for each in KEPT for path in folder.glob(each)):
        try:
            found.append((f"{path.parent.name}/{path.name}", path.read_text(encoding="utf-8", errors="replace")))
        except OSError:
            continue
    return tuple(found)


def in_words(findings: Iterable[Finding]) -> str:
    """Everything but what passed: each finding, its verdict and its remedy."""
    said = [each for each in findings if each.verdict != "pass"]
    return "".join(f"{each.verdict}: {each}\n  -> {each.remedy}\n" for each in said) or "nothing but passes\n"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where to look, and whom to ask. ``events`` may still grow: what is in it when ``keep`` is called is kept."""

    plan: LaunchPlan
    seats: Mapping[str, Transport]
    events: Sequence[Event] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def folder(self) -> Path:
        return root() / f"{self.plan.deployment}-g{self.plan.generation}"

    def keep(self) -> tuple[str, ...]:
        """Write what the units said; answers with a line on where, or with nothing when there was nothing to keep."""
        found: dict[str, str] = {}
        for unit in self.plan.units:
            text = self._said(unit.node, runtime.logs(unit, follow=False, lines=LINES))
            if text:
                found[f"{unit.node}-{unit.rank}.log"] = text
        logs = bool(found)
        found["plan.json"] = self.plan.canonical() + "\n"
        found["events.jsonl"] = "".join(event.to_json() + "\n" for event in self.events)
        found["findings.txt"] = in_words(self.findings)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # What an older start of the same number left would be taken for a witness of this one.
            for old in [path for each in KEPT for path in self.folder.glob(each)]:
                old.unlink()
            for name, text in found.items():
                (self.folder / name).write_text(redact(text), encoding="utf-8")
        except OSError as error:
            return (f"the output of the ranks could not be kept: {error}",)
        return (f"the output of every rank is kept in {self.folder}",) if logs else ()

    def _said(self, node: str, argv: tuple[str, ...]) -> str:
        """Output of both streams, or nothing: a unit that was never made has said nothing."""
        try:
            result = self.seats[node].run(argv, deadline_s=30.0)
        except NodeError:
            return ""
        return result.stdout + result.stderr if result.code == 0 else ""
