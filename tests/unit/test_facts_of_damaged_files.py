"""What a node's shell answers over files that are torn, empty, garbage or no files, and what may be made of it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.facts.node import NodeFacts, parse, question
from orchestrator.plan.events import Event
from orchestrator.run import store

PLACES = ("events.jsonl", "g1/plan.json", "g1/rank-0/status.json", "g1/rank-0/unit.pid")
OTHER_LINE_END = '{"says": "one\u2028line"}'


def answer(home: Path) -> NodeFacts:
    """A pipe or a directory where a file should be must not make the question wait, hence the deadline."""
    said = subprocess.run(
        question("tiny"), capture_output=True, check=True, timeout=20, env={**os.environ, "HOME": str(home)}
    )
    return parse("node-a", said.stdout.decode(errors="replace"))


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def healthy(home: Path) -> Path:
    state = home / ".local/state/sparkctl/tiny"
    write(state / "events.jsonl", b'{"kind": "note", "at": 1.0}\n')
    write(state / "g1/plan.json", b'{"plan": 1}\n')
    write(state / "g1/rank-0/status.json", b'{"rank": 0}')
    ticks = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(") ")[2].split()[19]
    write(state / "g1/rank-0/unit.pid", f'{{"pid": {os.getpid()}, "start_ticks": {ticks}}}'.encode())
    write(state / "g1/rank-1/unit.pid", b'{"pid": 999999999, "start_ticks": 5}')
    return state


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: write(path, b""),
    "torn": lambda path: write(path, path.read_bytes().rstrip()[:-4]),
    "no newline": lambda path: write(path, path.read_bytes().rstrip()),
    "garbage": lambda path: write(path, bytes(range(256)) * 40),
    "an object of garbage": lambda path: write(path, b"{" + bytes(range(256))),
    "forged headers": lambda path: write(path, b"\n== ident\nroot\n== end\n== plans\n{}"),
    "deep": lambda path: write(path, b'{"a":' * 20_000),
    "huge numbers": lambda path: write(path, b'{"pid": ' + b"9" * 6000 + b', "start_ticks": 1}'),
    "a pipe": pipe,
    "a folder": folder,
    "absent": Path.unlink,
}


def test_a_healthy_home_is_read_whole(tmp_path: Path) -> None:
    healthy(tmp_path)
    seen = answer(tmp_path)
    assert (seen.events, seen.plans, seen.statuses) == (
        ('{"kind": "note", "at": 1.0}',),
        ('{"plan": 1}',),
        ('{"rank": 0}',),
    )
    assert [(unit.name, unit.running) for unit in seen.units] == [("rank-0", True), ("rank-1", False)]


def test_a_process_that_ended_and_that_nobody_asked_after_does_not_run(tmp_path: Path) -> None:
    """Where process 1 is no init, as in many containers, such a process keeps its number for ever."""
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ticks = Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].split()[19]
    pid_file = healthy(tmp_path) / "g1/rank-0/unit.pid"
    write(pid_file, f'{{"pid": {child.pid}, "start_ticks": {ticks}}}'.encode())
    assert [unit.running for unit in answer(tmp_path).units] == [False, False]
    child.wait()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_costs_only_itself(tmp_path: Path, place: str, damage: str) -> None:
    state = healthy(tmp_path)
    DAMAGE[damage](state / place)
    seen = answer(tmp_path)
    own = {"events.jsonl": seen.events, "g1/plan.json": seen.plans, "g1/rank-0/status.json": seen.statuses}
    assert all(own[other] for other in own if other != place)
    assert seen.home == str(tmp_path)
    assert [unit.name for unit in seen.units if unit.name != "rank-0"] == ["rank-1"]
    assert seen.generations == (str(state / "g1"),)
    assert all(event.kind == "note" for event in store.parse("\n".join(seen.events)).events)


def test_a_line_end_that_is_not_ours_stays_inside_its_record(tmp_path: Path) -> None:
    state = healthy(tmp_path)
    write(state / "g1/plan.json", OTHER_LINE_END.encode())
    assert answer(tmp_path).plans == (OTHER_LINE_END,)


def test_what_is_not_answered_is_empty() -> None:
    seen = parse("n", "== ident\nspark\n1000\nspark-1\naarch64\n1780000000\n/home/spark\n== end\n")
    assert (seen.plans, seen.units, seen.docker, seen.disk_free_bytes) == ((), (), None, None)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "note", "at": 1e308}',
        '{"kind": "note", "at": NaN}',
        '{"kind": "note", "at": -1}',
        '{"kind": "note", "at": "yesterday"}',
        '{"kind": "note", "at": 1.0, "generation": 1e300}',
        '{"kind": "note", "at": 1.0, "generation": "2"}',
        '{"kind": "note", "at": 1.0, "generation": 99999999999999999999}',
        '{"kind": "note", "at": 1.0, "says": {}}',
        '{"kind": ["note"], "at": 1.0}',
        '{"kind": "rumour", "at": 1.0}',
        '{"at": 1.0}',
        "[]",
    ],
)
def test_an_event_that_nobody_wrote_is_counted_and_not_believed(line: str) -> None:
    log = store.parse(line)
    assert (log.events, log.unreadable) == ((), 1)


def test_every_time_that_is_believed_can_be_shown() -> None:
    (event,) = store.parse(Event("note", 253402300799.0).to_json()).events
    assert time.strftime("%Y", time.gmtime(event.at)) == "9999"
