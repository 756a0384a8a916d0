"""What to serve and how it is split: one ``profiles/*.yaml`` as a frozen value.

Typed settings are the ones whose value the planner, fit or the prober must understand. Everything else that vLLM
takes goes through ``engine_args`` as it is; it may not name a flag that a typed field owns (``plan.engine_args``
knows which).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from orchestrator.spec.cluster import Accelerator, Name, Port, Spec

Executor = Literal["ray", "mp"]
Positive = Annotated[int, Field(ge=1)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
FindingCode = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]

_NUMBERS = {"int": r"-?[0-9]+", "float": r"-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?"}


class Nodes(Spec):
    """How many nodes; tensor parallel width is nodes divided by ``pipeline`` (one accelerator a node on a Spark)."""

    min: Positive = 1
    max: Positive = 1
    default: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Nodes:
        if self.max < self.min:
            raise ValueError(f"max: should be at least min ({self.min}), found {self.max}")
        if self.default is not None and not self.min <= self.default <= self.max:
            raise ValueError(f"default: should be from {self.min} to {self.max}, found {self.default}")
        return self


class Speculative(Spec):
    """Speculative decoding; rendered by a JSON encoder, never by pasting text.

    ``draft`` names the card of a second checkpoint that drafts; it is sent to the nodes as the model is. Without one
    the model drafts with layers of its own. ``args`` carries what is not typed here, as vLLM names it.
    """

    method: Literal["dspark", "mtp", "eagle3", "dflash", "ngram", "draft_model"]
    tokens: Annotated[int, Field(ge=1, le=16)]
    draft: Name | None = None
    draft_sample_method: Literal["greedy", "probabilistic", "gumbel"] | None = None
    attention_backend: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_]+$")
    prompt_lookup_min: Positive | None = None
    prompt_lookup_max: Positive | None = None
    args: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], JsonValue] = {}

    @model_validator(mode="after")
    def _args_say_nothing_twice(self) -> Speculative:
        named = {"num_speculative_tokens": "tokens", "model": "draft", "revision": "draft"}
        named |= {name: name for name in type(self).model_fields if name != "args"}
        for name in self.args:
            if name in named:
                raise ValueError(f"args: {name} should be set through engine/speculative/{named[name]}")
        return self

    @property
    def draft_on_every_rank(self) -> bool:
        """Whether a second checkpoint lies whole on every rank; vLLM divides it as it divides the model otherwise."""
        return self.args.get("draft_tensor_parallel_size") == 1


class Engine(Spec):
    """Typed settings of ``vllm serve``; ``None`` means vLLM's own default. Token counts are tokens, sizes are bytes."""

    served_name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$", max_length=128)
    context_tokens: Positive
    pipeline: Positive = 1
    expert_parallel: bool = False
    decode_context_parallel: Positive = 1
    memory_utilization: Annotated[float, Field(gt=0, le=0.99)] | None = None
    kv_cache_bytes: Positive | None = None
    kv_dtype: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$")
    block_size: Positive | None = None
    max_seqs: Positive | None = None
    max_batched_tokens: Positive | None = None
    long_prefill_tokens: Positive | None = None
    prefix_cache: bool | None = None
    chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    enforce_eager: bool = False
    cudagraph_capture_max: Positive | None = None
    compilation: dict[str, JsonValue] | None = None
    attention_backend: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_]+$")
    moe_backend: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$")
    linear_backend: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$")
    load_format: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$")
    tokenizer_mode: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$")
    tool_parser: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$")
    reasoning_parser: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$")
    auto_tool_choice: bool = False
    trust_remote_code: bool = False
    speculative: Speculative | None = None


class Readiness(Spec):
    """How long a start may take, how a canary is judged, and how long running answers may go on at a stop. Seconds."""

    ready_deadline_s: Annotated[float, Field(ge=10, le=86400)] = 3600.0
    join_deadline_s: Annotated[float, Field(ge=5, le=86400)] = 600.0
    completion_deadline_s: Annotated[float, Field(ge=1, le=3600)] = 60.0
    canary_every_s: Annotated[float, Field(ge=1, le=3600)] = 30.0
    backoff_s: tuple[Annotated[float, Field(ge=0, le=3600)], ...] = Field(default=(2.0, 10.0, 30.0), min_length=1)
    breaker_attempts: Positive = 3
    breaker_window_s: Annotated[float, Field(ge=60)] = 21600.0
    unreachable_s: Annotated[float, Field(ge=5, le=600)] = 60.0
    drain_s: Annotated[float, Field(ge=0, le=3600)] = 120.0


class Ports(Spec):
    """Ports on the nodes; the gateway's own port stands in the cluster file."""

    engine: Port = 8001
    agent: Port = 7070
    check: Port = 7071
    gateway_metrics: Port = 7072
    ray: Port = 6379
    ray_client: Port = 10001
    rendezvous: Port = 25000


class Ray(Spec):
    """What ``ray start`` offers on each node. On a Spark memory is unified, so the object store is kept small."""

    object_store_bytes: Annotated[int, Field(ge=78643200)] = 1073741824
    memory_bytes: Positive | None = None
    cpus: Positive = 2


class Evidence(Spec):
    """Who reported what: a value without one of these is a default or arithmetic, and says so."""

    what: str
    kind: Literal["vendor", "community", "arithmetic", "documentation", "disagreement"]
    source: str


class Profile(Spec):
    """One file of ``profiles/``. ``tables_on_disk``: the engine is told to leave the card's ``tables`` on disk.

    ``env_types`` names variables that must hold a number, so that a word is refused here and not by a running engine.
    ``waivers`` maps a code of the doctor to the reason why the operator goes on in spite of it.
    ``fabric_test_days``: ``up`` asks for a passed ``sparkctl fabric test`` of the same nodes that is not older.
    """

    name: Name
    about: str
    model: Name
    stack: dict[Executor, Name] = Field(min_length=1)
    executor: Executor = "ray"
    runtime: Literal["docker", "process"] = "docker"
    accelerator: Accelerator = "gb10"
    nodes: Nodes
    engine: Engine
    engine_args: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], bool | int | float | Text | list[Text]] = {}
    env: dict[EnvName, Text] = {}
    env_types: dict[EnvName, Literal["int", "float"]] = {}
    shm_bytes: Positive = 68719476736
    readiness: Readiness = Field(default_factory=Readiness)
    ports: Ports = Field(default_factory=Ports)
    ray: Ray = Field(default_factory=Ray)
    max_body_bytes: Annotated[int, Field(ge=1024)] = 33554432
    floating_tags: bool = False
    tables_on_disk: bool = False
    fabric_test_days: Positive | None = None
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    waivers: dict[FindingCode, Annotated[str, Field(min_length=1)]] = {}

    @model_validator(mode="after")
    def _numbers_are_numbers(self) -> Profile:
        for name, kind in self.env_types.items():
            value = self.env.get(name)
            if value is not None and not re.fullmatch(_NUMBERS[kind], value):
                words = "a whole number in digits" if kind == "int" else "a number in digits"
                raise ValueError(f'env: {name} should be {words} (env_types), found "{value[:40]}"')
        return self

    @model_validator(mode="after")
    def _executor_has_a_stack(self) -> Profile:
        if self.executor not in self.stack:
            raise ValueError(f"stack: should name a stack for executor {self.executor}, found {', '.join(self.stack)}")
        return self
