"""Many nodes at once: answers in order, the first exception ends the others, and Ctrl-C is safe wherever it falls."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from orchestrator.run.at_once import at_once
from orchestrator.run.local import LocalTransport
from orchestrator.run.transport import Cancelled

NODES = ("a", "b", "c", "d")


@pytest.fixture
def seats() -> dict[str, LocalTransport]:
    return {name: LocalTransport(name) for name in NODES}


def follower(seats: dict[str, LocalTransport], first: Callable[[], None], ended: list[str]) -> Callable[[str], None]:
    """A job that does ``first`` on node a before anything else, and follows a command that never ends on the others."""

    def job(name: str) -> None:
        try:
            if name == "a":
                first()
            else:
                seats[name].follow(("sleep", "100"), lambda _: None, lambda: False)
        except Cancelled:
            ended.append(name)

    return job


def test_answers_come_in_the_order_of_the_names() -> None:
    gate = threading.Event()

    def job(name: str) -> str:
        if name == "a":
            assert gate.wait(20)
        else:
            gate.set()
        return name.upper()

    assert list(at_once(job, NODES).items()) == [(name, name.upper()) for name in NODES]


def test_ctrl_c_while_threads_are_still_begun_ends_every_one(seats: dict[str, LocalTransport]) -> None:
    ended: list[str] = []
    press = follower(seats, lambda: os.kill(os.getpid(), signal.SIGINT), ended)
    with pytest.raises(KeyboardInterrupt):
        at_once(press, NODES, seats)
    assert sorted(ended) == ["b", "c", "d"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_exception_ends_the_others_and_is_raised(seats: dict[str, LocalTransport]) -> None:
    def fail() -> None:
        raise BrokenPipeError

    ended: list[str] = []
    with pytest.raises(BrokenPipeError):
        at_once(follower(seats, fail, ended), NODES, seats)
    assert sorted(ended) == ["b", "c", "d"]


def test_a_second_ctrl_c_leaves_behind_what_does_not_end() -> None:
    hang, begun = threading.Event(), threading.Event()

    def job(name: str) -> None:
        begun.set()
        assert hang.wait(20)

    def press() -> None:
        assert begun.wait(20)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=press).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            at_once(job, ["a"])
    finally:
        hang.set()
