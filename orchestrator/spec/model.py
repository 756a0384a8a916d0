"""A model card: what is served, in exact bytes, with the numbers that a split and a memory sum need.

One YAML of ``pins/models/`` each. A value that nobody could verify is absent, and every answer that would need it says
so. ``confidence`` says how well a literal is supported (``orchestrator.spec.pins``). Figures that somebody measured
carry their source; a figure that belongs to one stack names it, because two images of the same model differ.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from orchestrator.spec.cluster import Name, Spec
from orchestrator.spec.pins import Confidence, Sha256

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=0)]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Kind = Literal["vendor", "community", "arithmetic", "documentation", "disagreement"]


class File(Spec):
    """One file of a checkpoint."""

    path: str = Field(pattern=r"^[^\x00/][^\x00]*$")
    bytes: Bytes
    sha256: Sha256 | None = None

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, value: str) -> str:
        if ".." in value.split("/"):
            raise ValueError("should be a path below the model's directory, without ..")
        return value


class Architecture(Spec):
    """The numbers that decide a split: tensor parallel must divide the heads, expert parallel the experts."""

    layers: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    experts: Count | None = None
    experts_per_token: Count | None = None
    shared_experts: Annotated[int, Field(ge=0)] | None = None
    hidden: Count | None = None


class KvRows(Spec):
    """Layers that keep cache rows. ``bytes`` are of one row by cache dtype, as the dtype is called on vLLM's flag;
    a row that is as large with every other dtype has the key ``any``.

    ``replicated`` rows (MLA: one latent for all heads) lie whole on every tensor-parallel rank and only decode-context
    parallel divides them. ``heads`` rows are of one KV head, key and value together, and the heads are divided over
    the ranks until each has one. ``tokens_per_row`` is above one where a row stands for several tokens.
    """

    what: str
    layers: Count
    sharing: Literal["replicated", "heads"]
    bytes: dict[str, Annotated[float, Field(gt=0)]] = Field(min_length=1)
    heads: Count | None = None
    tokens_per_row: Count = 1

    @model_validator(mode="after")
    def _heads_have_a_number(self) -> KvRows:
        if (self.sharing == "heads") != (self.heads is not None):
            raise ValueError("heads: should be given exactly where sharing is heads")
        return self


class KvState(Spec):
    """What every sequence keeps whatever its length: sliding windows, recurrent state. ``bytes`` per layer.

    ``divided`` state is spread over the tensor-parallel ranks.
    """

    what: str
    layers: Count
    bytes: Count
    divided: bool = False


class KvMeasured(Spec):
    """Bytes of cache per token and rank that a running engine showed: the size of its pool over the pool's tokens."""

    dtype: str
    bytes_per_token: Annotated[float, Field(gt=0)]
    tensor: Count | None = None
    decode_context_parallel: Count = 1
    stack: Name | None = None
    source: str


class Kv(Spec):
    """The rule by which this model's cache grows. ``unknown`` says what is missing where there is no rule."""

    rows: tuple[KvRows, ...] = ()
    state: tuple[KvState, ...] = ()
    measured: tuple[KvMeasured, ...] = ()
    unknown: str | None = None

    @model_validator(mode="after")
    def _is_known_or_says_why(self) -> Kv:
        if (self.unknown is None) == (not self.rows and not self.measured):
            raise ValueError("should have either rows (or measured) or unknown, found both or neither")
        return self


class Measured(Spec):
    """Bytes on one rank that somebody saw: of loaded weights, or of everything that is neither weights nor cache."""

    bytes: Count
    nodes: Count | None = None
    tables_on_disk: bool = False
    stack: Name | None = None
    source: str


class Build(Spec):
    """Another checkpoint of the same weights: another precision, or another engine's format.

    ``weights_gb`` is a published rounded figure in units of 10^9 bytes; ``weights_bytes`` is exact where it is known.
    ``card`` names the model card that pins this build, where there is one.
    """

    name: str
    format: Literal["safetensors", "gguf", "exl3"]
    weights_gb: Annotated[float, Field(gt=0)]
    weights_bytes: Count | None = None
    repository: str | None = None
    revision: Revision | None = None
    card: Name | None = None
    source: str
    notes: tuple[str, ...] = ()


class Draft(Spec):
    """The draft of speculative decoding. ``tokens`` is the depth that runs on GB10 showed to be fastest.

    ``card`` names the card of a draft that is a checkpoint of its own; without one it is part of the model's.
    """

    method: str
    tokens: Count | None = None
    card: Name | None = None
    notes: tuple[str, ...] = ()


class Reported(Spec):
    """A speed that somebody published. Never a forecast: another prompt family alone moves it by a third."""

    nodes: Count | None = None
    hardware: str = "DGX Spark"
    build: str | None = None
    engine: str
    decode_tok_s: dict[str, float] = {}
    prefill_tok_s: dict[str, float] = {}
    aggregate_tok_s: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    kind: Kind
    source: str


class Api(Spec):
    """What the owner's own API asks, in US dollars per million tokens: the price that owning boxes competes with."""

    input_usd_per_m: Annotated[float, Field(ge=0)]
    output_usd_per_m: Annotated[float, Field(gt=0)]
    source: str


class Active(Spec):
    """Bytes of weights that one decode step of one sequence reads."""

    bytes_per_token: Annotated[float, Field(gt=0)]
    source: str


class Tables(Spec):
    """Part of the weights that may stay on disk and be read as it is needed, instead of filling memory."""

    what: str
    bytes: Count
    source: str


class Model(Spec):
    """One file of ``pins/models/``. Either a published repository (at a revision) or made on the spot by ``made_by``.

    ``draft_of`` names the cards of the models that this one drafts for; it is never served by itself.
    """

    name: Name
    about: str
    repository: str | None = None
    revision: Revision | None = None
    made_by: str | None = None
    licence: str
    licence_note: str | None = None
    context_tokens: Count | None = None
    precision: str | None = None
    total_params: Annotated[float, Field(gt=0)] | None = None
    active_params: Annotated[float, Field(gt=0)] | None = None
    architecture: Architecture = Field(default_factory=Architecture)
    repo_bytes: Count | None = None
    weights_bytes: Count | None = None
    tensor_bytes: Count | None = None
    weights_gb: Annotated[float, Field(gt=0)] | None = None
    shards: Count | None = None
    kv: Kv = Field(default_factory=lambda: Kv(unknown="this card has no rule"))
    loaded: tuple[Measured, ...] = ()
    runtime: tuple[Measured, ...] = ()
    active: Active | None = None
    tables: Tables | None = None
    draft: Draft | None = None
    draft_of: tuple[Name, ...] = ()
    builds: tuple[Build, ...] = ()
    reported: tuple[Reported, ...] = ()
    api: Api | None = None
    warnings: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    confidence: Confidence = "one"
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_an_origin(self) -> Model:
        if (self.repository is None) == (self.made_by is None):
            raise ValueError("should have either repository (and revision) or made_by, found both or neither")
        return self
