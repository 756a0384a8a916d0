"""What lines of output mean: one entry per kind of fault, as data in ``pins/signatures.yaml``.

A table that cannot work is refused when it is read: a regular expression that does not compile or may take for ever, a
template with a name that nothing fills, an example that the entry does not recognise.
"""

from __future__ import annotations

import re
import string
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from orchestrator.spec.cluster import Spec

Code = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
Phase = Literal["any", "starting", "loading", "compiling", "serving"]
Tells = Literal["cause", "lost", "echo", "wait", "wrapper", "warning", "benign"]
Stage = Literal["starting", "loading", "compiling", "serving", "answering", "stopped"]
Calculation = Literal["bridge", "fit_fraction", "gids", "odd_address", "seconds", "versions"]

MOST_CHARACTERS = 400
"""The longest regular expression; a kind of fault is recognised by a few words."""

# (a+)+ and the like take exponential time on a line that nearly matches.
_REPEATED_TWICE = re.compile(r"\((?:[^()\\]|\\.)*[+*](?:[^()\\]|\\.)*\)(?:[+*]|\{\d*,\})")


class Signature(Spec):
    """One kind of fault.

    ``patterns`` are searched in a line that contains one of ``has`` (plain text, so that a long log is skimmed fast);
    their named groups fill ``says`` and ``remedy``, and ``adds`` names a value that is calculated from them. A pattern
    may span ``lines`` lines, joined by a newline. ``after`` is a pattern that an earlier line must have matched; its
    groups fill the templates too.
    Unless ``any_level``, a line that its writer gave the level INFO or WARNING does not count.

    ``tells`` orders kinds: a ``cause`` explains the rest; ``lost`` is something that went away for a reason it does not
    name; an ``echo`` is what others see of that; a ``wait`` has not ended yet and is void once the log goes on to a
    later phase; a ``wrapper`` only points at another line; a ``warning`` harms but kills nothing; ``benign`` looks bad
    and is silent. ``stalls`` makes a line count only where nothing follows it for so many seconds. ``beside_death``
    makes it count only where an engine died, if the logs tell of an engine.
    """

    code: Code
    tells: Tells
    phase: Phase = "any"
    has: tuple[Annotated[str, Field(min_length=3)], ...] = Field(min_length=1)
    patterns: tuple[Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)], ...] = Field(min_length=1)
    lines: Annotated[int, Field(ge=1, le=8)] = 1
    after: Annotated[str, Field(max_length=MOST_CHARACTERS)] = ""
    any_level: bool = False
    stalls: Annotated[int, Field(ge=0)] = 0
    beside_death: bool = False
    adds: Calculation | None = None
    says: str = Field(min_length=1)
    remedy: str = ""
    rules_out: tuple[Code, ...] = ()
    examples: tuple[str, ...] = Field(min_length=1)
    sources: tuple[Annotated[str, Field(pattern=r"\S")], ...] = Field(min_length=1)

    @field_validator("patterns")
    @classmethod
    def _compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            _check(pattern)
        return patterns

    @field_validator("after")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        if pattern:
            _check(pattern)
        return pattern

    @model_validator(mode="after")
    def _works(self) -> Signature:
        names = {name for pattern in (*self.patterns, self.after) for name in re.compile(pattern).groupindex}
        names |= {self.adds} if self.adds else set()
        for template in (self.says, self.remedy):
            unknown = _names(template) - names
            if unknown:
                raise ValueError(f"should fill {', '.join(sorted(unknown))} in a template, found no group of that name")
        for example in self.examples:
            if not any(text in example for text in self.has):
                raise ValueError(f"should have one of its own words in {example[:60]!r}, found none")
            if not any(re.search(pattern, example) for pattern in self.patterns):
                raise ValueError(f"should match its own example, found that no pattern matches {example[:60]!r}")
        if self.tells not in ("benign", "wrapper") and not self.remedy:
            raise ValueError("should have a remedy, found none")
        return self


class Milestone(Spec):
    """A line that shows that the engine has come to ``phase``. It contains ``has``.

    An engine that is ``answering`` has survived what looked fatal before and is known to no entry. What is lost or late
    once it has ``stopped`` in order went away because of that.
    """

    phase: Stage
    has: Annotated[str, Field(min_length=3)]


class SignatureTable(Spec):
    """``pins/signatures.yaml``."""

    milestones: tuple[Milestone, ...] = ()
    signatures: tuple[Signature, ...]

    @model_validator(mode="after")
    def _one_entry_a_code(self) -> SignatureTable:
        codes = [each.code for each in self.signatures]
        twice = sorted({code for code in codes if codes.count(code) > 1})
        if twice:
            raise ValueError(f"should have one entry a code, found several for {', '.join(twice)}")
        unknown = sorted({code for each in self.signatures for code in each.rules_out} - set(codes))
        if unknown:
            raise ValueError(f"should rule out codes of this table, found {', '.join(unknown)}")
        return self


def _check(pattern: str) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"should be a regular expression, found {pattern!r}: {error}") from None
    if compiled.search(""):
        raise ValueError(f"should be a regular expression that needs some text, found {pattern!r}")
    if _REPEATED_TWICE.search(pattern):
        raise ValueError(f"should not repeat what repeats already (it may take for ever), found {pattern!r}")


def _names(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
