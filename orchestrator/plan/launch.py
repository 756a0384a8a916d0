"""The launch plan: for every node, what will run there, as frozen values with one canonical form.

A plan is a function of what the operator wrote, the pins and the facts. Its identity is the sha256 of its canonical
JSON with generation 0, so two plans are the same plan exactly when they would run the same thing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from orchestrator.plan.rankfile import RankFile, plain

Runtime = Literal["docker", "process"]

STOP_GRACE_S = 20
"""How long a unit may take to end, beside the answers that it lets finish."""


@dataclass(frozen=True, slots=True)
class Mount:
    """``source`` is a path on the node, or the name of a docker volume when it has no slash."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """What docker is told beyond argv, environment and mounts. GPU flags are data: empty where there is no GPU.

    ``user`` is root: the files that a unit reads are 0600 and belong to the node's user, whose number we do not choose.
    """

    image: str
    user: str = "0:0"
    shm_bytes: int = 67108864
    gpus: str = ""
    devices: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    ulimits: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing that runs on a node: a container, or with ``container`` None a detached process.

    ``directory`` is on the node and belongs to this unit alone, and so does ``scratch`` (empty: none on the node).
    ``name`` is unique on the node.
    """

    name: str
    node: str
    rank: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    directory: str
    scratch: str = ""
    container: Container | None = None
    stop_grace_s: int = STOP_GRACE_S


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file that the plan itself renders; never a secret."""

    path: str
    text: str
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file whose content is made at ``up`` and never stands in a plan: all files of one ``name`` hold one secret."""

    path: str
    name: Literal["agent-token", "engine-key", "ray-token", "client-keys", "gateway-engine-key"]


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank: its unit and the files the unit needs."""

    rank: int
    node: str
    address: str
    unit: Unit
    rank_file: RankFile
    files: tuple[TextFile, ...]
    secrets: tuple[SecretFile, ...]


@dataclass(frozen=True, slots=True)
class Gateway:
    """HAProxy on one node: clients come in at ``bind``; ``endpoint`` is what a person is told.

    ``metrics_port`` is on the node's loopback address.
    """

    node: str
    bind: str
    port: int
    metrics_port: int
    endpoint: str
    unit: Unit
    files: tuple[TextFile, ...]
    secrets: tuple[SecretFile, ...]


@dataclass(frozen=True, slots=True)
class ImageBits:
    """An image that must be on ``nodes``, by digest, under a local tag that the units run."""

    repository: str
    digest: str
    local_tag: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelBits:
    """A model directory that must be on ``nodes``. ``made_by`` is the program that makes it, where it is made.

    ``manifest`` is (path, bytes) of its files, ``hashes`` (path, sha256) of those whose content is pinned.
    """

    model: str
    revision: str
    target: Mapping[str, str]
    source: str
    nodes: tuple[str, ...]
    made_by: str = ""
    manifest: tuple[tuple[str, int], ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything that ``up`` will do, and nothing that it will not. ``state`` maps a node to its state directory."""

    deployment: str
    profile: str
    model: str
    served_name: str
    stack: str
    executor: Literal["ray", "mp"]
    runtime: Runtime
    generation: int
    digest: str
    agent_sha256: str
    state: Mapping[str, str]
    ranks: tuple[Rank, ...]
    gateway: Gateway
    images: tuple[ImageBits, ...]
    models: tuple[ModelBits, ...]
    ready_deadline_s: float
    warnings: tuple[str, ...] = ()
    schema: int = field(default=1)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(rank.node for rank in self.ranks)

    @property
    def head(self) -> str:
        return self.ranks[0].node

    @property
    def units(self) -> tuple[Unit, ...]:
        return (*(rank.unit for rank in self.ranks), self.gateway.unit)

    def to_value(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers, for JSON and for comparison."""
        value: dict[str, Any] = json.loads(json.dumps(self, default=plain))
        return value

    def canonical(self) -> str:
        """One text per plan: sorted keys, no spaces, UTF-8 as it is."""
        return json.dumps(self, default=plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def identity(plan_at_generation_zero: LaunchPlan) -> str:
    """``sha256:…`` of the canonical form. Raises ``ValueError`` for a plan that already carries a generation."""
    if plan_at_generation_zero.generation != 0 or plan_at_generation_zero.digest:
        raise ValueError("a plan's identity is taken before it gets a generation")
    return _sha256(what_runs(plan_at_generation_zero).canonical())


def what_runs(plan: LaunchPlan) -> LaunchPlan:
    """Without what is said to the operator, and where the model lies on his machine: another home restarts nothing."""
    return replace(plan, warnings=(), models=tuple(replace(each, source="") for each in plan.models))


def identity_of(plan: LaunchPlan) -> str:
    """The identity that ``plan`` should carry as its digest, whatever its generation: what shows that it was changed.

    A generation stands in paths, names and rank files, so all of these are taken back to generation 0 first.
    """
    blank = {(plan.generation, plan.digest): (0, "")}
    ranks = []
    for rank in plan.ranks:
        own = (rank.rank_file.generation, rank.rank_file.plan_digest)
        generation, digest = blank.get(own, own)
        ranks.append(replace(rank, rank_file=replace(rank.rank_file, generation=generation, plan_digest=digest)))
    text = what_runs(replace(plan, generation=0, digest="", ranks=tuple(ranks))).canonical()
    marks = [(f"{state}/g", "/") for state in plan.state.values()] + [(f"sparkctl-{plan.deployment}-g", "-")]
    for before, after in marks:
        numbered, zero = (json.dumps(f"{before}{n}{after}", ensure_ascii=False)[1:-1] for n in (plan.generation, 0))
        text = text.replace(numbered, zero)
    return _sha256(text)


def _sha256(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
