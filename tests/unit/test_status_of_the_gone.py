"""``status`` and ``down`` of a deployment whose units are gone, or of which more is there than its record says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.plan.build import build
from orchestrator.spec.cluster import Cluster
from orchestrator.spec.parsing import parse
from tests.unit.builders import OPERATOR, facts, profile, resolved

ROOT = Path(__file__).parent.parent.parent
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "home/.local/state/sparkctl/mine"


@pytest.fixture
def cli(tmp_path: Path, state: Path) -> Cli:
    """A machine with the record of ``mine``, whose rank 0 said 1000 s ago that it serves, and which runs no more."""
    env = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": ""}
    env["PATH"] = f"{tmp_path / 'home'}:{env['PATH']}"
    (state / "g1/rank-0").mkdir(parents=True)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "orchestrator.cli", *words)
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd=tmp_path, timeout=60)

    words = ("tiny", "--nodes", "1", "--executor", "mp", "--name", "mine", "--offline", "--json")
    plan = run("plan", *words).stdout
    (state / "g1/plan.json").write_text(plan)
    status = {
        **{"deployment": "mine", "generation": 1, "plan_digest": json.loads(plan)["digest"], "rank": 0},
        **{"node": "node-a", "agent_id": "x", "state": "running", "attempt": 2, "doing": "serving", "ready": True},
        **{"gates": [{"name": "canary", "open": True, "saw": "an answer"}], "versions": {}, "processes": {}},
        **{"history": [], "last_fatal": "", "written_at": time.time() - 1000, "schema": 1},
    }
    (state / "g1/rank-0/status.json").write_text(json.dumps(status))
    (state / "g1/rank-0/unit.pid").write_text('{"pid": 999999999, "start_ticks": 1}')
    return run


def test_a_stopped_rank_has_only_a_last_word_and_there_is_a_next_step(cli: Cli) -> None:
    done = cli("status", "mine")
    assert done.returncode == 1
    assert "rank 0 on node-a: does not run or hangs; its last word was " in done.stdout
    assert "serving" not in done.stdout
    assert "canary" not in done.stdout
    assert "-> sparkctl up tiny --nodes 1 --executor mp --name mine" in done.stdout
    (entry,) = json.loads(cli("status", "mine", "--json").stdout)
    (rank,) = entry["ranks"]
    assert (entry["ready"], rank["ready"], rank["last_word_s_ago"] > 900) == (False, False, True)
    assert entry["next_step"] == "sparkctl up tiny --nodes 1 --executor mp --name mine"


def test_a_log_of_absurd_events_is_no_reason_to_fail(cli: Cli, state: Path) -> None:
    (state / "events.jsonl").write_text('{"kind": "note", "at": 1e308, "generation": 1e9}\n{"kind": "note", "at"')
    done = cli("status", "mine")
    assert (done.returncode, done.stderr, "generation 1, tiny" in done.stdout) == (1, "", True)


def test_down_ends_also_what_is_of_a_generation_without_a_record(cli: Cli, state: Path) -> None:
    (state / "g7/rank-0").mkdir(parents=True)
    (state / "g7/plan.json").write_bytes(b"")
    (state / "g7/rank-0/unit.log").write_text("words\n")
    done = cli("down", "mine")
    assert (done.returncode, done.stdout) == (0, "mine: stopped; its nodes are bare\n"), done.stderr
    assert not state.exists()


def test_down_that_leaves_something_is_a_failure(cli: Cli, state: Path, tmp_path: Path) -> None:
    """Something that writes the files again, each time it is asked, stands in for what survives."""
    docker = tmp_path / "home" / "docker"
    docker.write_text(f'#!/bin/sh\n[ -e "{state}" ] || {{ mkdir -p "{state}/g9"; echo x >"{state}/g9/plan.json"; }}\n')
    docker.chmod(0o755)
    done = cli("down", "mine")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"node-a: no units, found files in {state}, should be gone" in done.stderr
    assert "-> run `sparkctl down mine` once more" in done.stderr


HERE = """\
name: pair
nodes:
  - {{name: spark-1, ssh: {{host: {host}, user: me}}, rails: [{{netdev: eth0, address: 198.51.100.1}}]}}
topology: direct
"""


@pytest.fixture
def of_a_pair(tmp_path: Path) -> Path:
    """This machine is also the node spark-1 of the operator's cluster."""
    file = tmp_path / "cluster.yaml"
    file.write_text(HERE.format(host=os.uname().nodename))
    return file


@pytest.mark.usefixtures("of_a_pair")
def test_what_this_machine_runs_alone_is_not_its_clusters(cli: Cli, state: Path) -> None:
    """Both clusters of this machine read one state directory, and each must tell only of its own."""
    (entry,) = json.loads(cli("status", "mine", "--json").stdout)
    assert [rank["node"] for rank in entry["ranks"]] == ["node-a"]
    assert len(json.loads(cli("status", "--json").stdout)) == 1
    assert "Traceback" not in cli("logs", "mine").stderr
    done = cli("down", "mine")
    assert (done.returncode, done.stdout) == (0, "mine: stopped; its nodes are bare\n"), done.stderr
    assert not state.exists()


@pytest.fixture
def docked(cli: Cli, of_a_pair: Path, state: Path) -> Path:
    """Also the record of ``deepseek-v4-flash`` on spark-1: containers. Answers with its state directory."""
    cluster = parse(of_a_pair.read_text(), "cluster.yaml", Cluster)
    chosen = resolved(profile(nodes__min=1, nodes__default=1), nodes=1, executor="mp", cluster=cluster)
    of = build(chosen, facts(chosen, home=str(state.parents[3])), OPERATOR, 1)
    folder = Path(of.state["spark-1"])
    (folder / "g1/rank-0").mkdir(parents=True)
    (folder / "g1/plan.json").write_text(of.canonical())
    return folder


def docker(folder: Path, script: str) -> None:
    """FakeDocker: a program of that name which answers as ``script`` does."""
    path = folder / "home" / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


DENIED = "permission denied while trying to connect to the Docker daemon socket"


def test_a_docker_that_refuses_is_unknown_and_its_record_stays(cli: Cli, docked: Path, tmp_path: Path) -> None:
    docker(tmp_path, f'echo "{DENIED}" >&2; exit 1')
    (entry,) = json.loads(cli("status", docked.name, "--json").stdout)
    assert all("UNKNOWN" in line and DENIED in line for line in entry["differs"])
    done = cli("down", docked.name)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert DENIED in done.stderr
    assert (docked / "g1/plan.json").exists()


def test_a_container_that_docker_does_not_end_is_no_bare_node(cli: Cli, docked: Path, tmp_path: Path) -> None:
    name = f"sparkctl-{docked.name}-g1-rank-0"
    docker(tmp_path, f'case "$1" in ps) echo {name} ;; stop|rm) echo "cannot kill container" >&2; exit 1 ;; esac')
    done = cli("down", docked.name)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"docker did not end {name}" in done.stderr
    assert (docked / "g1/plan.json").exists()


def test_containers_that_are_gone_already_are_bare_nodes(cli: Cli, docked: Path, tmp_path: Path) -> None:
    docker(tmp_path, 'case "$1" in stop|rm) echo "No such container" >&2; exit 1 ;; esac')
    done = cli("down", docked.name)
    assert (done.returncode, done.stdout) == (0, f"{docked.name}: stopped; its nodes are bare\n"), done.stderr
    assert not docked.exists()


def test_a_name_that_another_cluster_of_this_machine_has_is_taken(cli: Cli, docked: Path) -> None:
    done = cli("up", "tiny", "--name", docked.name)
    assert done.returncode == 5
    assert f"{docked.name}: should be a name of its own, found a deployment of that name on spark-1" in done.stderr
    assert f"-> give this one another name: --name {docked.name}-2" in done.stderr
    assert f"--name {docked.name}-2" in cli("plan", "tiny", "--name", docked.name).stdout


def test_who_is_at_work_is_said_and_what_is_being_made_is_no_leftover(cli: Cli, state: Path) -> None:
    holder = {"user": "ann", "host": "desk", "machine": "m", "pid": 7, "since": 1.0, "why": "up", "nonce": "ab"}
    lock = state.parent / "mine.lock"
    lock.mkdir()
    (lock / "holder.json").write_text(json.dumps(holder))
    for ago_s, under_way in ((3, True), (300, False)):
        (lock / "beat").write_text(f"{int(time.time()) - ago_s}\n")
        said = cli("status", "mine").stdout
        assert ("under way: ann@desk (process 7) since " in said) == under_way
        assert ("-> sparkctl up tiny" in said) == (not under_way)
    (entry,) = json.loads(cli("status", "mine", "--json").stdout)
    assert entry["under_way"] == ""


RENAMED = """\
topology: loopback
nodes:
  - {name: box-a, accelerator: none, rails: [{netdev: lo, address: 127.0.0.2}]}
  - {name: box-b, accelerator: none, rails: [{netdev: lo, address: 127.0.0.3}]}
gateway: {address: 127.0.0.1, port: 28003}
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status", "mine"), 1),
        (("logs", "mine"), 0),
        (("support-bundle", "mine", "--out", "b.tar.gz"), 0),
        (("up", "tiny", "--name", "mine"), 5),
        (("down", "mine"), 1),
    ],
)
def test_a_recorded_node_that_the_cluster_file_names_no_more_is_named(
    words: tuple[str, ...], code: int, cli: Cli, tmp_path: Path, state: Path
) -> None:
    (tmp_path / "cluster.yaml").write_text(RENAMED)
    done = cli(*words)
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert "should be a node of the cluster file, for generation 1 of mine is there" in done.stdout + done.stderr
    assert "node-a" in done.stdout + done.stderr
    assert (state / "g1/plan.json").is_file(), "it is the only record of what may still run there"
