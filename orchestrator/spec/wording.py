"""What the schema's findings mean in plain words: from pydantic's error types to ``Problem`` values."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue
from pydantic_core import ErrorDetails

from orchestrator.spec.problems import MOST_PROBLEMS, Path, Problem, shorten
from orchestrator.spec.scalars import read_plain


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a value stands (``line`` from 1) and how it is shown. ``trap`` says what it should be instead.

    ``refused``: a problem stands for it already. ``plain``: written without quotes.
    """

    line: int
    shown: str
    trap: str = ""
    plain: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A read file: its value, a mark for every path in it, and the problems that YAML alone shows."""

    where: str
    value: JsonValue
    marks: Mapping[Path, Mark]
    problems: tuple[Problem, ...] = ()


_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
}
_TYPE_ERROR = re.compile(r"(int|float|bool|string|list|tuple|dict|model)_(type|parsing|parsing_size|from_float)")
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_PATTERNS = {
    r"^[a-z0-9]+((-+|\.)[a-z0-9]+)*$": "a name of letters a-z, digits, inner hyphens and dots, at most 42 long",
    r"^sha256:[0-9a-f]{64}$": "sha256: and 64 lower-case hexadecimal digits",
    r"^[0-9a-f]{64}$": "64 lower-case hexadecimal digits",
    r"^[0-9a-f]{40}$": "a commit of 40 lower-case hexadecimal digits",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "a variable name of letters, digits and underscores",
    r"^[A-Z][A-Z0-9_]*$": "a code of the doctor, such as MTU_1500",
    r"^[A-Za-z0-9_]+$": "one word of letters, digits and underscores",
    r"^[a-z0-9_]+$": "one word of lower-case letters, digits and underscores",
    r"^[a-z][a-z0-9-]*$": "a flag's name without leading dashes, lower-case with hyphens",
    r"^[a-z0-9][a-z0-9-]*$": "a distribution's name, lower-case with hyphens",
    r"^[^\x00]*$": "text without NUL characters",
    r"^[A-Za-z0-9_.:%-]+$": "a host name or address",
    r"^[a-z_][a-z0-9_.-]*$": "a user's name",
    r"^[A-Za-z0-9_.:@-]{1,15}$": "a netdev's name of at most 15 characters",
    r"^[A-Za-z0-9_-]+$": "a device's name of letters, digits, hyphens and underscores",
    r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$": "a letter or digit, then letters, digits and any of . _ : / @ -",
    r"^[a-z0-9]([a-z0-9._:/-]*[a-z0-9])$": "an image repository without tag or digest, such as ghcr.io/owner/image",
}


def in_plain_words(errors: Iterable[ErrorDetails], document: Document, kind: type[BaseModel]) -> list[Problem]:
    """One problem a place, in words. Traps are problems even where the schema took their stand-in value."""
    places: dict[Path, list[ErrorDetails]] = {}
    for error in errors:
        places.setdefault(_place(error, document), []).append(error)
    refused_keys = {problem.path for problem in document.problems}
    deeper = {path[:depth] for path in places for depth in range(len(path))}
    problems: list[Problem] = []
    for path, found in places.items():
        if len(problems) > MOST_PROBLEMS:
            break
        mark = document.marks.get(path)
        if path in refused_keys and _about_the_key(found):
            continue
        if mark is None or not (mark.refused or _is_echo(found, path, deeper, document)):
            problems += [_problem(document, path, says) for says in _sentences(found, path, document, kind)]
    said = {problem.path for problem in problems}
    for path, mark in document.marks.items():
        if mark.trap and not mark.refused and path not in said:
            problems.append(_problem(document, path, f"{mark.trap}, found {mark.shown}"))
    return problems


def _place(error: ErrorDetails, document: Document) -> Path:
    """The path in the file. A location also names members of unions and ``[key]``, which are not in the file."""
    path: Path = ()
    for part in error["loc"]:
        if (*path, part) in document.marks:
            path = (*path, part)
    if error["type"] == "missing":
        path = (*path, error["loc"][-1])
    return path


def _about_the_key(found: list[ErrorDetails]) -> bool:
    return any(error["type"] == "extra_forbidden" or "[key]" in error["loc"] for error in found)


def _is_echo(found: list[ErrorDetails], path: Path, deeper: set[Path], document: Document) -> bool:
    """Whether the problem only repeats one that stands deeper: a list of broken items counts as too short."""
    kinds = {error["type"] for error in found}
    return path in deeper and (kinds == {"too_short"} or len(kinds) > 1)


def _problem(document: Document, path: Path, says: str) -> Problem:
    named = re.match(r"([a-z0-9_]+(?:/[a-z0-9_]+)*): ", says)
    if named:
        path = (*path, *named[1].split("/"))
        says = says[named.end() :]
    closest = next(path[:depth] for depth in range(len(path), -1, -1) if path[:depth] in document.marks)
    return Problem(document.where, says, path, document.marks[closest].line)


def _sentences(found: list[ErrorDetails], path: Path, document: Document, kind: type[BaseModel]) -> Iterable[str]:
    mark = document.marks.get(path)
    shown = "nothing" if mark is None else mark.shown or "nothing"
    wanted = [_TYPES[hit[1]] for error in found if (hit := _TYPE_ERROR.match(error["type"]))]
    if wanted:
        yield f"should be {_either(wanted)}, found {shown}{_way_out(wanted, mark)}"
    elif mark is not None and mark.trap:
        yield f"{mark.trap}, found {shown}"
    else:
        for error in found:
            yield _sentence(error, path, shown, kind)


def _either(words: list[str]) -> str:
    unique = list(dict.fromkeys(words))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"


def _way_out(wanted: list[str], mark: Mark | None) -> str:
    if mark is None:
        return ""
    if "text" in wanted and mark.plain and mark.shown not in {"", "~", "null"}:
        return "; put it in quotes"
    unquoted = mark.shown[1:-1] if mark.shown.startswith('"') else ""
    value = read_plain(unquoted)[0] if unquoted else None
    fits = isinstance(value, bool) if wanted == ["true or false"] else isinstance(value, int | float)
    return "; take the quotes off" if value is not None and fits else ""


def _sentence(error: ErrorDetails, path: Path, shown: str, kind: type[BaseModel]) -> str:
    name, context = error["type"], error.get("ctx", {})
    if name == "extra_forbidden":
        return _unknown_key(path, kind)
    if name == "missing":
        return "should be given, found nothing"
    if name == "value_error":
        says = str(context["error"])
        return says if ", found" in says else f"{says}, found {shown}"
    if "[key]" in error["loc"]:
        return f"the key should be {_expected(name, context)}, found {shorten(str(path[-1]))}"
    return f"should be {_expected(name, context)}, found {shown}" if _expected(name, context) else error["msg"]


def _expected(name: str, context: Mapping[str, typing.Any]) -> str:
    if name in _BOUNDS:
        key, words = _BOUNDS[name]
        return f"{words} {context[key]}"
    if name == "literal_error":
        return str(context["expected"]).replace("'", "")
    if name == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
    if name in {"too_short", "string_too_short"}:
        return _long("at least", context["min_length"], name)
    if name in {"too_long", "string_too_long"}:
        return _long("at most", context["max_length"], name)
    return _TYPES.get(name, "")


def _long(bound: str, count: int, name: str) -> str:
    one, many = ("character", "characters") if name.startswith("string") else ("entry", "entries")
    return f"{bound} {count} {one if count == 1 else many} long"


def _unknown_key(path: Path, kind: type[BaseModel]) -> str:
    key = str(path[-1])[:64]
    model = _model_at(kind, path[:-1])
    known = list(model.model_fields)
    from difflib import get_close_matches  # for what went wrong only

    near = get_close_matches(key, known, n=1, cutoff=0.6)
    if not near:
        near = [f"{name}/{key}" for name in known if key in _model_at(model, (name,)).model_fields and name != key]
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; known here are {', '.join(known)}"


def _model_at(kind: type[BaseModel], path: Path) -> type[BaseModel]:
    """The model that describes the mapping at ``path``; the closest one above where that is not a model."""
    annotation: object = kind
    for part in path:
        fields = {name: field for model in _models(annotation) for name, field in model.model_fields.items()}
        if part in fields:
            annotation = fields[str(part)].annotation
    models = _models(annotation)
    return models[0] if models else kind


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _models(argument)]
