"""Exact bits: a stack (what runs) and a model (what is served), one YAML each under ``pins/``.

A value that nobody could verify is absent. ``confidence`` says how well a literal is supported: ``two`` independent
projects publish the same value, ``one`` project does, or it is ``reported`` in prose only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

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
    """One file of ``pins/stacks/``. ``versions`` are distributions that every rank must really have loaded."""

    name: Name
    about: str
    image: Image | None = None
    gateway: Image | None = None
    has: tuple[Literal["ray", "vllm"], ...] = ("vllm",)
    versions: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")], str] = {}
    inside: dict[str, str] = {}
    fork_only: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class File(Spec):
    """One file of a checkpoint."""

    path: str = Field(pattern=r"^[^\x00/][^\x00]*$")
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256 | None = None

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, value: str) -> str:
        if ".." in value.split("/"):
            raise ValueError("should be a path below the model's directory, without ..")
        return value


class Architecture(Spec):
    """The numbers that decide a split: tensor parallel must divide the heads, expert parallel the experts."""

    layers: Annotated[int, Field(ge=1)] | None = None
    heads: Annotated[int, Field(ge=1)] | None = None
    kv_heads: Annotated[int, Field(ge=1)] | None = None
    experts: Annotated[int, Field(ge=1)] | None = None


class Model(Spec):
    """One file of ``pins/models/``. Either a published repository at a revision, or made on the spot by ``made_by``."""

    name: Name
    about: str
    repository: str | None = None
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    made_by: str | None = None
    licence: str
    context_tokens: Annotated[int, Field(ge=1)]
    architecture: Architecture = Field(default_factory=Architecture)
    repo_bytes: Annotated[int, Field(ge=0)] | None = None
    weights_bytes: Annotated[int, Field(ge=0)] | None = None
    tensor_bytes: Annotated[int, Field(ge=0)] | None = None
    files: tuple[File, ...] = ()
    confidence: Confidence = "one"
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_an_origin(self) -> Model:
        if (self.repository is None) == (self.made_by is None):
            raise ValueError("should have either repository (and revision) or made_by, found both or neither")
        return self
