"""The rank file: everything one agent needs to know, and the status it answers with.

This is the only module that the agent shares with the rest, so it is standard library only and runs on Python 3.10:
the agent travels into images that we did not build. A rank file holds no secret: it names the files that do.

Times are seconds; ``*_at`` are Unix times by the clock of the node that wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

SCHEMA = 1

StepKind = Literal["daemon", "until", "tcp", "peers"]
RankState = Literal["waiting", "starting", "running", "stopping", "backoff", "failed", "broken", "stopped"]


def plain(value: object) -> dict[str, object]:
    """The fields of a dataclass, for ``json.dumps(…, default=plain)``: ``asdict`` without its deep copies."""
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return {each.name: getattr(value, each.name) for each in fields(value)}


@dataclass(frozen=True, slots=True)
class Peer:
    """A rank as the others see it: where its agent answers ``GET /rank``."""

    rank: int
    node: str
    address: str
    agent_port: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a rank's start sequence; steps run in order, and each must succeed before the next begins.

    - ``daemon``: start ``argv`` and go on; when it ends for any reason, the attempt has failed.
    - ``until``: run ``argv`` again and again until it exits 0; its last output line is what the wait last saw.
    - ``tcp``: wait until ``host:port`` accepts a connection.
    - ``peers``: wait until every other rank reports ``running`` in the same attempt.

    ``children`` names processes that a daemon keeps and does not watch itself (a raylet that is asked to end leaves
    ``ray start --block`` waiting for ever): once seen below it, the end of one is the end of the attempt.

    ``secret_env`` maps a variable to the 0600 file whose content becomes its value, read when the step starts:
    so a secret is never in an argv, a rank file or the container's own environment.
    """

    name: str
    kind: StepKind
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    children: tuple[str, ...] = ()
    host: str = ""
    port: int = 0
    deadline_s: float = 300.0
    every_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Service:
    """What rank 0 serves and how the prober proves it."""

    base_url: str
    served_name: str
    context_tokens: int
    engine_key_file: str
    ready_deadline_s: float
    completion_deadline_s: float
    canary_every_s: float = 30.0
    canaries_missed_max: int = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """How a gang is kept alive, and how it ends: ``drain_s`` is how long running answers may go on after SIGTERM."""

    backoff_s: tuple[float, ...] = (2.0, 10.0, 30.0)
    breaker_attempts: int = 3
    breaker_window_s: float = 21600.0
    unreachable_s: float = 60.0
    join_deadline_s: float = 600.0
    stop_grace_s: float = 10.0
    drain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RankFile:
    """One rank of one generation. Paths are as the agent sees them (inside the container where there is one).

    ``scratch`` is a short directory that every attempt gets empty: temporary files and unix sockets go there.
    ``rdma`` are the devices that NCCL must use for the gate ``transport`` to open; empty where there is no such gate.
    """

    deployment: str
    generation: int
    plan_digest: str
    rank: int
    node: str
    address: str
    executor: Literal["ray", "mp"]
    peers: tuple[Peer, ...]
    agent_port: int
    check_port: int
    state_dir: str
    agent_token_file: str
    steps: tuple[Step, ...]
    service: Service
    policy: Policy = Policy()
    scratch: str = ""
    rdma: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, so that equal rank files are equal bytes."""
        return json.dumps(self, default=plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> RankFile:
        """The inverse of ``to_json``. Raises ``ValueError`` that says what is wrong with the file."""
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw.get("schema") != SCHEMA:
                raise ValueError(f"rank file schema {raw.get('schema')!r}, this agent reads {SCHEMA}")
            raw["peers"] = tuple(Peer(**peer) for peer in raw["peers"])
            raw["steps"] = tuple(
                Step(**{**step, "argv": tuple(step["argv"]), "children": tuple(step["children"])})
                for step in raw["steps"]
            )
            raw["rdma"] = tuple(raw.get("rdma", ()))
            raw["service"] = Service(**raw["service"])
            policy = raw["policy"]
            raw["policy"] = Policy(**{**policy, "backoff_s": tuple(policy["backoff_s"])})
            return RankFile(**raw)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a rank file of this version: {error}") from error


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition of readiness. ``open`` is None while it is not known yet; ``saw`` is in plain words."""

    name: str
    open: bool | None
    saw: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over: why, and whether it had ever been ready."""

    attempt: int
    reason: str
    was_ready: bool
    ended_at: float


@dataclass(frozen=True, slots=True)
class RankStatus:
    """What ``GET /rank`` answers and ``status.json`` in the state directory holds.

    ``agent_id`` is new with every agent process: a peer that comes back with another one has lost its attempt.
    ``doing`` is the step at hand and what it last saw. ``last_fatal`` is the first fatal line of the last failed
    attempt's log. ``ready`` is true only on rank 0, and only while every gate of every rank is open. A rank above 0 has
    no readiness of its own: ``ready`` is false here and null in JSON, for it does not say that something is missing.
    """

    deployment: str
    generation: int
    plan_digest: str
    rank: int
    node: str
    agent_id: str
    state: RankState
    attempt: int
    doing: str
    ready: bool
    gates: tuple[Gate, ...]
    versions: Mapping[str, str]
    processes: Mapping[str, int]
    history: tuple[Ended, ...]
    last_fatal: str
    written_at: float
    schema: int = SCHEMA

    def to_json(self) -> str:
        value = {**plain(self), "ready": self.ready if self.rank == 0 else None}
        return json.dumps(value, default=plain, sort_keys=True, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> RankStatus:
        """The inverse of ``to_json``. Raises ``ValueError`` when the text is not a status of this schema."""
        try:
            raw: dict[str, Any] = json.loads(text)
            raw["gates"] = tuple(Gate(**gate) for gate in raw["gates"])
            raw["ready"] = bool(raw["ready"])
            raw["history"] = tuple(Ended(**ended) for ended in raw["history"])
            return RankStatus(**raw)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a rank status of this version: {error}") from error
