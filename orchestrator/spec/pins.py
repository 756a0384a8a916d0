"""Exact bits that run: a stack, one YAML each under ``pins/stacks/``, and what is known not to run together.

A value that nobody could verify is absent. ``confidence`` says how well a literal is supported: ``two`` independent
projects publish the same value, ``one`` project does, or it is ``reported`` in prose only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.spec.cluster import Name, Spec

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Repository = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9._:/-]*[a-z0-9])$")]
Confidence = Literal["two", "one", "reported", "built"]


class Image(Spec):
    """A container image. ``digest`` is of the manifest; where it is absent (image to be built) ``up`` asks for it."""

    repository: Repository
    digest: Digest | None = None
    confidence: Confidence = "one"
    bytes: Annotated[int, Field(ge=0)] | None = None
    build: str | None = None
    python: str = "python3"
    sources: tuple[str, ...] = ()


class Stack(Spec):
    """One file of ``pins/stacks/``. ``versions`` are distributions that every rank must really have loaded.

    ``base`` is the stack whose image this one adds to: what was measured with the base holds here too.
    """

    name: Name
    about: str
    base: Name | None = None
    image: Image | None = None
    gateway: Image | None = None
    has: tuple[Literal["ray", "vllm"], ...] = ("vllm",)
    versions: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")], str] = {}
    inside: dict[str, str] = {}
    fork_only: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class KnownBad(Spec):
    """A combination that is known to fail, as data: ``fit``, ``doctor`` and ``plan`` all read the same table.

    ``part`` is what has a version (a distribution, ``nccl``, ``driver``, ``kernel``). ``versions`` are bounds such as
    ``<2.29.3`` or ``>=7.0``, all of which must hold; empty means every version. ``where`` are further conditions on
    facts, each a word of the table's own (``arch``, ``accelerator``, ``env``, ``ranks``, ``model``, ``kv_dtype``,
    ``tensor``, ``attention``); a value may end in ``*``, and ``|`` stands between values of which one must hold.
    """

    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    part: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    versions: tuple[Annotated[str, Field(pattern=r"^(<|<=|>|>=|==|!=)[0-9][0-9A-Za-z.+_-]*$")], ...] = ()
    where: dict[str, str] = {}
    verdict: Literal["warn", "fail"]
    what: str
    remedy: str
    sources: tuple[str, ...] = Field(min_length=1)


class KnownBadTable(Spec):
    """``pins/known-bad.yaml``."""

    combinations: tuple[KnownBad, ...]
