"""What one agent sees and may be told to do: the values that decisions are made of.

``now`` and ``heard_at`` are monotonic seconds of this agent; ``wall`` is Unix time, for what outlives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.plan.rankfile import Peer, RankState, RankStatus

FRESH_S = 6.0
"""An answer younger than this is the present; a poll or two may be lost within it."""

LIVE: tuple[RankState, ...] = ("starting", "running")
AT_REST: tuple[RankState, ...] = ("waiting", "failed")

_WORDS: Mapping[RankState, str] = {
    "waiting": "waits to begin",
    "starting": "is starting attempt {}",
    "running": "runs attempt {}",
    "stopping": "is ending attempt {}",
    "backoff": "pauses after attempt {}",
    "failed": "failed in attempt {}",
    "broken": "gave up after attempt {}",
    "stopped": "was stopped",
}


def who(peer: Peer) -> str:
    """A rank as people know it: by its number and its node, never by an address."""
    return f"rank {peer.rank} ({peer.node})"


def in_words(state: RankState, attempt: int) -> str:
    """What a rank is at, as the end of a sentence that begins with the rank. Never why: that is said by the rank."""
    return _WORDS[state].format(attempt)


@dataclass(frozen=True, slots=True)
class Own:
    """This rank's processes: none, in the start sequence, all steps done, one died or was late, killed."""

    phase: Literal["idle", "steps", "up", "failed", "killing"] = "idle"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PeerView:
    """The last answer of a peer of this generation, when it came, and what the last poll saw if it failed."""

    status: RankStatus | None = None
    heard_at: float = 0.0
    saw: str = "no answer yet"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The prober's word: ``hopeless`` is why the gang must start anew, ``closed`` why it is not ready."""

    ready: bool = False
    hopeless: str = ""
    closed: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everything a decision may depend on."""

    now: float
    wall: float
    own: Own = Own()
    peers: Mapping[int, PeerView] = field(default_factory=dict)
    verdict: Verdict = Verdict()


@dataclass(frozen=True, slots=True)
class Start:
    """Start the sequence of this attempt from nothing."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill everything this rank has running."""


Command = Start | Kill | None
