"""What is wrong with something the operator wrote, as values that print as one line each.

A line reads ``profiles/x.yaml engine/pipeline: should be a whole number, found "2" (line 14)``: the file, the slash
path into it (list indexes count from 0), what was expected, what stands there, and on which line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]
MOST_PROBLEMS = 40
LONGEST_SHOWN = 60


def shorten(text: str, longest: int = LONGEST_SHOWN) -> str:
    """``text`` on one line without control characters, at most ``longest`` characters."""
    line = text[: longest + 1]
    if not line.isprintable():
        line = "".join(char if char.isprintable() else _escaped(char) for char in line)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _escaped(char: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\u{ord(char):04x}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in ``where``. ``line`` counts from 1; ``None`` when there is no line to show."""

    where: str
    says: str
    path: Path = ()
    line: int | None = None

    def __str__(self) -> str:
        path = "/".join(shorten(str(part)) for part in self.path)
        place = f"{self.where} {path}" if path else self.where
        return f"{place}: {self.says}" + (f" (line {self.line})" if self.line is not None else "")


class SpecError(Exception):
    """The operator's files or words cannot be used. ``problems`` holds all of them, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = _capped(sorted(problems, key=lambda problem: (problem.where, problem.line or 0)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def _capped(problems: list[Problem]) -> tuple[Problem, ...]:
    """A file that is wrong in thousands of places is one mistake; the first ones show it."""
    if len(problems) <= MOST_PROBLEMS:
        return tuple(problems)
    rest = Problem(problems[-1].where, f"and {len(problems) - MOST_PROBLEMS} more problems")
    return (*problems[:MOST_PROBLEMS], rest)
