"""What a failed start leaves on the operator's machine, also where no rank ever said a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.doctor.finding import Finding
from orchestrator.plan.events import Event
from orchestrator.run.transport import DeadlineExceeded, Result
from orchestrator.verbs.evidence import Evidence, kept_logs
from tests.unit.builders import plan, profile, resolved

PLAN = plan(resolved(profile(), executor="mp"))
BAD = Finding("PORT_TAKEN", "spark-1", "port 8000 taken", "port 8000 free", "stop it", verdict="warn")


class Seat:
    """Says ``text`` for the logs of every unit, or is silent."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def run(self, argv: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"") -> Result:
        if self.text is None:
            raise DeadlineExceeded("spark-1", "no answer in time")
        return Result(0, self.text, "")


@pytest.mark.parametrize("text", [None, "HF_TOKEN=hf_abcdefghijkl\n"])
def test_the_plan_the_events_and_the_findings_are_kept_with_or_without_a_log(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    events = [Event("note", 1.0, says="begun")]
    seats = {unit.node: Seat(text) for unit in PLAN.units}
    evidence = Evidence(PLAN, seats, events, (BAD,))  # type: ignore[arg-type]
    events.append(Event("note", 2.0, says="failed"))
    assert bool(evidence.keep()) == (text is not None)
    kept = {path.rpartition("/")[2]: said for path, said in kept_logs(PLAN.deployment)}
    assert kept["plan.json"] == PLAN.canonical() + "\n"  # a plan holds no secret, so nothing is taken out
    assert [json.loads(line)["says"] for line in kept["events.jsonl"].splitlines()] == ["begun", "failed"]
    assert kept["findings.txt"] == f"warn: {BAD}\n  -> stop it\n"
    assert len([name for name in kept if name.endswith(".log")]) == (len(PLAN.units) if text else 0)
    assert all("hf_abc" not in said for said in kept.values())
