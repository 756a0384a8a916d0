"""The table of codes in docs/doctor.md, from the rules themselves. ``python -m tests.unit.codes_page`` rewrites it."""

from __future__ import annotations

from pathlib import Path

from orchestrator.doctor.catalogue import codes
from tests.unit.builders import SHIPPED

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
MARK = "<!-- codes: python -m tests.unit.codes_page writes this table -->\n"


def table() -> str:
    rows = [(each.code, f"Expected: {each.expected}. {each.why}", each.remedy) for each in codes().values()]
    rows += [(each.code, each.what, each.remedy) for each in SHIPPED.known_bad().combinations]
    lines = ["| code | meaning | remedy |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def page() -> str:
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return f"{head}{MARK}\n{table()}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
