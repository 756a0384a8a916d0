"""From the bytes of a YAML file to a frozen value, or to all of its problems at once. Pure: no file is opened here.

Only the part of YAML that an operator needs is read: mappings, lists and scalars. Anchors, aliases, tags, merge keys,
repeated keys and a second document are refused, and so are words that different YAML versions read differently
(``yes``, ``on``, ``010``). Everything hostile is refused on the event stream, before anything is built from it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TypeVar

import yaml
from pydantic import BaseModel, JsonValue, ValidationError

from orchestrator.spec.problems import MOST_PROBLEMS, Path, Problem, SpecError, shorten
from orchestrator.spec.scalars import read_plain
from orchestrator.spec.wording import Document, Mark, in_plain_words

T = TypeVar("T", bound=BaseModel)

MOST_BYTES = 1_000_000
MOST_VALUES = 6_000
DEEPEST = 32

# libyaml is about ten times as fast; the pure loader is the same grammar for machines that lack it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse(text: bytes | str, where: str, kind: type[T]) -> T:
    """The value of ``kind`` that ``text`` holds. Raises ``SpecError`` with every problem; ``where`` names the file."""
    document = read(text, where)
    problems = list(document.problems)
    try:
        value = kind.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        problems += in_plain_words(error.errors(include_url=False, include_input=False), document, kind)
    else:
        problems += in_plain_words([], document, kind)
        if not problems:
            return value
    raise SpecError(problems)


def read(text: bytes | str, where: str, loader: type[yaml.SafeLoader] = _Loader) -> Document:
    """The mapping that ``text`` holds, with a mark for each value. Raises ``SpecError`` when it is no such YAML."""
    decoded = _decode(text, where)
    builder = _Builder(where)
    try:
        for event in yaml.parse(decoded, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise SpecError([_syntax(error, where, decoded)]) from None
    except yaml.YAMLError as error:
        raise SpecError([Problem(where, f"should be YAML, found {shorten(str(error))}")]) from None
    if not builder.documents:
        raise SpecError([Problem(where, "should be a mapping of keys to values, found an empty file")])
    document = builder.document()
    if not isinstance(document.value, dict):
        found = document.marks[()]
        says = f"should be a mapping of keys to values, found {found.shown}"
        raise SpecError([*document.problems, Problem(where, says, line=found.line)])
    return document


def _decode(text: bytes | str, where: str) -> str:
    """UTF-8 text without a byte order mark, small enough and free of control characters."""
    if len(text) > MOST_BYTES:
        raise SpecError([Problem(where, f"should be at most {MOST_BYTES} bytes, found {len(text)}")])
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            says = f"should be UTF-8 text, found byte 0x{text[error.start]:02x} at byte {error.start}"
            raise SpecError([Problem(where, says)]) from None
    text = text.removeprefix("\ufeff")
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        says = f"should be printable text, found character U+{ord(bad.group()):04X} in column {column}"
        raise SpecError([Problem(where, says, line=line)])
    return text


def _syntax(error: yaml.MarkedYAMLError, where: str, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or "something else"
    if mark is None:
        return Problem(where, f"should be YAML, found a mistake: {problem}")
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    says = f"should be YAML, found a mistake in column {mark.column + 1}: {problem}"
    if "\t" in line[: mark.column + 1]:
        says += "; indent with spaces, not with tabs"
    elif "mapping values are not allowed" in problem:
        says += "; put text that holds a colon in quotes, and indent keys of one mapping alike"
    elif "cannot start any token" in problem:
        says += "; put text that starts with @, `, % or such in quotes"
    elif error.context and error.context_mark and "while" in error.context:
        says += f" {error.context} that starts on line {error.context_mark.line + 1}"
    return Problem(where, says, line=mark.line + 1)


@dataclass(slots=True)
class _Frame:
    """A mapping or a list that is being filled."""

    path: Path
    value: dict[str, JsonValue] | list[JsonValue]
    key: str | None = None
    key_line: int = 0
    repeated: bool = False


@dataclass(slots=True)
class _Builder:
    """Builds plain values from YAML events, without recursion, and stops at the first hostile one."""

    where: str
    frames: list[_Frame] = field(default_factory=list)
    marks: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    root: JsonValue = None
    documents: int = 0
    values: int = 0

    def document(self) -> Document:
        return Document(self.where, self.root, self.marks, tuple(self.problems))

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._stop("should be one document, found a second one", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = self.frames.pop()
            mark = self.marks[closed.path]
            if not closed.value and not mark.refused:
                self.marks[closed.path] = Mark(mark.line, mark.shown.replace("a ", "an empty ", 1))
        elif isinstance(event, yaml.NodeEvent):
            self._count(line)
            self._node(event, line)

    def _node(self, event: yaml.NodeEvent, line: int) -> None:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            self._key(frame, event, line)
            return
        path = () if frame is None else (*frame.path, len(frame.value) if frame.key is None else frame.key)
        refused = self._decorations(event, path, line)
        value: JsonValue
        if isinstance(event, yaml.ScalarEvent):
            value, mark = _scalar(event, line)
        elif isinstance(event, yaml.AliasEvent):
            value, mark = None, Mark(line, f"*{event.anchor}")
        elif isinstance(event, yaml.MappingStartEvent):
            value, mark = {}, Mark(_line_of(frame, line), "a mapping")
        else:
            value, mark = [], Mark(_line_of(frame, line), "a list")
        self.marks.setdefault(path, Mark(mark.line, mark.shown, refused=True) if refused else mark)
        self._place(frame, value)
        if isinstance(value, dict | list):
            if len(self.frames) >= DEEPEST:
                self._stop(f"should be nested at most {DEEPEST} deep, found deeper", line)
            self.frames.append(_Frame(path, value))

    def _place(self, frame: _Frame | None, value: JsonValue) -> None:
        if frame is None:
            self.root = value
        elif isinstance(frame.value, list):
            frame.value.append(value)
        else:
            if not frame.repeated and frame.key is not None:
                frame.value[frame.key] = value
            frame.key = None

    def _key(self, frame: _Frame, event: yaml.NodeEvent, line: int) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            words = {yaml.AliasEvent: "an alias", yaml.SequenceStartEvent: "a list"}
            self._stop(f"a key should be text, found {words.get(type(event), 'a mapping')}", line, frame.path)
            return
        key = str(event.value)
        path = (*frame.path, key)
        self._decorations(event, path, line)
        value, mark = _scalar(event, line)
        if not event.style and key == "<<":
            self._refuse("merge keys are not read here; write the keys out", line, path)
        elif not isinstance(value, str) or mark.trap:
            self._refuse(f"a key should be text, found {mark.shown or 'nothing'}; put it in quotes", line, path)
        frame.repeated = isinstance(frame.value, dict) and key in frame.value
        if frame.repeated:
            self._refuse(f"should be there once, found again on line {line}", self.marks[path].line, path)
        frame.key, frame.key_line = key, line

    def _decorations(self, event: yaml.NodeEvent, path: Path, line: int) -> bool:
        tag = getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(f"should be written out, found the alias *{shorten(str(event.anchor))}", line, path)
            return True
        if event.anchor is not None:
            self._refuse(f"should be without an anchor, found &{shorten(event.anchor)}; write values out", line, path)
        if tag is not None:
            self._refuse(f"should be without a tag, found {shorten(tag)}", line, path)
        return tag is not None

    def _count(self, line: int) -> None:
        self.values += 1
        if self.values > MOST_VALUES:
            self._stop(f"should hold at most {MOST_VALUES} keys and values, found more", line)

    def _refuse(self, says: str, line: int, path: Path) -> None:
        self.problems.append(Problem(self.where, says, path, line))
        if len(self.problems) >= MOST_PROBLEMS:
            raise SpecError(self.problems)

    def _stop(self, says: str, line: int, path: Path = ()) -> None:
        raise SpecError([*self.problems, Problem(self.where, says, path, line)])


def _line_of(frame: _Frame | None, line: int) -> int:
    """A mapping or list in block style begins below its key; a person looks for the key."""
    return line if frame is None or frame.key is None else frame.key_line


def _scalar(event: yaml.ScalarEvent, line: int) -> tuple[JsonValue, Mark]:
    text = str(event.value)
    if not event.style:
        value, trap = read_plain(text)
        return value, Mark(line, shorten(text), trap, plain=True)
    trap = "should be text without NUL characters" if "\x00" in text else ""
    return text.replace("\x00", ""), Mark(line, f'"{shorten(text)}"', trap)
