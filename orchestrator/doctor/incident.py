"""What a diagnosis is made of: logs in, incidents with their witnesses out."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.spec.signatures import Phase, Tells


@dataclass(frozen=True, slots=True)
class Log:
    """The output of one rank, or of whatever wrote it. ``silent_s``: how long nothing has come, where that is known.

    ``numbers`` of lines in the file, from 1, where this is a part of it.
    """

    name: str
    lines: tuple[str, ...]
    node: str = ""
    rank: str = ""
    silent_s: float | None = None
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Witness:
    """A line that says something; ``line`` counts from 1, ``text`` is without secrets and at most 500 characters."""

    log: str
    node: str
    rank: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One kind of fault that was seen, by one witness a log at most.

    ``outlived``: the engine came up after it, so it ended an earlier start at most.
    """

    code: str
    tells: Tells
    phase: Phase
    says: str
    remedy: str
    rules_out: tuple[str, ...]
    sources: tuple[str, ...]
    witnesses: tuple[Witness, ...]
    outlived: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``cause`` is the first cause; ``others`` are what it led to, or what was seen besides; ``warnings`` kill nothing.

    ``first_fatal`` is the first line that looks fatal and that no entry of the table knows: alone where what is known
    is later and names no reason, beside a later ``cause``, and beside an echo, whose reason that line may be.
    """

    cause: Incident | None = None
    others: tuple[Incident, ...] = ()
    warnings: tuple[Incident, ...] = ()
    first_fatal: Witness | None = None

    @property
    def bad(self) -> bool:
        return self.cause is not None or self.first_fatal is not None
