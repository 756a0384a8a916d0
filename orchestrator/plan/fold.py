"""State is the fold of events: what a deployment's log says about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.plan.events import Event

INTERRUPTED = "interrupted by the operator"

Stage = Literal["nothing", "working", "undoing", "failed", "ready", "stopped"]


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong in a generation. ``node`` is empty for an interruption by the operator."""

    phase: str
    node: str
    says: str


@dataclass(frozen=True, slots=True)
class DeploymentState:
    """What is known from events alone; ``status`` shows what is observed beside it.

    ``serving`` is the generation that serves clients, 0 for none; it may be older than ``generation``, the newest one
    that anything was done for. ``left`` are the clean-up steps that failed. ``at`` is Unix time of the last event.
    """

    stage: Stage = "nothing"
    generation: int = 0
    serving: int = 0
    phase: str = ""
    failure: Failure | None = None
    left: tuple[str, ...] = ()
    at: float = 0.0


def fold(events: Iterable[Event], start: DeploymentState = DeploymentState()) -> DeploymentState:
    """Fold ``events``, in the order in which they happened, onto ``start``."""
    state = start
    for event in events:
        state = _step(_newer(state, event), event)
    return state


def _newer(state: DeploymentState, event: Event) -> DeploymentState:
    """A new generation starts with a clean slate, but what served goes on serving."""
    if event.generation <= state.generation:
        return replace(state, at=event.at)
    return DeploymentState(generation=event.generation, serving=state.serving, at=event.at)


def _step(state: DeploymentState, event: Event) -> DeploymentState:
    match event.kind:
        case "phase-started":
            # Work that begins after a failure was dealt with is a new try of the same generation.
            again = state.stage in ("failed", "stopped")
            state = replace(state, failure=None, left=()) if again else state
            return replace(state, stage="working", phase=event.phase)
        case "action-failed" | "action-ended":
            of_node = Failure(event.phase, event.node, event.says)
            ended = Failure(event.phase, "", INTERRUPTED)
            failure = state.failure or (ended if event.kind == "action-ended" else of_node)
            return replace(state, stage="failed" if state.stage != "undoing" else "undoing", failure=failure)
        case "undo-started":
            failure = state.failure or Failure(state.phase, "", INTERRUPTED)
            return replace(state, stage="undoing", failure=failure)
        case "undo-done":
            return replace(state, stage="failed")
        case "undo-failed":
            where = f"{event.node}: " if event.node else ""
            return replace(state, stage="failed", left=(*state.left, f"{where}{event.says}"))
        case "generation-ready":
            return replace(state, stage="ready", serving=event.generation, failure=None, left=())
        case "generation-stopped":
            return _stopped(state, event)
        case _:
            return state


def _stopped(state: DeploymentState, event: Event) -> DeploymentState:
    serving = 0 if event.generation == state.serving else state.serving
    if event.generation != state.generation:
        return replace(state, serving=serving)
    return replace(state, stage="stopped", serving=serving)
