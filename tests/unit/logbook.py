"""Logs for tests: what healthy engines print, and the published excerpts of sick ones."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parents[1] / "cases"


def log(name: str) -> str:
    """The text of ``tests/cases/NAME.log``. Everything in a ``healthy-`` one was printed by engines that served."""
    return (CASES / f"{name}.log").read_text(encoding="utf-8")


def variants() -> tuple[tuple[str, str], ...]:
    """(code, text) of ``tests/cases/variants.jsonl``: kinds of faults in other words than the published cases.

    ``warn=CODE`` is a warning and nothing worse, ``?`` a line that nobody knows, and no code at all is silence.
    """
    lines = (CASES / "variants.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple((value["code"], value["input"]) for value in map(json.loads, lines))


@dataclass(frozen=True, slots=True)
class Case:
    """A published excerpt. ``code`` is what its ``expected`` says, empty when nothing may be found."""

    id: str
    lines: tuple[str, ...]
    code: str
    warns: bool
    expected: str

    @property
    def stands_still(self) -> bool:
        """Whether the excerpt means that nothing follows."""
        return "no further line" in self.lines[-1]


def cases() -> tuple[Case, ...]:
    """``tests/cases/logs.jsonl``: an ``expected`` begins with diag=CODE, error=CODE or warn=CODE, or names no code."""
    found = []
    for text in (CASES / "logs.jsonl").read_text(encoding="utf-8").splitlines():
        value = json.loads(text)
        said = re.match(r"(diag|error|warn)=([A-Z0-9_]+)", value["expected"])
        word, code = said.groups() if said else ("", "")
        lines = tuple(value["input"].split("\n"))
        found.append(Case(value["id"], lines, code, word == "warn", value["expected"]))
    return tuple(found)
