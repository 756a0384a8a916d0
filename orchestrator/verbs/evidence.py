"""What a failed start leaves for the morning: every unit's output, kept on the operator's machine before the undo."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.doctor.redact import redact
from orchestrator.plan import runtime
from orchestrator.plan.launch import LaunchPlan
from orchestrator.run.transport import NodeError, Transport

LINES = 5000


def root() -> Path:
    """The folder with one folder a failed start, each with a file ``NODE-RANK.log`` a rank."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sparkctl-failures"


def kept_logs(deployment: str) -> tuple[tuple[str, str], ...]:
    """(path below the folder of failures, text) of what was kept of ``deployment`` and can be read."""
    found = []
    for path in sorted(root().glob(f"{deployment}-g[0-9]*/*.log")):
        try:
            found.append((f"{path.parent.name}/{path.name}", path.read_text(encoding="utf-8", errors="replace")))
        except OSError:
            continue
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where to look, and whom to ask."""

    plan: LaunchPlan
    seats: Mapping[str, Transport]

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
        if not found:
            return ()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # What an older start of the same number left would be taken for a witness of this one.
            for old in self.folder.glob("*.log"):
                old.unlink()
            for name, text in found.items():
                (self.folder / name).write_text(redact(text), encoding="utf-8")
        except OSError as error:
            return (f"the output of the ranks could not be kept: {error}",)
        return (f"the output of every rank is kept in {self.folder}",)

    def _said(self, node: str, argv: tuple[str, ...]) -> str:
        """Output of both streams, or nothing: a unit that was never made has said nothing."""
        try:
            result = self.seats[node].run(argv, deadline_s=30.0)
        except NodeError:
            return ""
        return result.stdout + result.stderr if result.code == 0 else ""
