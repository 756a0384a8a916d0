"""The contract of a transport, the same over SSH and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.run.job import STOPPED
from orchestrator.run.local import LocalTransport
from orchestrator.run.transport import Cancelled, DeadlineExceeded, PutFailed, Transport
from tests.wire.server import wait_for

ECHO = "import sys; sys.stdout.buffer.write(b'\\0'.join(a.encode('utf-8', 'surrogateescape') for a in sys.argv[1:]))"

WORDS = [
    (),
    ("",),
    ("", ""),
    ("plain",),
    ("two words", " lead", "trail "),
    ("-n", "--", "-", "--help"),
    ("it's", '"double"', "`backtick`", "'", '"', "''\"'\"'"),
    ("$(touch /tmp/never)", "${HOME}", "$HOME", "$$", "$0", "!!", "!x"),
    ("a;b", "a&b", "a|b", "a>b", "<a", "(a)", "{a,b}", "#x", "~", "~root", "*", "?", "[a-z]"),
    ("line\nbreak", "\n", "trailing\n", "\r\n", "tab\there"),
    ("back\\slash", "\\", "\\\\", "\\n", "%s", "%%", "\x1b[31m", "\x01\x7f"),
    ("ünïcödé", "日本語", "🔥🚀", "\u202e", "e\u0301", "\ufeff"),
    ("=", "A=B", "A=$B c"),
    ("x" * 100_000,),
    tuple(str(n) for n in range(1500)),
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: repr(words)[:24])
def test_every_word_arrives_byte_identical(transport: Transport, words: tuple[str, ...]) -> None:
    answer = transport.run((sys.executable, "-S", "-c", ECHO, *words), deadline_s=20)
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout == "\0".join(words)


def test_bytes_that_are_not_text_survive_in_words(transport: Transport) -> None:
    word = b"\xff\xfe caf\xe9".decode("utf-8", "surrogateescape")
    show = "import sys; print(sys.argv[1].encode('utf-8', 'surrogateescape').hex())"
    assert transport.run((sys.executable, "-S", "-c", show, word), deadline_s=10).stdout == "fffe20636166e9\n"


@pytest.mark.parametrize(
    ("words", "why"), [((), "one word"), (("a\0b",), "NUL"), (("x" * 140_000,), "at most 131071 bytes")]
)
def test_what_no_command_can_carry_is_refused_in_words(transport: Transport, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        transport.run(words, deadline_s=5)


@pytest.mark.parametrize("code", [0, 1, 7, 127, 255])
def test_the_exit_code_is_the_commands_own(transport: Transport, code: int) -> None:
    answer = transport.run(("sh", "-c", f"echo out; echo err >&2; exit {code}"), deadline_s=10)
    assert (answer.code, answer.stdout, answer.stderr) == (code, "out\n", "err\n")


def test_a_command_that_does_not_exist_answers_127(transport: Transport) -> None:
    answer = transport.run(("no-such-command-here",), deadline_s=10)
    assert answer.code == 127
    assert "not found" in answer.stderr


def test_a_command_killed_by_a_signal_does_not_look_like_success(transport: Transport) -> None:
    assert transport.run(("sh", "-c", "kill -9 $$"), deadline_s=10).code in (137, 255)


def test_commands_start_in_the_home_directory(transport: Transport) -> None:
    assert transport.run(("pwd", "-P"), deadline_s=10).stdout.strip() == str(Path.home().resolve())


def test_stdin_arrives_whole_while_output_flows_back(transport: Transport) -> None:
    data = bytes(range(256)) * 8192  # 2 MiB both ways: more than any pipe or window holds
    answer = transport.run(("od", "-An", "-v", "-tx1"), deadline_s=30, stdin=data)
    assert bytes.fromhex("".join(answer.stdout.split())) == data


def test_without_stdin_a_reader_sees_the_end_at_once(transport: Transport) -> None:
    assert transport.run(("cat",), deadline_s=10).stdout == ""


def test_a_command_may_leave_its_stdin_unread(transport: Transport) -> None:
    assert transport.run(("true",), deadline_s=10, stdin=b"x" * 4_000_000).code == 0


def test_a_daemon_that_keeps_the_pipe_does_not_keep_the_caller(transport: Transport, tmp_path: Path) -> None:
    script = 'setsid sh -c "sleep 30 & echo \\$! > $1; wait" sh "$1" & echo started'
    answer = transport.run(("sh", "-c", script, "sh", str(tmp_path / "pid")), deadline_s=20)
    assert (answer.code, answer.stdout) == (0, "started\n")
    sleeper = int((tmp_path / "pid").read_text())
    assert runs(sleeper)  # a daemon outlives the command that started it
    transport.run(("kill", str(sleeper)), deadline_s=5)


def assert_ended(transport: Transport, pid: int) -> None:
    if isinstance(transport, LocalTransport) or os.getuid() != 0:  # sshd sends no signal for a login as root
        wait_for(lambda: not runs(pid), "the command to be gone from the node")
    else:
        transport.run(("kill", str(pid)), deadline_s=5)


def runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def endless(pid_file: Path) -> tuple[str, ...]:
    return ("sh", "-c", 'echo $$ > "$1.new"; mv "$1.new" "$1"; sleep 300; echo never', "sh", str(pid_file))


def test_a_deadline_ends_the_command_and_says_which(transport: Transport, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(DeadlineExceeded, match=r"spark-1: sh -c .* did not end within 0.7 s"):
        transport.run(endless(pid_file), deadline_s=0.7)
    assert_ended(transport, int(pid_file.read_text()))
    assert transport.run(("echo", "still here"), deadline_s=10).stdout == "still here\n"


def test_cancel_from_another_thread_ends_the_command(transport: Transport, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def press() -> None:
        wait_for(pid_file.exists, "the command to run")
        transport.cancel()

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(Cancelled, match="spark-1: sh -c"):
        transport.run(endless(pid_file), deadline_s=60)
    presser.join()
    assert_ended(transport, int(pid_file.read_text()))
    assert transport.run(("echo", "undo works"), deadline_s=10).stdout == "undo works\n"


def test_cancel_with_nothing_running_changes_nothing(transport: Transport) -> None:
    transport.cancel()
    assert transport.run(("echo", "fine"), deadline_s=10).stdout == "fine\n"


def test_follow_hands_over_lines_as_they_come(transport: Transport, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", list[str]()

    def line(one: str) -> None:
        seen.append(one)
        if one == "first":
            gate.touch()  # the command waits for this: a transport that keeps lines back would hang here

    script = 'echo first; while ! [ -e "$1" ]; do sleep 0.02; done; echo zweite ä >&2; printf last; exit 3'
    code = transport.follow(("sh", "-c", script, "sh", str(gate)), line, lambda: False)
    assert (code, seen[0]) == (3, "first")
    assert sorted(seen[1:]) == ["last", "zweite ä"]  # two streams: their order is not promised, whole lines are


def test_follow_stops_when_asked(transport: Transport, tmp_path: Path) -> None:
    pid_file, seen = tmp_path / "pid", list[str]()
    script = 'echo $$ > "$1"; echo up; exec sleep 300'
    code = transport.follow(("sh", "-c", script, "sh", str(pid_file)), seen.append, lambda: bool(seen))
    assert (code, seen) == (STOPPED, ["up"])
    assert_ended(transport, int(pid_file.read_text()))


def test_put_writes_the_bytes_the_mode_and_private_directories(transport: Transport, tmp_path: Path) -> None:
    target = tmp_path / "new" / "deeper" / "spaced 'name' ü.bin"
    data = bytes(range(256)) * 5000
    for content, mode in ((b"old", 0o644), (data, 0o600), (b"", 0o755)):
        transport.put(str(target), content, mode)
        assert target.read_bytes() == content
        assert target.stat().st_mode & 0o7777 == mode
    assert [(tmp_path / d).stat().st_mode & 0o777 for d in ("new", "new/deeper")] == [0o700, 0o700]
    assert [one.name for one in target.parent.iterdir()] == [target.name]


def test_put_knows_the_home_directory_and_no_other_relative_path(transport: Transport) -> None:
    folder = f".sparkctl-test-{threading.get_native_id()}"
    try:
        transport.put(f"~/{folder}/x", b"1", 0o600)
        assert (Path.home() / folder / "x").read_bytes() == b"1"
    finally:
        transport.run(("rm", "-rf", str(Path.home() / folder)), deadline_s=10)
    with pytest.raises(ValueError, match="absolute or begin with ~/"):
        transport.put("relative/x", b"1", 0o600)


def test_put_that_cannot_be_leaves_the_old_file_and_nothing_else(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PutFailed, match=r"cannot write .*/file/below"):
        transport.put(str(tmp_path / "file" / "below"), b"x", 0o600)
    (tmp_path / "dir" / "full").mkdir(parents=True)
    with pytest.raises(PutFailed, match=r"cannot write .*/dir"):
        transport.put(str(tmp_path / "dir"), b"x", 0o600)  # a file never replaces a directory
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")) == ["dir", "dir/full", "file"]


def test_a_full_disk_says_so_and_leaves_nothing(transport: Transport, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        path = small / "model.bin"
        path.write_bytes(b"old")
        with pytest.raises(PutFailed, match=f"disk full on spark-1: {path} needs 5000000 bytes") as caught:
            transport.put(str(path), b"x" * 5_000_000, 0o600)
        assert f"df -h {small}" in caught.value.remedy
        assert [(one.name, one.read_bytes()) for one in small.iterdir()] == [("model.bin", b"old")]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_calls_on_one_node_may_overlap(transport: Transport, tmp_path: Path) -> None:
    """Each of two commands waits for the other's file, so neither ends unless both run at once."""
    script = 'touch "$1"; while ! [ -e "$2" ]; do sleep 0.02; done; echo met'
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    answers = list[str]()

    def one(mine: str, other: str) -> None:
        answers.append(transport.run(("sh", "-c", script, "sh", mine, other), deadline_s=20).stdout)

    threads = [threading.Thread(target=one, args=pair) for pair in ((a, b), (b, a))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["met\n", "met\n"]
