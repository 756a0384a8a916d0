"""A rank's start sequence with real processes, and that nothing of it survives."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan.rankfile import Policy, Step
from tests.agent.rig import STUBBORN, pids_marked, sweep, until
from tests.agent.worlds import plan_of

DRIVER = Path(__file__).with_name("drive_supervisor.py")
DEADLINE_S = 20.0


class Driven:
    """A supervisor in its own process."""

    def __init__(self, directory: Path, *steps: Step, scratch: str = "") -> None:
        self.directory, self.mark = directory, f"SPARKCTL_STATE_DIR={directory}\0"
        path = directory / "rank.json"
        policy = Policy(stop_grace_s=0.3)
        plan = plan_of(0, peers=(), state_dir=str(directory), steps=steps, policy=policy, scratch=scratch)
        path.write_text(plan.to_json())
        self.process = subprocess.Popen(
            (sys.executable, str(DRIVER), str(path)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(DRIVER.parents[2])},
        )
        self.last: dict[str, Any] = {}

    def tell(self, words: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{words}\n".encode())
        self.process.stdin.flush()

    def look_again(self) -> None:
        self.last = {}
        self.tell("say")
        self.wait("up")

    def wait(self, phase: str, doing: str = "") -> dict[str, Any]:
        end = time.monotonic() + DEADLINE_S
        assert self.process.stdout
        while self.last.get("phase") != phase or doing not in self.last["doing"]:
            assert select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))[0], self.last
            line = self.process.stdout.readline()
            assert line, f"the driver ended; it last said {self.last}"
            self.last = json.loads(line)
        return self.last

    def close(self) -> None:
        self.process.communicate(timeout=DEADLINE_S)
        sweep(self.mark)


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[list[Driven]]:
    made: list[Driven] = []
    yield made
    for one in made:
        one.close()


def drive(driven: list[Driven], directory: Path, *steps: Step, scratch: str = "") -> Driven:
    driven.append(Driven(directory, *steps, scratch=scratch))
    driven[-1].wait("idle")
    driven[-1].tell("start 1")
    return driven[-1]


def test_steps_run_in_order_and_a_wait_says_what_it_last_saw(driven: list[Driven], tmp_path: Path) -> None:
    key, port_file = tmp_path / "key", tmp_path / "go"
    key.write_text("s3cret\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        rank = drive(
            driven,
            tmp_path,
            Step("node", "daemon", ("sleep", "1000"),
                 env={"COLOUR": "blue"}, secret_env={"KEY": str(key)}),
            Step("nodes", "until", ("sh", "-c", f"echo waiting for 10.0.0.2; test -e {port_file}"), every_s=0.1),
            Step("port", "tcp", host="127.0.0.1", port=server.getsockname()[1]),
        )  # fmt: skip
        rank.wait("steps", "nodes: waiting for 10.0.0.2")
        port_file.touch()
        up = rank.wait("up")
    assert list(up["processes"]) == ["node"]
    words = Path(f"/proc/{up['processes']['node']}/cmdline").read_bytes()
    assert b"s3cret" not in words
    environment = Path(f"/proc/{up['processes']['node']}/environ").read_bytes().split(b"\0")
    assert {b"KEY=s3cret", b"COLOUR=blue"} <= set(environment)


FAILURES = {
    "a daemon that ends": (
        Step("vllm", "daemon", ("sh", "-c", "echo 'RuntimeError: no room' >&2; echo bye; exit 3")),
        "step vllm ended with exit status 3: RuntimeError: no room",
    ),
    "a daemon that ends with words of its own": (
        Step("vllm", "daemon", ("sh", "-c", "echo the model is not there; exit 3")),
        "step vllm ended with exit status 3; its last line: the model is not there",
    ),
    "a daemon that ends without a reason": (
        Step("ray", "daemon", ("sh", "-c", "echo '2026-11-30 09:38:55,790 INFO s.py:1 -- saved to: x'; exit 1")),
        "step ray ended with exit status 1",
    ),
    "a daemon that is killed": (Step("vllm", "daemon", ("sh", "-c", "kill -9 $$")), "step vllm was killed by SIGKILL"),
    "a daemon that is not there": (
        Step("vllm", "daemon", ("no-such-program",)),
        "No such file or directory: 'no-such-",
    ),
    "a secret that is not there": (
        Step("vllm", "daemon", ("true",), secret_env={"KEY": "/no/such/key"}),
        "step vllm cannot be started: [Errno 2] No such file or directory: '/no/such/key'",
    ),
    "a wait that runs out": (
        Step("nodes", "until", ("sh", "-c", "echo seen 1 of 2; exit 1"), deadline_s=0.4, every_s=0.1),
        "step nodes not done within 0.4 s; last seen: seen 1 of 2",
    ),
    "a wait that hangs": (
        Step("nodes", "until", ("sh", "-c", "echo asking; sleep 1000"), deadline_s=0.4),
        "step nodes not done within 0.4 s; last seen: asking",
    ),
    "a port that stays shut": (
        Step("port", "tcp", host="127.0.0.1", port=1, deadline_s=0.4, every_s=0.1),
        "step port not done within 0.4 s; last seen: port 1 of 127.0.0.1: Connection refused",
    ),
}


@pytest.mark.parametrize(("step", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_step_that_fails_says_why(driven: list[Driven], tmp_path: Path, step: Step, reason: str) -> None:
    rank = drive(driven, tmp_path, step)
    found = rank.wait("failed")["reason"]
    assert reason in found
    assert "INFO" not in found
    rank.tell("kill")
    rank.wait("idle")
    assert not pids_marked(rank.mark)


def test_the_end_of_a_child_that_its_daemon_does_not_watch(driven: list[Driven], tmp_path: Path) -> None:
    (tmp_path / "raylet").symlink_to("/bin/sleep")
    news = "2026-11-30 09:38:55,790\\tINFO scripts.py:1274 -- Process exit logs will be saved to: x"
    careless = ("sh", "-c", f"{tmp_path}/raylet 1000 & printf '{news}\\n'; wait; exec sleep 1000")
    rank = drive(driven, tmp_path, Step("ray", "daemon", careless, children=("raylet",)))
    rank.wait("up")
    until(lambda: f"{tmp_path}/raylet 1000 " in pids_marked(rank.mark).values(), "the child runs")
    rank.look_again()
    raylet = next(pid for pid, words in pids_marked(rank.mark).items() if words.startswith(f"{tmp_path}/raylet"))
    os.kill(raylet, signal.SIGTERM)
    assert rank.wait("failed")["reason"] == f"step ray lost its raylet (pid {raylet})"


def test_every_attempt_gets_its_scratch_empty_and_to_itself(driven: list[Driven], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "old").touch()
    rank = drive(driven, tmp_path, Step("vllm", "daemon", ("sleep", "1000")), scratch=str(scratch))
    rank.wait("up")
    assert (scratch.stat().st_mode & 0o777, list(scratch.iterdir())) == (0o700, [])
    rank.tell("kill")
    rank.wait("idle")
    scratch.rmdir()
    scratch.symlink_to(tmp_path)
    rank.tell("start 2")
    assert rank.wait("failed")["reason"].startswith("cannot make its directories: ")
    assert (tmp_path / "rank.json").exists(), "what the link points at is not ours to empty"


DETACHED = "(setsid sh -c 'trap \"\" TERM; exec sleep 1000' &) ; (sh -c 'exec sleep 1000' &) ; exec sleep 1000"


def test_nothing_survives(driven: list[Driven], tmp_path: Path) -> None:
    steps = (Step("one", "daemon", ("sh", "-c", STUBBORN)), Step("two", "daemon", ("sh", "-c", DETACHED)))
    rank = drive(driven, tmp_path, *steps)
    rank.wait("up")
    end = time.monotonic() + DEADLINE_S
    while len(pids_marked(rank.mark)) < 5:
        assert time.monotonic() < end, pids_marked(rank.mark)
        time.sleep(0.05)
    rank.tell("kill")
    rank.wait("idle")
    assert not pids_marked(rank.mark)


def test_the_logs_of_the_last_five_attempts_are_kept(driven: list[Driven], tmp_path: Path) -> None:
    rank = drive(driven, tmp_path, Step("vllm", "daemon", ("sh", "-c", "echo one; echo two; exec sleep 1000")))
    for attempt in range(2, 8):
        rank.wait("up")
        log = tmp_path / f"logs/attempt-{attempt - 1}/vllm.log"
        until(lambda log=log: log.read_text() == "one\ntwo\n", "the daemon has written")  # type: ignore[misc]
        rank.tell("kill")
        rank.wait("idle")
        rank.tell(f"start {attempt}")
    rank.wait("up")
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [f"attempt-{n}" for n in range(3, 8)]
    assert (tmp_path / "logs/attempt-6/vllm.log").read_text() == "one\ntwo\n"
