"""The executor over real seats, in a process of its own that gets real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.plan.actions import Await, Phase, Put, Run, Verdict
from orchestrator.plan.events import Event
from orchestrator.run.executor import Hands, execute
from orchestrator.run.local import LocalTransport
from orchestrator.run.transport import Transport
from tests.wire.server import Sshd, wait_for

NEVER = {"never": lambda code, out: Verdict(False, "not yet")}


class NoBits:
    """Nothing here sends images or models."""

    def send_image(self, *_: object) -> str:
        raise AssertionError("no phase here sends anything")

    def send_model(self, *_: object) -> str:
        raise AssertionError("no phase here sends anything")

    def cancel(self) -> None:
        pass


@pytest.fixture(params=["local", "ssh"])
def seats(request: pytest.FixtureRequest, sshd: Sshd) -> Iterator[dict[str, Transport]]:
    """Two nodes that are this machine."""
    over_ssh = request.param == "ssh"
    made: dict[str, Transport] = {n: sshd.transport(n) if over_ssh else LocalTransport(n) for n in ("a", "b")}
    with closing(made["a"]), closing(made["b"]):
        yield made


def tree(folder: Path) -> dict[str, str]:
    return {str(one.relative_to(folder)): one.read_text() if one.is_file() else "" for one in folder.rglob("*")}


def test_a_failure_leaves_files_as_before(seats: dict[str, Transport], tmp_path: Path) -> None:
    (tmp_path / "old").write_text("generation 1")
    before, events = tree(tmp_path), list[Event]()

    def sh(node: str, script: str) -> Run:
        return Run(node, ("sh", "-c", script, "sh", str(tmp_path)), says=script)

    phases = (
        Phase(
            "Write",
            (Put("a", f"{tmp_path}/new/a", b"1"), Put("b", f"{tmp_path}/new/b", b"2")),
            (sh("a", 'rm -r "$1/new"'),),
        ),
        Phase("Swap", (sh("a", 'mv "$1/old" "$1/new/kept"'),), (sh("a", 'mv "$1/new/kept" "$1/old"'),)),
        Phase("Start", (sh("a", "true"), sh("b", "echo no GPU >&2; exit 9")), (sh("b", 'rm -f "$1/started"'),)),
    )
    outcome = execute(phases, Hands(seats, NoBits(), {}, events.append), threading.Event())
    assert (outcome.kind, outcome.node, outcome.phase, outcome.undo_failures) == ("failed", "b", "Start", ())
    assert outcome.says.endswith("exit code 9: no GPU")
    assert [event.phase for event in events if event.kind == "undo-done"] == ["Start", "Swap", "Write"]
    assert tree(tmp_path) == before


def test_ctrl_c_ends_commands_and_waits_on_every_node(seats: dict[str, Transport], tmp_path: Path) -> None:
    cancel, started = threading.Event(), tmp_path / "started"
    actions = (
        Run("a", ("sh", "-c", 'touch "$1"; sleep 300', "sh", str(started)), "start", deadline_s=600.0),
        Await("b", ("true",), "never", "ready", 600.0, every_s=300.0),
    )

    def press() -> None:
        wait_for(started.exists, "the command to run")
        cancel.set()

    threading.Thread(target=press, daemon=True).start()
    undo = (Run("b", ("rm", str(started)), "remove"),)
    outcome = execute([Phase("Start", actions, undo)], Hands(seats, NoBits(), NEVER, lambda _: None), cancel)
    assert (outcome.kind, outcome.undo_failures) == ("interrupted", ())
    assert tree(tmp_path) == {}


PHASES = 3

PROGRAM = """
import sys, threading, time
from orchestrator.plan.actions import Phase, Run
from orchestrator.run.executor import Hands, execute
from orchestrator.run.local import LocalTransport
folder, undo_takes = sys.argv[1:]
def sh(node, script):
    return Run(node, ("sh", "-c", script, "sh", folder, undo_takes), script, deadline_s=30.0)
def phase(n):
    work = f'touch "$1/{n}-$$"; sleep 0.15'
    return Phase(f"Phase {n}", (sh("a", work), sh("b", work)), (sh("a", f'sleep "$2"; rm -f "$1/{n}"-*'),))
class NoBits:
    def cancel(self): pass
def sink(event):
    print(event.kind, event.phase, event.says, sep="|", flush=True)
seats = {n: LocalTransport(n) for n in "ab"}
outcome = execute([phase(n) for n in range(3)], Hands(seats, NoBits(), {}, sink), threading.Event())
print(outcome.kind, *outcome.undo_failures, sep="|", flush=True)
"""


class Program:
    """The executor in a process of its own; ``until`` reads what it tells."""

    def __init__(self, folder: Path, undo_takes_s: float) -> None:
        words = [sys.executable, "-c", PROGRAM, str(folder), str(undo_takes_s)]
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.told = list[str]()

    def until(self, beginning: str) -> None:
        assert self.child.stdout
        for line in self.child.stdout:
            self.told.append(line.rstrip("\n"))
            if line.startswith(beginning):
                return
        pytest.fail(f"ended without {beginning!r}; told: {self.told}")

    def press(self, what: signal.Signals = signal.SIGINT) -> None:
        self.child.send_signal(what)

    def rest(self) -> list[str]:
        out, _ = self.child.communicate(timeout=60)
        assert self.child.returncode == 0
        return [*self.told, *out.splitlines()]


BOUNDARIES = [f"{kind}|Phase {n}" for n in range(PHASES) for kind in ("phase-started", "phase-done")]


@pytest.mark.parametrize("moment", BOUNDARIES[:-1])  # after the last one everything is done and nothing to take back
def test_ctrl_c_at_every_boundary_leaves_files_as_before(tmp_path: Path, moment: str) -> None:
    program = Program(tmp_path, 0)
    program.until(moment)
    program.press()
    assert program.rest()[-1] == "interrupted"
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("what", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_and_a_polite_kill_clean_up_too(tmp_path: Path, what: signal.Signals) -> None:
    program = Program(tmp_path, 0)
    program.until("phase-started|Phase 1")
    program.press(what)
    assert program.rest()[-1] == "interrupted"
    assert tree(tmp_path) == {}


def test_a_second_ctrl_c_says_how_long_it_takes_and_ends_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path, 0.5)
    program.until("phase-done|Phase 0")
    program.press()
    program.until("undo-started")
    program.press()
    told = program.rest()
    assert told[-1] == "interrupted"
    notes = [line for line in told if line.startswith("note") and "cleaning up" in line]
    assert len(notes) == 1
    assert "steps left, at most" in notes[0]
    assert "press Ctrl-C once more to stop the clean-up" in notes[0]
    assert tree(tmp_path) == {}


def test_a_third_ctrl_c_ends_the_clean_up_and_says_what_is_left(tmp_path: Path) -> None:
    program = Program(tmp_path, 300)
    program.until("phase-done|Phase 0")
    program.press()
    program.until("undo-started")
    program.press()
    program.until("note||cleaning up")
    program.press()
    ended = program.rest()[-1]
    assert ended.startswith("interrupted|")
    assert "Phase 0: not undone: the clean-up was stopped by the operator" in ended
    assert any(name.startswith("0-") for name in tree(tmp_path))
