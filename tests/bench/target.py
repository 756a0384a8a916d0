"""What a figure should be. A bench says whether it is met and never fails: the machine may be slow or busy."""

from __future__ import annotations


def at_most(what: str, figure: float, limit: float, unit: str) -> str:
    return _line(what, figure, f"at most {limit:g}", unit, met=figure <= limit)


def at_least(what: str, figure: float, limit: float, unit: str) -> str:
    return _line(what, figure, f"at least {limit:g}", unit, met=figure >= limit)


def _line(what: str, figure: float, wanted: str, unit: str, *, met: bool) -> str:
    return f"target: {what}: {wanted} {unit}, found {figure:.3g} {unit}: {'met' if met else 'NOT MET'}"
