"""``sparkctl diagnose`` as a person meets it, and the line that a failed ``up`` and ``status`` borrow from it."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli import status as status_page
from orchestrator.doctor.diagnose import explain
from orchestrator.plan.fold import DeploymentState
from orchestrator.plan.rankfile import RankState, RankStatus
from orchestrator.verbs.diagnose import Sources, diagnose, first_cause
from orchestrator.verbs.errors import UsageError
from orchestrator.verbs.running import Running
from orchestrator.verbs.status import _explained
from tests.unit.builders import SHIPPED
from tests.unit.logbook import log

ROOT = Path(__file__).parents[2]
FULL = "ERROR 11-30 09:50:00 [x.py:1] OSError: [Errno 28] No space left on device\n"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which failed starts leave what their ranks said."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sparkctl-failures"


def keep(folder: Path, **logs: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in logs.items():
        (folder / f"{name.replace('_', '-')}.log").write_text(text, encoding="utf-8")
    return folder


def run(*words: str, said: str | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.cli", "diagnose", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, input=said or "", env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_file_is_diagnosed_with_its_line_and_its_remedy() -> None:
    done = run("tests/cases/raylet-killed.log")
    assert done.returncode == 1
    assert "cause RAYLET_DIED: " in done.stdout
    assert "at tests/cases/raylet-killed.log line 1\n     (raylet) Raylet is terminated." in done.stdout
    assert "  -> ask that node: " in done.stdout
    assert "known from a run of sparkctl" in done.stdout
    assert "WORKER_DIED: the worker process of rank 1 is gone; " in done.stdout


def test_what_is_piped_is_read_and_a_healthy_log_ends_with_0() -> None:
    for words in ((), ("-",)):
        done = run(*words, said=log("healthy-start") + log("healthy-serving"))
        assert (done.returncode, done.stdout) == (0, "nothing bad found\n")
    assert run("--json", said=FULL).returncode == 1


def test_nothing_to_read_is_not_health() -> None:
    for words in (("-",), ("--json",)):
        done = run(*words, said=" \n\n")
        assert (done.returncode, done.stdout) == (2, "")
        assert "standard input: should hold lines of a log, found none" in done.stderr


def test_json_holds_the_whole_diagnosis() -> None:
    done = run("--json", "tests/cases/raylet-killed.log")
    value = json.loads(done.stdout)
    assert (value["bad"], value["cause"]["code"], value["others"][0]["code"]) == (True, "RAYLET_DIED", "WORKER_DIED")
    assert value["cause"]["witnesses"][0]["line"] == 1
    assert json.loads(run("--json", said="INFO fine\n").stdout)["cause"] is None


def test_an_unknown_error_is_shown_and_not_named() -> None:
    done = run(said="INFO fine\nFooError: odd\n")
    assert done.returncode == 1
    assert "cause not known" in done.stdout
    assert "standard input line 2\n     FooError: odd" in done.stdout


def test_an_earlier_error_that_nobody_knows_is_shown_with_what_it_led_to() -> None:
    done = run(said="FooError: odd\nConnectionRefusedError: [Errno 111] Connection refused\n")
    assert "cause not known" in done.stdout
    assert "standard input line 1\n     FooError: odd\n  seen as well, after it or because of it:\n" in done.stdout
    assert "    CONNECTION_REFUSED: nobody listens" in done.stdout
    done = run(said="FooError: odd\n" + FULL)
    assert "cause DISK_FULL" in done.stdout
    assert (
        "  before it came a line that no entry knows\n  at standard input line 1\n     FooError: odd\n" in done.stdout
    )
    done = run(said="TimeoutError: RPC call to sample_tokens timed out.\nFooError: odd\n")
    assert "  it names no reason; that may be a line that no entry knows\n  at standard input line 2\n" in done.stdout


def test_a_silence_may_be_told() -> None:
    line = "INFO [x.py:1] CustomAllreduce is disabled because this process group spans across nodes.\n"
    assert run(said=line).returncode == 0
    assert "STALLED_AT" in run("--silent-for", "400", said=line).stdout


def test_what_cannot_be_read_is_a_usage_error(kept: Path) -> None:
    done = run("nowhere.log")
    assert done.returncode == 2
    assert "nowhere.log: should be a file that can be read, found No such file or directory" in done.stderr
    done = run("--last")
    assert done.returncode == 2
    assert "--last: should find the output of a failed `up` in" in done.stderr
    with pytest.raises(UsageError, match="FILE, - or --last"):
        diagnose(SHIPPED, Sources())


def test_last_reads_what_the_newest_failure_left_and_knows_the_ranks(kept: Path) -> None:
    old = keep(kept / "a-g1", node_a_0=FULL)
    memory = "ValueError: x\ntorch.OutOfMemoryError: CUDA out of memory.\n"
    new = keep(kept / "b-g3", spark_1_0="INFO fine\n", spark_2_1=memory)
    for folder, at in ((old, time.time() - 100), (new, time.time())):
        for file in folder.iterdir():
            os.utime(file, (at, at))
    found = diagnose(SHIPPED, Sources(last=True))
    assert found.cause
    where = found.cause.witnesses[0]
    assert (found.cause.code, where.node, where.rank, where.line) == ("CUDA_OUT_OF_MEMORY", "spark-2", "1", 2)
    assert diagnose(SHIPPED, Sources((str(old),))).cause  # a folder is named as well


def test_a_failed_up_says_the_cause_in_one_line_or_nothing(kept: Path) -> None:
    folder = keep(kept / "a-g1", spark_1_0="INFO fine\n", spark_2_1=FULL)
    (line,) = first_cause(SHIPPED, folder)
    assert line.startswith(
        "cause: a disk, a quota, or /dev/shm of the container, is full [DISK_FULL, rank 1 on spark-2]"
    )
    assert line.endswith("; sparkctl diagnose --last")
    assert first_cause(SHIPPED, keep(kept / "b-g1", node_a_0="FooError: odd\n")) == ()
    assert first_cause(SHIPPED, kept / "nowhere") == ()


def test_status_explains_the_first_fatal_line_of_a_rank_that_does_not_run() -> None:
    incident = explain("OSError: [Errno 28] No space left on device", SHIPPED.signatures(), node="b", rank="1")
    assert incident
    lines = status_page._meaning(incident)
    assert lines[0] == "    DISK_FULL: a disk, a quota, or /dev/shm of the container, is full"
    assert lines[1].startswith("    -> `df -h`")
    assert status_page._meaning(None) == []


@pytest.mark.parametrize(("state", "codes"), [("broken", {1: "DISK_FULL"}), ("running", {})])
def test_a_running_rank_needs_no_explanation(state: RankState, codes: dict[int, str]) -> None:
    rank = RankStatus(
        "x", 1, "", 1, "b", "", state, 1, "", False, (), {}, {}, (), "OSError: [Errno 28] No space left on device", 0.0
    )
    now = Running(None, (), {1: rank, 2: replace(rank, rank=2, last_fatal="odd")}, (), 1, DeploymentState())
    assert {number: each.code for number, each in _explained(now, SHIPPED).items()} == codes


def test_lines_of_any_length_and_bytes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"\xff\xfe\x00\n" + b"x" * 12_000_000 + b"\n10%\r20%\r" + FULL.encode() + b"no end")
    found = diagnose(SHIPPED, Sources((str(path),)))
    assert found.cause
    assert (found.cause.code, found.cause.witnesses[0].line) == ("DISK_FULL", 3)
    assert found.cause.witnesses[0].text == FULL.strip()


def test_a_packed_log_is_no_good_news(tmp_path: Path) -> None:
    for name, tool in (("rank 0.log.gz", "zcat"), ("bundle.tar.gz", "tar -xzOf")):
        packed = tmp_path / name
        packed.write_bytes(gzip.compress(FULL.encode()))
        done = run(str(packed))
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{packed}: should be text, found a packed file" in done.stderr
        assert f"-> {tool} {shlex.quote(str(packed))}" in done.stderr
