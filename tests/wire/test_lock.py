"""The deploy lock on a real node: contention, take-over, heartbeat, loss, and release on every way out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.run.lock import DEAD_AFTER_S, Held, Holder, Locked, _myself, held
from orchestrator.run.ssh import SshTransport
from orchestrator.run.transport import NodeError, Transport
from tests.wire.server import Sshd, keygen, wait_for


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "sparkctl" / "flash")


def lock_of(state: str) -> Path:
    return Path(f"{state}.lock")


def left_by(holder: Holder, state: str, age_s: float) -> None:
    """A lock as ``holder`` left it, its last heartbeat ``age_s`` ago."""
    lock = lock_of(state)
    lock.mkdir(parents=True)
    (lock / "holder.json").write_text(json.dumps(asdict(holder)))
    (lock / "beat").write_text(f"{int(time.time() - age_s)}\n")


def somebody(**changes: object) -> Holder:
    """A process on another machine."""
    there = replace(_myself("up"), user="eva", host="laptop", machine="other", pid=4711, nonce="e7a" * 8)
    return replace(there, **changes)  # type: ignore[arg-type]


def test_the_lock_is_there_while_held_and_gone_after(transport: Transport, state: str) -> None:
    with held(transport, state, "up flash"):
        said = json.loads((lock_of(state) / "holder.json").read_text())
        assert (said["why"], said["pid"]) == ("up flash", os.getpid())
        assert lock_of(state).stat().st_mode & 0o777 == 0o700
        assert (lock_of(state) / "holder.json").stat().st_mode & 0o777 == 0o600
    assert list(lock_of(state).parent.iterdir()) == []


def test_a_second_taker_is_told_who_since_when_why_and_how_to_go_on(transport: Transport, state: str) -> None:
    with held(transport, state, "nightly"):
        with pytest.raises(Locked) as caught, held(transport, state, "up"):
            pytest.fail("two hold one lock")
        assert lock_of(state).is_dir()  # the refused taker removes nothing
    problem = caught.value
    assert problem.holder is not None
    assert problem.holder.why == "nightly"
    for expected in (
        "spark-1: locked by ",
        f"(process {os.getpid()}) since 20",
        "for: nightly",
        "; last heartbeat ",
    ):
        assert expected in str(problem)
    assert "run the command again" in problem.remedy
    assert "rm -r" not in problem.remedy  # it is alive
    assert f"By hand, on spark-1: rm -r {lock_of(state)}" in Locked("spark-1", str(lock_of(state)), None, 46).remedy


def test_an_exception_releases(transport: Transport, state: str) -> None:
    with pytest.raises(ZeroDivisionError), held(transport, state, "up"):
        raise ZeroDivisionError
    assert not lock_of(state).exists()


@pytest.mark.parametrize(
    ("holder", "age_s", "why"),
    [
        (somebody(), DEAD_AFTER_S + 5, "its last heartbeat was "),
        (replace(_myself("up"), pid=2**22 - 1), 1.0, "its process 4194303 on this machine is gone"),
    ],
    ids=["silent", "dead process"],
)
def test_a_dead_holder_is_taken_over_with_a_note(
    transport: Transport, state: str, holder: Holder, age_s: float, why: str
) -> None:
    left_by(holder, state, age_s)
    with held(transport, state, "up") as mine:
        assert mine.note.startswith(f"took over the deploy lock of {holder}: {why}")
    assert list(lock_of(state).parent.iterdir()) == []


@pytest.mark.parametrize(
    "holder",
    [somebody(), somebody(host=_myself("").host), replace(_myself("up"), nonce="a1" * 12)],
    ids=["another machine", "another machine of the same name", "a live process here"],
)
def test_a_live_holder_is_never_taken_over(transport: Transport, state: str, holder: Holder) -> None:
    left_by(holder, state, DEAD_AFTER_S - 15)
    with pytest.raises(Locked) as caught, held(transport, state, "up"):
        pytest.fail("took a live holder's lock")
    assert caught.value.holder == holder


def test_a_lock_that_never_said_whose_it_is_frees_itself(transport: Transport, state: str) -> None:
    """A holder that died between mkdir and its first words: its clock starts when somebody looks."""
    lock_of(state).mkdir(parents=True)
    with pytest.raises(Locked, match="somebody who has not said who they are"), held(transport, state, "up"):
        pytest.fail("took a lock that may be seconds old")
    (lock_of(state) / "beat").write_text("1000\n")
    with held(transport, state, "up") as mine:
        assert "an unknown holder" in mine.note


def test_of_many_takers_of_a_dead_lock_one_wins(transport: Transport, state: str) -> None:
    left_by(somebody(), state, DEAD_AFTER_S + 100)
    won, refused, together = list[Held](), list[Locked](), threading.Barrier(6, timeout=20)
    everybody_tried = threading.Barrier(6, timeout=20)

    def take() -> None:
        together.wait()
        try:
            with held(transport, state, "up") as mine:
                won.append(mine)
                everybody_tried.wait()
        except Locked as problem:
            refused.append(problem)
            everybody_tried.wait()

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 5)
    assert list(lock_of(state).parent.iterdir()) == []


def test_the_heartbeat_goes_on(transport: Transport, state: str) -> None:
    beat = lock_of(state) / "beat"
    with held(transport, state, "up", beat_every_s=0.1):
        beat.write_text("1000\n")
        wait_for(lambda: abs(float(beat.read_text() or 0) - time.time()) < 5, "a heartbeat")


def test_a_cancel_meant_for_an_action_does_not_lose_the_lock(transport: Transport, state: str) -> None:
    beat = lock_of(state) / "beat"
    with held(transport, state, "up", beat_every_s=0.05) as mine:
        for _ in range(10):
            transport.cancel()
            time.sleep(0.05)
        beat.write_text("1000\n")
        wait_for(lambda: abs(float(beat.read_text() or 0) - time.time()) < 5, "a heartbeat")
        assert not mine.lost.is_set()
    assert not lock_of(state).exists()


def test_the_holder_learns_that_it_was_taken_over_and_leaves_the_taker_alone(transport: Transport, state: str) -> None:
    told = threading.Event()
    with held(transport, state, "up", on_lost=told.set, beat_every_s=0.1) as mine:
        (lock_of(state) / "holder.json").write_text(json.dumps(asdict(somebody())))
        assert told.wait(10)
        assert mine.lost.is_set()
        assert mine.why_lost.startswith("taken over by eva@laptop")
    assert (lock_of(state) / "holder.json").exists()


def test_a_lock_removed_by_hand_is_lost(transport: Transport, state: str) -> None:
    with held(transport, state, "up", beat_every_s=0.1) as mine:
        lock_of(state).rename(lock_of(state).with_name("elsewhere"))
        assert mine.lost.wait(10)
    assert mine.why_lost == "somebody removed the lock"


def test_a_place_where_no_lock_can_be_says_so(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = held(transport, str(tmp_path / "file" / "flash"), "up")
    with pytest.raises(NodeError, match=r"the deploy lock .*/file/flash.lock cannot be used"), nowhere:
        pytest.fail("held a lock that is nowhere")


def test_a_shell_that_greets_is_no_holder(sshd: Sshd, tmp_path: Path) -> None:
    key, greeting, keys = keygen(tmp_path / "key"), tmp_path / "greets.sh", sshd.folder / "authorized_keys"
    greeting.write_text('#!/bin/sh\necho Welcome; exec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    greeting.chmod(0o755)
    before = keys.read_text()
    keys.write_text(f'{before}command="{greeting}" {key.with_suffix(".pub").read_text()}')
    transport = SshTransport("spark-1", sshd.ssh(identity=key), sshd.known_hosts(), Path("/dev/null"))
    try:
        greeted = held(transport, str(tmp_path / "flash"), "up")
        with contextlib.closing(transport), pytest.raises(NodeError, match=r"found 'Welcome.nheld'"), greeted:
            pytest.fail("held a lock that nobody granted")
    finally:
        keys.write_text(before)
    assert not (tmp_path / "flash.lock").exists()


HOLD = """
import sys, time
from pathlib import Path
from orchestrator.run.lock import held
from orchestrator.run.local import LocalTransport
from orchestrator.run.ssh import SshTransport, Ssh
state, port, key, known = sys.argv[1:]
seat = LocalTransport("n") if port == "0" else SshTransport(
    "n", Ssh(host="127.0.0.1", port=int(port), identity=key), Path(known), Path("/dev/null"))
with held(seat, state, "up"):
    print("held", flush=True)
    seat.run(("sleep", "60"), deadline_s=90)
"""


@pytest.mark.parametrize("over", ["local", "ssh"])
def test_ctrl_c_in_mid_command_releases(sshd: Sshd, state: str, over: str) -> None:
    words = [state, str(sshd.port if over == "ssh" else 0), str(sshd.key), str(sshd.known_hosts())]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == b"held\n"
        assert lock_of(state).is_dir()
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
    assert not lock_of(state).exists()


@pytest.mark.parametrize("beat", ["", "08", "1 2", "no time", "99999999999", "9" * 30])
def test_a_beat_that_is_no_time_or_lies_ahead_begins_anew(transport: Transport, state: str, beat: str) -> None:
    left_by(somebody(), state, 0)
    (lock_of(state) / "beat").write_text(beat)
    with pytest.raises(Locked) as caught, held(transport, state, "up"):
        pytest.fail("a holder that may live was taken over")
    assert "eva@laptop" in str(caught.value)
    assert "last heartbeat 0 s ago" in str(caught.value)
    assert abs(int((lock_of(state) / "beat").read_text()) - time.time()) < 5
