"""Carrying out phases, and taking them back when something fails or the operator presses Ctrl-C.

Phases run one after another; within one, every node works at once (``crew.py``). The first failure ends the phase. Then
the undos of what was begun run, last phase first, each as far as it can; they never hide why. From a phase that settles
there is no way back: its undo brings it to an end, and what came before stays.

The first Ctrl-C begins the clean-up. The next says how long the clean-up may take and ends nothing. The one after that
ends the clean-up where it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.plan.actions import Action, Await, Phase, Put
from orchestrator.plan.events import Event, EventKind
from orchestrator.run.crew import Bits, Crew, Hands, Judge, Trouble, by_node
from orchestrator.run.presses import Presses

__all__ = ["Bits", "Hands", "Judge", "Outcome", "UndoFailure", "execute"]

PUT_S = 60.0
"""What a ``Put`` counts for in the estimate of a clean-up; it has no deadline of its own."""

STOPPED = "not undone: the clean-up was stopped by the operator"


@dataclass(frozen=True, slots=True)
class UndoFailure:
    """One thing that could not be taken back."""

    node: str
    phase: str
    says: str

    def __str__(self) -> str:
        return f"{self.node}: {self.says} ({self.phase})" if self.node else f"{self.phase}: {self.says}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. ``failed`` says where, in which phase, what and the way out; ``interrupted`` in which phase.

    ``settled``: it was too late to take anything back, so what was begun was brought to an end instead.
    """

    kind: Literal["ok", "failed", "interrupted"]
    node: str = ""
    phase: str = ""
    says: str = ""
    remedy: str = ""
    undo_failures: tuple[UndoFailure, ...] = ()
    settled: bool = False

    @property
    def ok(self) -> bool:
        return self.kind == "ok"


def execute(
    phases: Sequence[Phase], hands: Hands, cancel: threading.Event, clock: Callable[[], float] = time.time
) -> Outcome:
    """Carry out ``phases``; never raises for what a node does. ``cancel``, set by anyone, works like Ctrl-C.

    Raises ``ValueError`` before anything is touched when an action names a node without a seat or an unknown judge.
    A ``sink`` that raises is not told of again: the clean-up matters more than its record.
    """
    _refuse_the_impossible(phases, hands)
    with Presses() as presses:
        return _Execution(hands, cancel, presses, clock).all(phases)


class _Execution:
    def __init__(self, hands: Hands, cancel: threading.Event, presses: Presses, clock: Callable[[], float]) -> None:
        self._hands, self._cancel, self._presses, self._clock = hands, cancel, presses, clock
        self._telling = threading.Lock()
        self._sink_works = True
        self._presses_before_undo, self._warned = 0, False
        self._to_undo: list[Phase] = []

    def all(self, phases: Sequence[Phase]) -> Outcome:
        begun: list[Phase] = []
        for phase in phases:
            if self._told_to_end():
                return self._take_back(begun, Outcome("interrupted", phase=phase.title))
            if not phase.actions:
                self._tell("phase-skipped", phase.title)
                continue
            if phase.settles:
                begun.clear()
            begun.append(phase)
            ended = self._forward(phase)
            if ended:
                if ended.kind == "failed":
                    self._hands.on_failure()
                return self._take_back(begun, ended)
        return Outcome("ok")

    def _forward(self, phase: Phase) -> Outcome | None:
        self._tell("phase-started", phase.title)
        crew = Crew(self._hands, lambda kind, node, says: self._tell(kind, phase.title, node, says))
        troubles = crew.work(phase.actions, self._told_to_end)
        if troubles:
            first = troubles[0]
            return Outcome("failed", first.node, phase.title, first.says, first.remedy)
        if self._told_to_end():
            return Outcome("interrupted", phase=phase.title)
        self._tell("phase-done", phase.title)
        return None

    def _told_to_end(self) -> bool:
        if self._presses.count:
            self._cancel.set()
        return self._cancel.is_set()

    def _take_back(self, begun: Sequence[Phase], why: Outcome) -> Outcome:
        self._presses_before_undo = self._presses.count
        settled = any(phase.settles for phase in begun)
        if why.kind == "interrupted":
            ends = "too late to go back, finishing" if settled else "taking back what was begun"
            self._tell("note", why.phase, says=f"interrupted; {ends}")
        self._to_undo = [phase for phase in begun if phase.undo]
        failures: list[UndoFailure] = []
        while self._to_undo:
            failures += self._undo(self._to_undo[-1])
            self._to_undo.pop()
        return replace(why, undo_failures=tuple(failures), settled=settled)

    def _undo(self, phase: Phase) -> list[UndoFailure]:
        if self._told_to_stop_undoing():
            return [UndoFailure("", phase.title, STOPPED)]
        self._tell("phase-started" if phase.settles else "undo-started", phase.title)
        crew = Crew(self._hands, self._quietly(phase), keep_going=True)
        troubles = [*crew.work(phase.undo, self._told_to_stop_undoing)]
        if self._told_to_stop_undoing():
            troubles.append(Trouble("", STOPPED))
        for trouble in troubles:
            self._tell("undo-failed", phase.title, trouble.node, trouble.says)
        if not troubles:
            self._tell("phase-done" if phase.settles else "undo-done", phase.title)
        return [UndoFailure(trouble.node, phase.title, trouble.says) for trouble in troubles]

    def _quietly(self, phase: Phase) -> Callable[[EventKind, str, str], None]:
        """The steps of an undo are not told one by one: to a reader of events they would look like new work.

        Only what takes long is: that is for who watches, and never recorded.
        """

        def tell(kind: EventKind, node: str, says: str) -> None:
            if kind in ("note", "action-progress"):
                self._tell(kind, phase.title, node, says)

        return tell

    def _told_to_stop_undoing(self) -> bool:
        """The first press in a clean-up is answered with how long it may take; the second counts."""
        more = self._presses.count - self._presses_before_undo
        if more == 1 and not self._warned:
            self._warned = True
            self._tell("note", says=self._estimate())
        return more > 1

    def _estimate(self) -> str:
        steps = sum(len(phase.undo) for phase in self._to_undo)
        at_most_s = sum(_longest_s(phase.undo) for phase in self._to_undo)
        return (
            f"cleaning up: {steps} steps left, at most {at_most_s:.0f} s; "
            "press Ctrl-C once more to stop the clean-up and leave the rest as it is"
        )

    def _tell(self, kind: EventKind, phase: str = "", node: str = "", says: str = "") -> None:
        with self._telling:
            if not self._sink_works:
                return
            try:
                self._hands.sink(Event(kind, self._clock(), phase, node, says, self._hands.generation))
            except Exception:  # a closed terminal or a full disk must not stop the clean-up
                self._sink_works = False


def _longest_s(actions: Sequence[Action]) -> float:
    each = [
        sum(PUT_S if isinstance(one, Put) else one.deadline_s for one in mine) for mine in by_node(actions).values()
    ]
    return max(each, default=0.0)


def _refuse_the_impossible(phases: Sequence[Phase], hands: Hands) -> None:
    for phase in phases:
        for action in (*phase.actions, *phase.undo):
            if action.node not in hands.seats:
                raise ValueError(f"{phase.title}: node {action.node} should be one of {', '.join(hands.seats)}")
            if isinstance(action, Await) and action.judge not in hands.judges:
                raise ValueError(f"{phase.title}: judge {action.judge} should be one of {', '.join(hands.judges)}")
