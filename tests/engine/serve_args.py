"""vLLM's own parser as the judge of the command lines that this project makes.

No GPU and no model is needed: the parser is built and given words, nothing is served. Values that the parser takes
without a look (attention backends, load formats, the inside of JSON arguments) are held against vLLM's own enums and
types. Where those lie moves between versions, so each is found by its name, in ``_definitions`` and nowhere else.

Importing vLLM takes about ten seconds and half a gigabyte; it happens at the first call, once in a process.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

NAMES = (
    "make_arg_parser",
    "FlexibleArgumentParser",
    "AttentionBackendEnum",
    "LoadFormats",
    "MoEBackend",
    "LinearBackend",
    "CacheDType",
    "SpeculativeMethod",
    "DraftSampleMethod",
    "ToolParserManager",
    "ReasoningParserManager",
)
ONLY_SERVE_HAS = "--headless"
"""Tells the parser of ``vllm serve`` from others that are built by a function of the same name."""


class RefusedArgumentsError(ValueError):
    """vLLM does not take the words. ``flags`` are those that it has never heard of; empty for a wrong value."""

    def __init__(self, message: str, flags: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.flags = tuple(flags)


class UnknownValue(NamedTuple):
    """A value that the installed vLLM does not know for ``flag``, and what it does know."""

    flag: str
    value: str
    reason: str


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the words of ``vllm serve …``, with or without these two (the program may have a path) in front.

    Flags must be written in full. Raises RefusedArgumentsError, with the unknown flags by name.
    """
    whole = len(argv) > 1 and Path(argv[0]).name == "vllm" and argv[1] == "serve"
    words = list(argv[2:] if whole else argv)
    args: argparse.Namespace = parser().parse_args(words)
    return args


def check_enums(args: argparse.Namespace) -> list[UnknownValue]:
    """The values among ``args`` that the parser takes and this vLLM does not know. Empty when all is well."""
    found = []
    for flag, value, known in _chosen(args):
        if value is None or value == "" or value.lower() in {word.lower() for word in known}:
            continue
        found.append(UnknownValue(flag, value, f"this vLLM knows {', '.join(sorted(known))}"))
    return found


def _chosen(args: argparse.Namespace) -> Iterator[tuple[str, str | None, frozenset[str]]]:
    """Flag, value and the values that vLLM knows, for each flag that is worth a look."""
    attention = frozenset({"auto", *_one("AttentionBackendEnum").__members__})
    yield "--attention-backend", _word(getattr(args, "attention_backend", None)), attention
    configured = getattr(args, "attention_config", None)
    yield "--attention-config.backend", _word(_inside(configured, "backend")), attention
    for kind, backend in (_inside(configured, "backend_per_kind") or {}).items():
        yield f"--attention-config.backend_per_kind.{kind}", _word(backend), attention
    for flag, literal in (
        ("--load-format", "LoadFormats"),
        ("--moe-backend", "MoEBackend"),
        ("--linear-backend", "LinearBackend"),
        ("--kv-cache-dtype", "CacheDType"),
    ):
        yield flag, _word(getattr(args, flag[2:].replace("-", "_"), None)), _literal_words(_one(literal))
    speculative = getattr(args, "speculative_config", None)
    for key, literal in (("method", "SpeculativeMethod"), ("draft_sample_method", "DraftSampleMethod")):
        yield f"--speculative-config.{key}", _word(_inside(speculative, key)), _literal_words(_one(literal))
    for flag, manager in (
        ("--tool-call-parser", "ToolParserManager"),
        ("--reasoning-parser", "ReasoningParserManager"),
    ):
        known = frozenset(_one(manager).list_registered())
        yield flag, _word(getattr(args, flag[2:].replace("-", "_"), None)), known


def _inside(configured: object, key: str) -> Any:
    """``key`` of a JSON argument, which vLLM keeps as a mapping or as one of its configuration objects."""
    if isinstance(configured, Mapping):
        return configured.get(key)
    return getattr(configured, key, None)


def _word(value: object) -> str | None:
    """The name of an enum's member or the text of a word, None where the flag was not given."""
    if value is None:
        return None
    return str(getattr(value, "name", value))


def _literal_words(kind: object) -> frozenset[str]:
    """All words of a ``Literal``, whether or not others are nested in it."""
    words: set[str] = set()
    for inner in typing.get_args(kind):
        words |= {inner} if isinstance(inner, str) else _literal_words(inner)
    return frozenset(words)


@functools.cache
def parser(allow_abbrev: bool = False) -> Any:
    """The parser of ``vllm serve``, which raises where vLLM's would end the process.

    vLLM's own takes abbreviations; ours are not meant to need any, so they are refused unless asked for.
    """
    base = _one("FlexibleArgumentParser")

    class Judge(base):  # type: ignore[misc, valid-type]
        def error(self, message: str) -> NoReturn:
            unknown = message.removeprefix("unrecognized arguments: ") if "unrecognized" in message else ""
            flags = [word.split("=", 1)[0] for word in unknown.split() if word.startswith("-")]
            raise RefusedArgumentsError(message, flags)

        def flags(self) -> frozenset[str]:
            return frozenset(self._option_string_actions)

    for make in _definitions()["make_arg_parser"]:
        made = make(Judge(prog="vllm serve", allow_abbrev=allow_abbrev))
        if ONLY_SERVE_HAS in made.flags():
            return made
    raise LookupError(f"no make_arg_parser of the installed vLLM makes a parser that knows {ONLY_SERVE_HAS}")


def _one(name: str) -> Any:
    """What the installed vLLM defines as ``name``."""
    return _definitions()[name][0]


@functools.cache
def _definitions() -> dict[str, tuple[Any, ...]]:
    """Everything in NAMES, wherever this version of vLLM defines it at the top of a module.

    The sources are searched as text first, because importing every module of vLLM would take minutes. Raises
    ModuleNotFoundError without vLLM, LookupError for a name that is nowhere.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("vLLM is not installed: make setup installs its CPU build")
    root = Path(next(iter(spec.submodule_search_locations)))
    homes = _homes(root, NAMES)
    missing = [name for name in NAMES if not homes[name]]
    if missing:
        raise LookupError(f"{root} defines no {', '.join(missing)}: this version calls them something else")
    return {name: tuple(getattr(importlib.import_module(home), name) for home in homes[name]) for name in NAMES}


def _homes(root: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """Modules below the package ``root`` that define each name at the top level, in order of their paths."""
    pattern = re.compile(rf"^(?:(?:def|class) +)?({'|'.join(names)})\b *(?:\(|:|=|\[)", re.MULTILINE)
    homes: dict[str, list[str]] = {name: [] for name in names}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for name in dict.fromkeys(pattern.findall(text)):
            homes[name].append(module)
    return homes
