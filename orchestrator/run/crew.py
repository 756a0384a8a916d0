"""One thread per node: the actions of one node in order, all nodes at once, until done, failed or told to end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.plan.actions import Action, Await, Put, Run, SendImage, SendModel, Verdict
from orchestrator.plan.events import Event, EventKind
from orchestrator.run.dockersays import DiskFullError, is_disk_full
from orchestrator.run.job import cancelled
from orchestrator.run.transport import (
    CommandFailed,
    ConnectionLost,
    DeadlineExceeded,
    NodeError,
    Transport,
    Unreachable,
)

GRACE_S = 2.0
"""How long the other nodes' running actions may go on after one node failed."""

LET_GO_S = 30.0
"""How long an action that was told to end may take to do so before it is left behind."""

PROBE_S = 30.0
"""The longest that one look of an ``Await`` may take."""

WHOLE_S = 25.0
"""How long an action that is to be let finish may go on after it was told to end."""

FIRST_WORD_S = 2.0
"""An action that goes on so long is told of, for nothing has been yet."""

WORD_EVERY_S = 10.0
"""And then at least so often, until it ends: silence looks like a hang."""

_COUNTED = re.compile(r"\d+(?:\.\d+)? s\b")
"""Seconds in what a wait sees: that they went on is no news."""

TURN_S = 0.05
CANCEL_EVERY_S = 0.2
TAIL_LINES = 6

Judge = Callable[[int, str], Verdict]


class Bits(Protocol):
    """Who carries images and models. Cancelling the transport ends what is under way on its node."""

    def send_image(self, action: SendImage, transport: Transport, progress: Callable[[str], None]) -> str:
        """Answers what was done, for people. Raises a ``NodeError``."""

    def send_model(self, action: SendModel, transport: Transport, progress: Callable[[str], None]) -> str:
        """As ``send_image``."""

    def cancel(self) -> None:
        """End everything under way, from another thread."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What an execution works with. ``generation`` is stamped on every event; ``judges`` are named by ``Await``.

    ``on_failure`` is called once, before anything is taken back: the moment at which evidence still exists.
    """

    seats: Mapping[str, Transport]
    bits: Bits
    judges: Mapping[str, Judge]
    sink: Callable[[Event], None]
    generation: int = 0
    on_failure: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an action failed, in words, and the way out where there is one."""

    node: str
    says: str
    remedy: str = ""


@dataclass(slots=True)
class _UnderWay:
    """What was last seen of the action that a node is at, when it began and was last told of (monotonic seconds)."""

    says: str
    began: float
    told: float


Tell = Callable[[EventKind, str, str], None]
"""Kind, node, words."""


class Crew:
    """Carries out one set of actions. ``keep_going`` is for undoing: a failure stops nothing."""

    def __init__(self, hands: Hands, tell: Tell, keep_going: bool = False) -> None:
        self._hands, self._tell, self._keep_going = hands, tell, keep_going
        self._halt, self._abort = threading.Event(), threading.Event()
        self._under_way: dict[str, _UnderWay] = {}
        self._telling = threading.Lock()
        self._troubles: list[Trouble] = []
        self._whole: set[str] = set()
        self._whole_end = float("inf")

    def work(self, actions: Sequence[Action], told_to_end: Callable[[], bool]) -> tuple[Trouble, ...]:
        """What failed, first failure first; empty also when only ``told_to_end`` ended it."""
        threads = {
            node: threading.Thread(target=self._one_node, args=(mine,), name=f"actions on {node}", daemon=True)
            for node, mine in by_node(actions).items()
        }
        for thread in threads.values():
            thread.start()
        grace_end, let_go = float("inf"), float("inf")
        while running := [node for node, thread in threads.items() if thread.is_alive()]:
            threads[running[0]].join(CANCEL_EVERY_S if self._abort.is_set() else TURN_S)
            now = time.monotonic()
            self._remind(now)
            if self._troubles and not self._keep_going:
                self._halt.set()
                grace_end = min(grace_end, now + GRACE_S)
            if told_to_end() or now > grace_end:
                let_go = min(let_go, now + LET_GO_S)
                self._end(running)
            if now > let_go:
                for node in running:
                    self._tell("note", node, f"an action does not end after {LET_GO_S:g} s; it is left behind")
                break
        return tuple(self._troubles)

    def _end(self, nodes: list[str]) -> None:
        """Said again and again until it is heard, for a cancel between two calls of an action finds nothing to end."""
        if not self._abort.is_set():
            self._halt.set()
            self._abort.set()
            self._whole_end = time.monotonic() + WHOLE_S
            self._hands.bits.cancel()
        for node in nodes:
            if node not in self._whole or time.monotonic() > self._whole_end:
                self._hands.seats[node].cancel()

    def _one_node(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if self._halt.is_set():
                return
            try:
                done = self._told(action)
            except NodeError as problem:
                ended = self._trouble(action, _named(action, problem.what), problem.remedy)
            except Exception as problem:  # a defect of ours must not skip the undo
                ended = self._trouble(action, _named(action, f"{type(problem).__name__}: {problem}"))
            else:
                self._tell("action-done", action.node, f"{action.says}: {done}" if done else action.says)
                continue
            if ended:
                return

    def _told(self, action: Action) -> str:
        """Do it, and have it told of while it goes on."""
        self._tell("action-started", action.node, action.says)
        now = time.monotonic()
        with self._telling:
            self._under_way[action.node] = _UnderWay(action.says, now, now)
        try:
            return self._do(action)
        finally:
            with self._telling:
                del self._under_way[action.node]

    def _remind(self, now: float) -> None:
        with self._telling:
            for node, at in self._under_way.items():
                if now - at.told >= (FIRST_WORD_S if at.told == at.began else WORD_EVERY_S):
                    at.told = now
                    self._tell("action-progress", node, f"{at.says} ({now - at.began:.0f} s so far)")

    def _trouble(self, action: Action, says: str, remedy: str = "") -> bool:
        """True when this node's other actions are not to begin."""
        if self._abort.is_set():  # what fails because it was ended is not what went wrong
            self._tell("action-ended", action.node, says)
        else:
            self._troubles.append(Trouble(action.node, says, remedy))
            self._tell("action-failed", action.node, says)
        return not self._keep_going

    def _do(self, action: Action) -> str:
        transport = self._hands.seats[action.node]
        if isinstance(action, Run):
            self._run(action, transport)
        elif isinstance(action, Put):
            transport.put(action.path, action.data, action.mode)
        elif isinstance(action, Await):
            self._await(action, transport)
        elif isinstance(action, SendImage):
            return self._hands.bits.send_image(action, transport, self._progress(action))
        else:
            return self._hands.bits.send_model(action, transport, self._progress(action))
        return ""

    def _run(self, action: Run, transport: Transport) -> None:
        if action.whole:
            self._whole.add(action.node)
        try:
            _run(action, transport)
        finally:
            self._whole.discard(action.node)

    def _progress(self, action: Action) -> Callable[[str], None]:
        """Takes what was seen of an action; tells it at once where it is more than that seconds went by."""

        def progress(says: str) -> None:
            with self._telling:
                at = self._under_way[action.node]
                news = at.told == at.began or _COUNTED.sub("", says) != _COUNTED.sub("", at.says)
                at.says = says
                if news:
                    at.told = time.monotonic()
                    self._tell("action-progress", action.node, says)

        return progress

    def _await(self, action: Await, transport: Transport) -> None:
        """Raises ``DeadlineExceeded`` with what was seen last, or ``CommandFailed`` when the judge gave up."""
        judge, progress = self._hands.judges[action.judge], self._progress(action)
        end = time.monotonic() + action.deadline_s
        while True:
            verdict = _look(action, transport, judge, end - time.monotonic())
            progress(verdict.saw)
            if verdict.failed:
                raise CommandFailed(action.node, verdict.saw)
            if verdict.done:
                return
            if time.monotonic() + action.every_s > end:
                raise DeadlineExceeded(action.node, f"not so after {action.deadline_s:g} s; last seen: {verdict.saw}")
            if self._abort.wait(action.every_s):
                raise cancelled(action.node, "waiting")


def _named(action: Action, what: str) -> str:
    """What went wrong with an action; those that belong to the one before have no words of their own."""
    return f"{action.says}: {what}" if action.says else what


def by_node(actions: Sequence[Action]) -> dict[str, list[Action]]:
    """The actions of each node, in order."""
    found: dict[str, list[Action]] = {}
    for action in actions:
        found.setdefault(action.node, []).append(action)
    return found


def _run(action: Run, transport: Transport) -> None:
    answer = transport.run(action.argv, deadline_s=action.deadline_s)
    if answer.code not in action.ok:
        lines = [line for line in (answer.stderr.strip() or answer.stdout.strip()).splitlines() if line.strip()]
        full = next((line.strip() for line in lines if is_disk_full(line)), "")
        if full:  # whatever ran there, and however much it says of it
            raise DiskFullError(action.node, f"a disk ran full: {full}", f"make room on {action.node}; see: df -h")
        tail = "\n  ".join(lines[-TAIL_LINES:])
        raise CommandFailed(action.node, f"exit code {answer.code}" + (f": {tail}" if tail else ""))


def _look(action: Await, transport: Transport, judge: Judge, left_s: float) -> Verdict:
    """A node that cannot be asked just now may be asked again: it may be restarting its network or itself."""
    try:
        answer = transport.run(action.argv, deadline_s=max(1.0, min(left_s, PROBE_S)))
    except (DeadlineExceeded, ConnectionLost, Unreachable) as problem:
        return Verdict(done=False, saw=problem.what)
    return judge(answer.code, answer.stdout)
