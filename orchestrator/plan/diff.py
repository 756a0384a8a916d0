"""What differs between two plans: every value as a path, and for people a line per rank. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from orchestrator.plan.launch import LaunchPlan, what_runs
from orchestrator.spec.problems import shorten

# These follow from a new generation; they are never the reason for one.
_NUMBERS = frozenset({"generation", "digest", "plan_digest"})

MOST_LINES = 20
_MOST_DETAILS = 4


@dataclass(frozen=True, slots=True)
class Change:
    """``path`` uses slashes; ``before`` or ``after`` is empty when the value is only on one side."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        if not self.before:
            return f"+ {self.path}: {self.after}"
        if not self.after:
            return f"- {self.path}: {self.before}"
        return f"~ {self.path}: {self.before} -> {self.after}"


def changes(old: LaunchPlan | None, new: LaunchPlan) -> tuple[Change, ...]:
    """Every leaf that differs. Without an old plan: one line that says that nothing runs."""
    if old is None:
        return (Change("deployment", "", f"{new.deployment} (nothing runs yet)"),)
    if old.digest == new.digest:
        return ()
    before, after = dict(_leaves("", _level(old))), dict(_leaves("", _level(new)))
    return tuple(
        Change(path, before.get(path, ""), after.get(path, ""))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    )


def summary(old: LaunchPlan | None, new: LaunchPlan) -> tuple[str, ...]:
    """The same for people: values of the whole deployment as they are, then a line per rank and for the gateway.

    At most ``MOST_LINES`` and one that says how many more. Empty when both are the same plan.
    """
    found = changes(old, new)
    if old is None or not found:
        return tuple(map(str, found))
    lines = [_shown(change) for change in found if _is_of_all(change)]
    before, after = _parts(_level(old)), _parts(_level(new))
    alike = []
    for title in dict.fromkeys((*before, *after)):
        if title not in after:
            lines.append(f"- {title}: removed")
        elif title not in before:
            lines.append(f"+ {title}: added")
        elif said := _details(before[title], after[title]):
            lines.append(f"~ {title}: restarts with another {', '.join(said)}")
        else:
            alike.append(title)
    # A new generation is a new start of everything: nobody may think that these go on serving.
    lines += [f"~ {', '.join(alike)}: restarts as it is"] if alike else []
    return capped(lines)


def capped(lines: Sequence[str], most: int = MOST_LINES) -> tuple[str, ...]:
    """The first ``most`` lines, and how many more there are."""
    rest = len(lines) - most
    return tuple(lines) if rest <= 0 else (*lines[:most], f"and {rest} more")


def _shown(change: Change) -> str:
    return str(Change(change.path, shorten(change.before), shorten(change.after)))


def _is_of_all(change: Change) -> bool:
    """Whether it is neither of one rank nor of the gateway, and does not just follow from a node that came or went."""
    first, *rest = change.path.split("/")
    per_node = first == "state" or (first in {"images", "models"} and rest[1:2] in (["nodes"], ["target"]))
    return first not in {"ranks", "gateway"} and not (per_node and not (change.before and change.after))


def _parts(level: Any) -> dict[str, Any]:
    """Title -> rank or gateway, with steps and files by name, so that one more does not move the others."""
    ranks = {f"rank {rank['rank']} on {rank['node']}": rank for rank in level["ranks"]}
    parts = {**ranks, f"gateway on {level['gateway']['node']}": level["gateway"]}
    return {title: _by_name(part) for title, part in parts.items()}


def _by_name(part: dict[str, Any]) -> dict[str, Any]:
    files = {file["path"].rpartition("/")[2]: file for file in part["files"]}
    steps = {step["name"]: step for step in part.get("rank_file", {}).get("steps", ())}
    return {**part, "files": files, "steps": steps, "rank_file": {**part.get("rank_file", {}), "steps": []}}


def _details(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs in one rank, in words: ``command (--max-model-len 512 -> 256)``, ``environment (NCCL_DEBUG)``."""
    found: dict[str, list[str]] = {}
    old, new = dict(_leaves("", before)), dict(_leaves("", after))
    for path in sorted({*old, *new}):
        if old.get(path) != new.get(path):
            kind, detail = _kind(path.split("/"))
            found.setdefault(kind, []).extend([detail] if detail else [])
    if found.pop("command", None) is not None and (words := list(_command(before, after))):
        found["command"] = words
    order = sorted(found, key=lambda kind: (kind != "command", kind != "environment"))
    return [_with_details(kind, list(dict.fromkeys(found[kind]))) for kind in order]


def _kind(path: list[str]) -> tuple[str, str]:
    """What a leaf of a rank or gateway is a part of, and which one of these."""
    match path:
        case ["unit", "argv", *_] | ["steps", _, "argv", *_]:
            return "command", ""
        case ["unit", "env", key, *_] | ["steps", _, "env" | "secret_env", key, *_]:
            return "environment", key
        case ["unit", "container", "image"]:
            return "image", ""
        case ["unit" | "rank_file", key, *_]:
            return key, ""
        case ["files" | "steps" as key, name, *_]:
            return key, name
        case _:
            return path[0], ""


def _with_details(kind: str, details: list[str]) -> str:
    rest = len(details) - _MOST_DETAILS
    shown = [*details[:_MOST_DETAILS], *([f"and {rest} more"] if rest > 0 else [])]
    return f"{kind} ({', '.join(shown)})" if shown else kind


def _command(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """The words that differ, of the unit's own command and of every step that is on both sides."""
    yield from _words(before["unit"]["argv"], after["unit"]["argv"])
    for name, step in before["steps"].items():
        if name in after["steps"]:
            yield from _words(step["argv"], after["steps"][name]["argv"])


def _words(old: list[str], new: list[str]) -> Iterator[str]:
    for what, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = " ".join(old[start:end]), " ".join(new[new_start:new_end])
        if what == "replace":
            flag = old[start - 1] if start and old[start - 1].startswith("--") and not gone.startswith("-") else ""
            yield f"{flag} {shorten(gone, 40)} -> {shorten(come, 40)}".strip()
        elif what != "equal":
            yield f"{'+' if come else '-'} {shorten(come or gone)}"


def _level(plan: LaunchPlan) -> Any:
    """The plan as if it were generation 0: paths and names that carry the number are the same on both sides."""
    text = what_runs(plan).canonical()
    for mark in (f"/g{plan.generation}/", f"-g{plan.generation}-"):
        text = text.replace(mark, mark.replace(str(plan.generation), "N"))
    return json.loads(text)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _NUMBERS:
                yield from _leaves(f"{path}/{key}" if path else key, item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(f"{path}/{index}", item)
    else:
        yield path, str(value) if value != "" else '""'
