"""The executor's decisions, over seats that are played: order, first failure, undo, waits and words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from orchestrator.plan.actions import Await, Phase, Put, Run, SendImage, SendModel, Verdict
from orchestrator.plan.events import Event
from orchestrator.run import crew
from orchestrator.run.executor import Hands, Outcome, UndoFailure, execute
from orchestrator.run.transport import Cancelled, ConnectionLost, NodeError, Result

Answer = Result | NodeError | Callable[[], Result]


@dataclass
class FakeSeat:
    """Answers by the first word of a command, 0 for what it does not know, and writes down what it was asked."""

    node: str
    diary: list[str]
    answers: Mapping[str, Answer] = field(default_factory=dict)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def run(self, argv: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"") -> Result:
        self.diary.append(f"{self.node} {' '.join(argv)}")
        if argv[0] == "forever":
            self.cancelled.clear()
            assert self.cancelled.wait(20), "nobody cancelled"
            raise Cancelled(self.node, "forever was cancelled")
        answer = self.answers.get(argv[0], Result(0, "", ""))
        if isinstance(answer, NodeError):
            raise answer
        return answer if isinstance(answer, Result) else answer()

    def put(self, path: str, data: bytes, mode: int) -> None:
        self.diary.append(f"{self.node} put {path} {mode:o}")

    def follow(self, argv: tuple[str, ...], line: Callable[[str], None], stop: Callable[[], bool]) -> int:
        raise AssertionError("an executor follows nothing")

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        pass


class FakeBits:
    def __init__(self) -> None:
        self.cancels = 0

    def send_image(self, action: SendImage, transport: object, progress: Callable[[str], None]) -> str:
        progress("layer 1 of 2")
        return "already there"

    def send_model(self, action: SendModel, transport: object, progress: Callable[[str], None]) -> str:
        raise RuntimeError("a defect")

    def cancel(self) -> None:
        self.cancels += 1


@dataclass
class Stage:
    """Two played nodes, and everything that was done and told."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    diary: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cancel: threading.Event = field(default_factory=threading.Event)
    judges: Mapping[str, Callable[[int, str], Verdict]] = field(default_factory=dict)
    bits: FakeBits = field(default_factory=FakeBits)

    def play(self, *phases: Phase) -> Outcome:
        seats = {node: FakeSeat(node, self.diary, self.answers) for node in ("a", "b")}
        return execute(phases, Hands(seats, self.bits, self.judges, self.events.append, 7), self.cancel, lambda: 12.5)

    def told(self, *kinds: str) -> list[str]:
        return [f"{event.kind} {event.node} {event.says}" for event in self.events if event.kind in kinds]


def run(node: str, *words: str, deadline_s: float = 60.0) -> Run:
    return Run(node, words, says=f"do {words[0]}", deadline_s=deadline_s)


def test_phases_follow_one_another_and_events_tell_the_story() -> None:
    stage = Stage()
    outcome = stage.play(
        Phase("Bring", (SendImage("a", "r", "sha256:0", "t", "image r"),)),
        Phase("Write", (Put("b", "/p", b"x", "a file", 0o640), run("b", "start"))),
    )
    assert outcome == Outcome("ok")
    assert outcome.ok
    assert stage.diary == ["b put /p 640", "b start"]
    assert [(event.kind, event.phase, event.node, event.says) for event in stage.events] == [
        ("phase-started", "Bring", "", ""),
        ("action-started", "Bring", "a", "image r"),
        ("action-progress", "Bring", "a", "layer 1 of 2"),
        ("action-done", "Bring", "a", "image r: already there"),
        ("phase-done", "Bring", "", ""),
        ("phase-started", "Write", "", ""),
        ("action-started", "Write", "b", "a file"),
        ("action-done", "Write", "b", "a file"),
        ("action-started", "Write", "b", "do start"),
        ("action-done", "Write", "b", "do start"),
        ("phase-done", "Write", "", ""),
    ]
    assert {(event.at, event.generation) for event in stage.events} == {(12.5, 7)}


def test_nodes_of_a_phase_work_at_once() -> None:
    both = threading.Barrier(2, timeout=10)
    stage = Stage({"meet": lambda: (both.wait(), Result(0, "", ""))[1]})
    assert stage.play(Phase("Meet", (run("a", "meet"), run("b", "meet")))).ok


def test_the_first_failure_stops_and_the_undos_run_last_first() -> None:
    stage = Stage({"break": Result(3, "out", "warning\n\nno room\n")})
    outcome = stage.play(
        Phase("One", (run("a", "one"),), undo=(run("a", "un-one"), run("b", "un-one"))),
        Phase("Two", (run("a", "break"), run("a", "never")), undo=(run("a", "un-two"),)),
        Phase("Three", (run("a", "never"),), undo=(run("a", "never"),)),
    )
    assert outcome == Outcome("failed", "a", "Two", "do break: exit code 3: warning\n  no room")
    assert stage.diary[:3] == ["a one", "a break", "a un-two"]
    assert sorted(stage.diary[3:]) == ["a un-one", "b un-one"]
    assert [event.phase for event in stage.events if event.kind in ("undo-started", "undo-done")] == ["Two"] * 2 + [
        "One"
    ] * 2


@pytest.mark.parametrize("why", ["OSError: [Errno 28] No space left on device", "I/O error: Disk quota exceeded (122)"])
def test_a_disk_that_ran_full_is_said_plainly_whatever_ran_there(why: str) -> None:
    traceback = f'Traceback (most recent call last):\n  File "/x.py", line 3, in save\n    write()\n  {why}\nmore\n'
    outcome = Stage({"save": Result(1, "", traceback)}).play(Phase("Make", (run("a", "save"),)))
    assert outcome.says == f"do save: a disk ran full: {why}"
    assert outcome.remedy == "make room on a; see: df -h"


def test_a_failure_ends_the_other_nodes_work_and_stays_the_reason() -> None:
    stage = Stage({"break": Result(1, "", "boom")})
    outcome = stage.play(
        Phase("One", (run("a", "break"), run("b", "forever"), run("b", "never")), undo=(run("b", "un"),))
    )
    assert (outcome.kind, outcome.node, outcome.says) == ("failed", "a", "do break: exit code 1: boom")
    assert stage.diary[-1] == "b un"
    assert "b never" not in stage.diary
    assert stage.told("action-failed") == [
        "action-failed a do break: exit code 1: boom",
    ]
    assert stage.told("action-ended") == ["action-ended b do forever: forever was cancelled"]


def test_other_nodes_get_a_short_chance_to_finish() -> None:
    failed = threading.Event()

    def slow() -> Result:
        assert failed.wait(10)
        return Result(0, "", "")

    def broken() -> Result:
        threading.Timer(0.3, failed.set).start()
        return Result(1, "", "")

    stage = Stage({"slow": slow, "break": broken})
    assert stage.play(Phase("One", (run("a", "break"), run("b", "slow"), run("b", "never")))).kind == "failed"
    assert stage.told("action-done") == ["action-done b do slow"]
    assert "b never" not in stage.diary


def test_a_failed_undo_is_told_and_hides_nothing() -> None:
    stage = Stage({"break": Result(1, "", "why"), "un-two": Result(1, "", "stuck")})
    outcome = stage.play(
        Phase("One", (run("a", "one"),), undo=(run("a", "un-one"),)),
        Phase("Two", (run("a", "break"),), undo=(run("a", "un-two"), run("a", "un-two-more"))),
    )
    assert outcome.says == "do break: exit code 1: why"
    assert outcome.undo_failures == (UndoFailure("a", "Two", "do un-two: exit code 1: stuck"),)
    assert str(outcome.undo_failures[0]) == "a: do un-two: exit code 1: stuck (Two)"
    assert stage.diary == ["a one", "a break", "a un-two", "a un-two-more", "a un-one"]
    assert stage.told("undo-failed") == ["undo-failed a do un-two: exit code 1: stuck"]


def test_cancel_undoes_and_is_an_interruption_not_a_failure() -> None:
    stage = Stage()
    threading.Timer(0.2, stage.cancel.set).start()
    outcome = stage.play(
        Phase("One", (run("a", "one"),), undo=(run("a", "un-one"),)),
        Phase("Two", (run("a", "forever"), run("b", "forever")), undo=(run("a", "un-two"),)),
    )
    assert outcome == Outcome("interrupted", phase="Two")
    assert stage.diary[-2:] == ["a un-two", "a un-one"]
    assert stage.bits.cancels == 1


def test_what_settles_is_finished_and_nothing_before_it_is_undone() -> None:
    stage = Stage()
    threading.Timer(0.2, stage.cancel.set).start()
    outcome = stage.play(
        Phase("Start", (run("a", "start"),), undo=(run("a", "un-start"),)),
        Phase(
            "Forget",
            (run("a", "forever"), run("b", "remove")),
            undo=(run("a", "remove"), run("b", "remove")),
            settles=True,
        ),
        Phase("More", (run("a", "never"),)),
    )
    assert outcome == Outcome("interrupted", phase="Forget", settled=True)
    assert stage.diary.count("a remove") == 1
    assert not {"a un-start", "a never"} & set(stage.diary)
    assert [event.kind for event in stage.events if "undo" in event.kind] == []
    assert stage.told("note") == ["note  interrupted; too late to go back, finishing"]


def test_a_press_before_what_settles_still_undoes_everything() -> None:
    stage = Stage()

    def started() -> Result:
        stage.cancel.set()
        return Result(0, "", "")

    stage.answers = {"start": started}
    outcome = stage.play(
        Phase("Start", (run("a", "start"),), undo=(run("a", "un"),)), Phase("Forget", (run("a", "rm"),), settles=True)
    )
    assert (outcome.kind, outcome.settled, stage.diary) == ("interrupted", False, ["a start", "a un"])


def test_what_must_be_whole_is_let_finish_before_it_is_undone() -> None:
    stage = Stage()

    def begun() -> Result:
        stage.cancel.set()
        time.sleep(0.5)
        stage.diary.append("a made")
        return Result(0, "", "")

    stage.answers = {"make": begun}
    make = Run("a", ("make",), "make", whole=True)
    outcome = stage.play(Phase("Make", (make, run("a", "more")), undo=(run("a", "unmake"),)))
    assert outcome.kind == "interrupted"
    assert stage.diary == ["a make", "a made", "a unmake"]


def test_cancel_before_the_first_phase_touches_nothing() -> None:
    stage = Stage()
    stage.cancel.set()
    assert stage.play(Phase("One", (run("a", "one"),), undo=(run("a", "un"),))).kind == "interrupted"
    assert stage.diary == []


def test_cancel_ends_a_wait() -> None:
    stage = Stage(judges={"never": lambda code, out: Verdict(False, "cold")})
    threading.Timer(0.2, stage.cancel.set).start()
    assert (
        stage.play(Phase("Wait", (Await("a", ("ask",), "never", "warm", 600.0, every_s=300.0),))).kind == "interrupted"
    )


def test_a_wait_tells_each_change_once_and_ends() -> None:
    looks = iter(["1", "1", "2", "3"])
    stage = Stage(
        {"ask": lambda: Result(0, next(looks), "")},
        judges={"three": lambda code, out: Verdict(out == "3", f"at {out}")},
    )
    assert stage.play(Phase("Wait", (Await("a", ("ask",), "three", "three", 20.0, every_s=0.01),))).ok
    assert stage.told("action-progress") == [f"action-progress a at {n}" for n in (1, 2, 3)]


def test_a_long_action_is_told_of_before_it_looks_like_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "FIRST_WORD_S", 0.2)
    monkeypatch.setattr(crew, "WORD_EVERY_S", 0.6)

    def slow() -> Result:
        time.sleep(1.1)
        return Result(0, "", "")

    stage = Stage({"slow": slow, "break": Result(1, "", "boom")})
    stage.play(Phase("One", (run("a", "slow"), run("a", "break")), undo=(run("b", "slow"), run("b", "quick"))))
    told = [event for event in stage.events if "so far" in event.says]
    assert {(event.kind, event.says.partition(" (")[0]) for event in told} == {("action-progress", "do slow")}
    assert [event.node for event in told] == sorted(event.node for event in told)
    assert all(2 <= len([event for event in told if event.node == node]) <= 3 for node in "ab")


def test_a_wait_that_only_counts_seconds_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "WORD_EVERY_S", 0.5)
    looks = iter(range(1000))
    stage = Stage(judges={"j": lambda code, out: Verdict((n := next(looks)) == 20, f"loading for {n} s, half done")})
    assert stage.play(Phase("Wait", (Await("a", ("ask",), "j", "gates", 20.0, every_s=0.04),))).ok
    told = [event.says for event in stage.events if event.kind == "action-progress"]
    assert told[0] == "loading for 0 s, half done"
    assert len(told) == 2
    assert told[1].startswith("loading for 1")
    assert told[1].endswith(" s, half done (0 s so far)") or told[1].endswith(" s, half done (1 s so far)")


def test_a_wait_in_vain_says_what_it_saw_last() -> None:
    stage = Stage({"ask": Result(1, "gate 3", "")}, judges={"j": lambda code, out: Verdict(False, f"{out} closed")})
    outcome = stage.play(Phase("Wait", (Await("a", ("ask",), "j", "gates", 0.05, every_s=0.01),)))
    assert outcome.says == "gates: not so after 0.05 s; last seen: gate 3 closed"


def test_a_wait_ends_at_once_when_its_judge_gives_up() -> None:
    stage = Stage(judges={"j": lambda code, out: Verdict(False, "broken for good", failed=True)})
    assert stage.play(Phase("Wait", (Await("a", ("ask",), "j", "gates", 600.0),))).says == "gates: broken for good"


def test_a_wait_asks_again_after_a_lost_connection() -> None:
    played: list[NodeError | Result] = [ConnectionLost("a", "the connection was lost"), Result(0, "up", "")]
    looks = iter(played)

    def ask() -> Result:
        answer = next(looks)
        if isinstance(answer, NodeError):
            raise answer
        return answer

    stage = Stage({"ask": ask}, judges={"j": lambda code, out: Verdict(True, out)})
    assert stage.play(Phase("Wait", (Await("a", ("ask",), "j", "node", 20.0, every_s=0.01),))).ok
    assert stage.told("action-progress") == ["action-progress a the connection was lost", "action-progress a up"]


def test_the_remedy_of_a_node_error_is_passed_on() -> None:
    stage = Stage({"x": NodeError("a", "disk full", "make room")})
    outcome = stage.play(Phase("One", (run("a", "x"),)))
    assert (outcome.says, outcome.remedy) == ("do x: disk full", "make room")
    unnamed = stage.play(Phase("One", (Run("a", ("x",), "", deadline_s=5.0),)))
    assert unnamed.says == "disk full"


def test_a_defect_in_an_action_is_a_failure_with_an_undo() -> None:
    stage = Stage()
    model = SendModel("a", "m", "/s", "/t", "model m")
    outcome = stage.play(Phase("One", (model,), undo=(run("a", "un"),)))
    assert outcome.says == "model m: RuntimeError: a defect"
    assert stage.diary == ["a un"]


def test_a_phase_without_actions_is_skipped() -> None:
    stage = Stage()
    assert stage.play(Phase("Nothing", ())).ok
    assert [event.kind for event in stage.events] == ["phase-skipped"]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (run("c", "x"), "node c should be one of a, b"),
        (Await("a", ("x",), "nobody", "w", 1.0), "judge nobody should be one of "),
    ],
)
def test_what_cannot_be_carried_out_is_refused_before_anything_is_touched(action: Run | Await, why: str) -> None:
    stage = Stage()
    with pytest.raises(ValueError, match=why):
        stage.play(Phase("One", (run("a", "one"),)), Phase("Two", (), undo=(action,)))
    assert stage.diary == []


def test_a_sink_that_breaks_does_not_stop_the_clean_up() -> None:
    stage = Stage({"break": Result(1, "", "why")})

    def sink(event: Event) -> None:
        raise BrokenPipeError

    seats = {"a": FakeSeat("a", stage.diary, stage.answers)}
    phase = Phase("One", (run("a", "break"),), undo=(run("a", "un"),))
    assert execute([phase], Hands(seats, FakeBits(), {}, sink), stage.cancel).kind == "failed"
    assert stage.diary == ["a break", "a un"]
