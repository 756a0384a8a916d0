"""A deployment whose record is gone or damaged is not nothing: it is shown, nothing is started over it, and it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.facts.node import Unit, parse, question
from orchestrator.plan import phases_unrecorded
from orchestrator.plan.actions import Put, Run
from orchestrator.run import agentzip
from orchestrator.verbs.errors import RefusedError
from orchestrator.verbs.running import running
from orchestrator.verbs.up import refuse_lost
from tests.unit.builders import facts, profile, resolved

ROOT = Path(__file__).parent.parent.parent
AGENT = phases_unrecorded.Agent(b"agent", "c" * 64)
MP = resolved(profile(), 2, "mp")

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path) -> Cli:
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "", "SPARKCTL_CLUSTER": ""}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "orchestrator.cli", *words)
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd=home, timeout=60)

    return run


@pytest.fixture
def started(home: Path) -> Iterator[Path]:
    """A rank and a gateway that run (they only sleep) as processes of the deployment ``lost``, without a record."""
    state = home / ".local/state/sparkctl/lost"
    agent = home / "agent.pyz"
    agent.write_bytes(agentzip.build().content)
    for unit in ("rank-0", "gateway"):
        words = ("--dir", str(state / "g3" / unit), "--name", "unit", "--", "sleep", "300")
        subprocess.run((sys.executable, str(agent), "spawn", *words), check=True, capture_output=True)
    yield state
    for unit in ("rank-0", "gateway"):
        halts = ("--dir", str(state / "g3" / unit), "--name", "unit", "--grace", "1")
        subprocess.run((sys.executable, str(agent), "halt", *halts), check=False, capture_output=True)


def pids(state: Path) -> list[int]:
    return [json.loads(path.read_text())["pid"] for path in sorted(state.glob("g*/*/unit.pid"))]


@pytest.mark.parametrize("record", [None, b"", b'{"deployment": "lost"', b"\0\1\2"])
def test_what_runs_without_a_record_is_shown_and_ends(cli: Cli, started: Path, record: bytes | None) -> None:
    if record is not None:
        (started / "g3/plan.json").write_bytes(record)
    for words in (("status",), ("status", "lost")):
        done = cli(*words)
        assert done.returncode == 1
        assert "lost: not ready, no record of it can be believed" in done.stdout
        assert "node-a: rank-0 of generation 3 runs" in done.stdout
        assert "-> sparkctl down lost" in done.stdout
    assert "-> sparkctl down lost" in cli("logs", "lost").stderr
    would = cli("plan", "tiny", "--name", "lost").stdout
    assert "should be a record of lost that can be believed" in would
    assert "-> sparkctl down lost" in would
    running_here = pids(started)
    done = cli("down")
    assert (done.returncode, done.stdout) == (
        0,
        "lost: ended what ran without a record that can be believed; its nodes are bare\n",
    ), done.stderr
    assert not started.exists()
    assert not any(Path(f"/proc/{pid}/cmdline").exists() and pid_sleeps(pid) for pid in running_here)
    assert cli("status").stdout == "nothing runs\n"


def pid_sleeps(pid: int) -> bool:
    return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_torn_pid_file_hides_no_process(cli: Cli, started: Path) -> None:
    (pid, *_) = pids(started)
    (started / "g3/gateway/unit.pid").write_text('{"pid"')
    assert cli("down", "lost").returncode == 0
    assert not started.exists()
    assert not (Path(f"/proc/{pid}/cmdline").exists() and pid_sleeps(pid))


def test_a_generation_directory_without_a_file_is_no_deployment(cli: Cli, home: Path) -> None:
    (home / ".local/state/sparkctl/lost/g1/rank-0").mkdir(parents=True)
    assert cli("status").stdout == "nothing runs\n"


def test_files_alone_are_shown_and_removed(cli: Cli, home: Path) -> None:
    folder = home / ".local/state/sparkctl/lost/g1"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_bytes(b"")
    assert "no units, found files in" in cli("status").stdout
    assert cli("down", "lost").returncode == 0
    assert not folder.parent.exists()


def test_nothing_is_started_over_what_has_no_record() -> None:
    unit = Unit("sparkctl-x-g3-rank-0", "x", 3, "0", "", running=True)
    seen = {name: replace(node, units=(unit,)) for name, node in facts(MP).items()}
    with pytest.raises(RefusedError, match="should have a record of what is there") as caught:
        refuse_lost(running(seen, "x", "switch"), "x")
    assert caught.value.remedy == "sparkctl down x"
    assert "spark-2: sparkctl-x-g3-rank-0 of generation 3 runs" in caught.value.lines
    refuse_lost(running(facts(MP), "x", "switch"), "x")


def test_every_path_comes_from_the_nodes_own_answer() -> None:
    unit = Unit("rank-0", "x", 3, "0", "", running=True)
    (node, *_) = facts(MP, home="/home/me", units=(unit,)).values()
    ends, files = phases_unrecorded.down("x", {node.node: node}, AGENT, "switch")
    state = "/home/me/.local/state/sparkctl/x"
    assert [action.path for action in ends.actions if isinstance(action, Put)] == [f"{state}/agent/{'c' * 64}.pyz"]
    (last,) = (action for action in files.actions if isinstance(action, Run))
    assert last.argv[4:] == (state, last.argv[5])
    assert last.argv[5].startswith("/tmp/sparkctl-1000-")


DOCKER = r"""#!/bin/sh
echo "$@" >> "$HOME/asked"
case $1 in
ps) cat "$HOME/there" 2>/dev/null || exit 1 ;;
rm) [ -e "$HOME/stuck" ] || : > "$HOME/there" ;;
esac
"""


def containers(home: Path, topology: str = "switch") -> int:
    """Carry out what is said to a docker that is a script, and answer with the exit code."""
    (home / "docker").write_text(DOCKER)
    (home / "docker").chmod(0o755)
    env: Mapping[str, str] = {**os.environ, "HOME": str(home), "PATH": f"{home}:{os.environ['PATH']}"}
    said = subprocess.run(question("x"), capture_output=True, text=True, check=True, env=env).stdout
    ends, _ = phases_unrecorded.down("x", {"n": parse("n", said)}, AGENT, topology)
    (action,) = (action for action in ends.actions if isinstance(action, Run))
    return subprocess.run(action.argv, capture_output=True, check=False, env=env).returncode


def test_containers_end_by_their_label(home: Path) -> None:
    (home / "there").write_text("abc\ndef\n")
    assert containers(home) == 0
    asked = (home / "asked").read_text().splitlines()
    assert "ps -aq --filter label=sparkctl.deployment=x" in asked
    assert "rm --force --volumes abc def" in asked


def test_containers_that_stay_are_a_failure(home: Path) -> None:
    (home / "there").write_text("abc\n")
    (home / "stuck").touch()
    assert containers(home) == 1


def test_a_docker_that_does_not_answer_may_hold_something_except_on_loopback(home: Path) -> None:
    assert containers(home) == 1
    assert containers(home, "loopback") == 0
