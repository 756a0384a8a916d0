"""``sparkctl up tiny`` end to end: real Ray, vLLM and HAProxy, no root. The tests run in the order they stand in."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.embedded.desk import Desk
from tests.operator import begins, press_ctrl_c, wait_for

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def noted() -> set[str]:
    """Every file in /tmp and /dev/shm that was ever seen in use: all of them have to go again."""
    return set()


def forgotten(desk: Desk, noted: set[str]) -> list[str]:
    """Files that were in use once, are not now, and lie about nevertheless."""
    return sorted(path for path in noted - desk.held() if Path(path).exists())


def test_plan_changes_nothing(desk: Desk) -> None:
    done = desk.run("plan", "tiny")
    assert done.returncode == 0, done.stderr
    assert "nothing runs yet" in done.stdout
    assert not desk.state.exists()
    assert desk.processes() == {}


def test_up_ends_with_an_endpoint_that_answers(desk: Desk) -> None:
    done = desk.run("up", "tiny", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    assert f"{desk.url}/v1" in done.stdout
    response = desk.chat(tokens=4)
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["completion_tokens"] == 4


def test_make_up_ends_with_an_endpoint_a_key_and_an_answer(desk: Desk) -> None:
    """The recipe itself, over what runs already; it looks for the program that asks beside it."""
    (desk.folder / "containers").symlink_to(ROOT / "containers")
    argv = (
        "make",
        "--no-print-directory",
        "-f",
        str(ROOT / "Makefile"),
        f"VENV={sys.prefix}",
        "-o",
        f"{sys.prefix}/.made-by-make",
        "up",
    )
    done = subprocess.run(argv, cwd=desk.folder, env=desk.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[-4:])
    assert (told["endpoint"], told["key"]) == (f"{desk.url}/v1", desk.key)
    assert told["model"].startswith("tiny (16 tokens answered")
    assert told["answer"] == repr(desk.chat(tokens=16, ignore_eos=False).json()["choices"][0]["message"]["content"])


def test_status_shows_every_gate_of_every_rank(desk: Desk) -> None:
    status = desk.status()
    assert status["ready"] is True
    gates = {rank["rank"]: {gate["name"]: gate["open"] for gate in rank["gates"]} for rank in status["ranks"]}
    assert set(gates) == {0, 1}
    assert {"ranks", "pins", "health", "model", "completion", "tokens"} <= set(gates[0])
    assert all(value is True for rank in gates.values() for value in rank.values())


def test_up_again_changes_nothing_and_begins_nothing(desk: Desk, noted: set[str]) -> None:
    noted |= desk.held()
    before, events = desk.processes(), (desk.state / "tiny/events.jsonl").read_bytes()
    began = time.monotonic()
    done = desk.run("up", "tiny", "--nodes", "2")
    print(f"\n  up again took {time.monotonic() - began:.2f} s")
    assert done.returncode == 0, done.stderr
    assert "no changes" in done.stdout
    assert done.stderr == ""
    assert (desk.state / "tiny/events.jsonl").read_bytes() == events
    assert set(desk.processes()) == set(before)
    assert "no changes" in desk.run("plan", "tiny").stdout


def test_two_ranks_answer_as_one_process_does(desk: Desk, single_answer: str) -> None:
    said = desk.chat(tokens=24).json()["choices"][0]["message"]["content"]
    assert said == single_answer


def test_the_openai_client_chats_streams_and_is_refused_in_its_own_words(desk: Desk) -> None:
    client = openai.OpenAI(base_url=f"{desk.url}/v1", api_key=desk.key, max_retries=0)
    ask: Any = [{"role": "user", "content": "Hello fox"}]
    stream = client.chat.completions.create(model="tiny", messages=ask, max_tokens=8, stream=True)
    assert sum(1 for _ in stream) >= 2
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{desk.url}/v1", api_key="sk-wrong-wrong-wrong", max_retries=0).models.list()
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=ask)


def secrets_of(desk: Desk) -> set[str]:
    """Every secret of the generation that runs, and the operator's key."""
    files = [*desk.state.rglob("*.token"), *desk.state.rglob("*.key"), *desk.state.rglob("engine.map")]
    return {path.read_text(encoding="utf-8").split()[-1] for path in files} | {desk.key}


def test_no_secret_is_in_an_argv_a_plan_or_a_log(desk: Desk) -> None:
    secrets = secrets_of(desk)
    assert len(secrets) >= 4
    seen = "\n".join(desk.processes().values())
    seen += "\n".join(path.read_text(errors="replace") for path in desk.state.rglob("*.log"))
    seen += "\n".join(
        path.read_text() for name in ("plan.json", "rank.json", "status.json") for path in desk.state.rglob(name)
    )
    assert [secret[:4] for secret in secrets if secret in seen] == []
    assert {oct(path.stat().st_mode & 0o077) for path in desk.state.rglob("*.key")} == {"0o0"}


def test_a_support_bundle_holds_everything_but_secrets(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "bundle.tar.gz"
    done = desk.run("support-bundle", "tiny", "--out", str(out))
    assert done.returncode == 0, done.stderr
    with tarfile.open(out) as archive:
        files = [archive.extractfile(member) for member in archive.getmembers()]
        names = {member.name.split("/", 2)[-1] for member in archive.getmembers()}
        whole = b"".join(file.read() for file in files if file is not None)
    assert {"plan.json", "findings.txt", "node-a/facts.txt", "node-b/1.log", "node-a/gateway.log"} <= names
    assert [secret[:4] for secret in secrets_of(desk) if secret.encode() in whole] == []


def test_logs_merge_the_ranks_with_their_nodes(desk: Desk) -> None:
    lines = desk.run("logs", "tiny", "-n", "2000").stdout.splitlines()
    assert {line.partition(" | ")[0] for line in lines if " | " in line} >= {"node-a 0", "node-b 1"}
    assert any("Application startup complete" in line for line in lines)


def test_following_logs_ends_with_ctrl_c_and_the_service_goes_on(desk: Desk) -> None:
    with desk.start("logs", "tiny", "-f") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "detached" in err
    assert desk.answers()


def gang_restarts(desk: Desk, victim: int) -> None:
    """Kill ``victim``; traffic is refused with 503 and comes back, and no process of the gang has survived."""
    before = {pid for pid, line in desk.processes().items() if "agent" not in line and "haproxy" not in line}
    attempt = desk.status()["ranks"][0]["attempt"]
    os.kill(victim, signal.SIGKILL)
    wait_for("the gateway refuses with 503 and Retry-After", desk.refuses, 90)
    wait_for("the service answers again", desk.answers, 180)
    status = desk.status()
    assert status["ranks"][0]["attempt"] > attempt
    assert before & set(desk.processes()) == set()


def test_a_killed_worker_makes_the_whole_gang_start_anew(desk: Desk) -> None:
    (worker,) = [
        pid for pid in desk.pids("ray::") if "Worker" in desk.processes().get(pid, "") and on_node_b(desk, pid)
    ]
    gang_restarts(desk, worker)


def test_a_killed_agent_loses_its_rank_and_is_reported(desk: Desk) -> None:
    (agent,) = list(desk.pids("rank-1/rank.json"))
    os.kill(agent, signal.SIGKILL)
    wait_for("the gateway refuses with 503", desk.refuses, 90)
    wait_for("status names the rank", lambda: any("rank-1" in line for line in desk.status()["differs"]), 30)
    done = desk.run("up", "tiny", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    assert desk.answers()


def on_node_b(desk: Desk, pid: int) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return b"VLLM_HOST_IP=127.0.0.3" in file.read().split(b"\0")


def standing(desk: Desk, noted: set[str]) -> dict[str, object]:
    """All that is there of a deployment, but for its generations' numbers and Ray's workers, which come and go."""
    kinds = Counter(Path(line.split()[0]).name for line in desk.processes().values() if not line.startswith("ray::"))
    files = sorted(path.name for path in (desk.state / "tiny").iterdir() if not re.fullmatch(r"g\d+", path.name))
    return {
        "processes": dict(kinds),
        "ports": desk.listening(),
        "deployments and locks": sorted(path.name for path in desk.state.iterdir()),
        "files": files,
        "generations": len(list((desk.state / "tiny").glob("g*"))),
        "temporary": forgotten(desk, noted),
    }


def stands(desk: Desk, noted: set[str], generation: int, like: dict[str, object]) -> None:
    """Generation ``generation`` serves, and nothing of any other is there."""
    wait_for(f"generation {generation} serves", desk.answers, 240)
    assert desk.status()["generation"] == generation
    wait_for("its gates are open", lambda: bool(desk.status()["ready"]), 60)
    assert standing(desk, noted) == like
    assert desk.generations() == {generation}


def test_a_second_operator_is_refused_with_the_holders_name_and_ctrl_c_undoes(desk: Desk, noted: set[str]) -> None:
    served, before = desk.status()["generation"], standing(desk, noted)
    with desk.start("up", "tiny", "--nodes", "1") as first:
        wait_for("the first operator holds the lock", (desk.state / "tiny.lock").is_dir, 30)
        second = desk.run("up", "tiny", "--nodes", "1")
        assert second.returncode == 4
        assert f"locked by {getpass.getuser()}@{os.uname().nodename} (process {first.pid}) " in second.stderr
        # The one boundary that a deployment on one node does not have.
        err = press_ctrl_c(first, f"Stop generation {served}", lambda: noted.update(desk.held()))
    assert "what was begun is undone" in err
    stands(desk, noted, served, before)


def test_mp_serves_the_same_answer_and_what_ray_answered_meanwhile_is_whole(desk: Desk, single_answer: str) -> None:
    with ThreadPoolExecutor(12) as clients:
        answers = [clients.submit(desk.chat, tokens=440) for _ in range(12)]
        done = desk.run("up", "tiny", "--nodes", "2", "--executor", "mp")
    assert done.returncode == 0, done.stderr
    assert "Let generation" in done.stderr
    whole = [answer.result() for answer in answers]
    assert [(one.status_code, one.json()["usage"]["completion_tokens"]) for one in whole] == [(200, 440)] * 12
    assert desk.pids("ray::") == []
    said = desk.chat(tokens=24).json()["choices"][0]["message"]["content"]
    assert said == single_answer


def test_ctrl_c_while_the_old_generation_is_forgotten_leaves_the_new_one(desk: Desk, noted: set[str]) -> None:
    with desk.start("up", "tiny", "--nodes", "1", "--executor", "mp") as process:
        err = press_ctrl_c(process, "Forget generation", lambda: noted.update(desk.held()))
    assert "what was begun is finished" in err
    assert "the new generation serves" in err
    new = desk.status()["generation"]
    alone = {"deployments and locks": ["tiny"], "generations": 1, "temporary": []}
    stands(desk, noted, new, standing(desk, noted) | alone)
    assert "no changes" in desk.run("up", "tiny", "--nodes", "1", "--executor", "mp").stdout


# What serves has one rank here, because it starts again each time and two take longer. What is begun has two.
@pytest.mark.parametrize(
    "phase",
    [
        "Bring the model",
        "Write the agent",
        "Let generation",
        "Hand the gateway",
        "Start generation",
        "Wait until every gate",
        "Open the gateway",
    ],
)
def test_ctrl_c_at_every_phase_boundary_of_an_update_leaves_the_old_generation(
    desk: Desk, noted: set[str], phase: str
) -> None:
    noted |= desk.held()
    served, before, running = desk.status()["generation"], standing(desk, noted), set(desk.processes())
    with desk.start("up", "tiny", "--nodes", "2", "--executor", "mp") as process:
        if phase == "Open the gateway":  # over in a moment, so the gateway is held: it cannot open before the key
            begins(process, "Wait until every gate")
            (gateway,) = desk.pids("haproxy -db")
            os.kill(gateway, signal.SIGSTOP)
        err = press_ctrl_c(process, phase, lambda: noted.update(desk.held()))
    assert "what was begun is undone" in err
    touched = "is starting again" in err
    # The first two are over in a moment too: what had begun when the key was heard stands in what was said since.
    assert touched == (phase not in ("Bring the model", "Write the agent") or "Let generation" in err)
    stands(desk, noted, served, before)
    assert touched or set(desk.processes()) == running


def test_a_node_that_serves_already_is_refused_before_anything_is_done(desk: Desk) -> None:
    before = desk.processes()
    done = desk.run("up", "broken", "--nodes", "1", "--executor", "mp")
    assert done.returncode == 5, done.stderr
    assert "[NODE_IN_USE]\n  -> sparkctl down tiny" in done.stderr
    assert desk.processes().keys() == before.keys()


def test_down_leaves_nothing(desk: Desk, noted: set[str]) -> None:
    noted |= desk.held() | desk.scratch()
    assert any(path.startswith("/dev/shm/") for path in noted)
    assert any(Path(path).is_dir() for path in desk.scratch())
    done = desk.run("down", "tiny")
    assert done.returncode == 0, done.stderr
    assert desk.processes() == {}
    assert desk.listening() == set()
    assert not desk.state.exists() or list(desk.state.iterdir()) == []
    assert forgotten(desk, noted) == []
    assert desk.run("down", "tiny").returncode == 0


def test_a_taken_port_is_refused_and_names_its_owner(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", desk.gateway_port)):
        done = desk.run("up", "broken", "--nodes", "1", "--executor", "mp")
    assert done.returncode == 5, done.stderr
    assert "[PORT_TAKEN]" in done.stderr
    assert f"port {desk.gateway_port} (gateway) taken by " in done.stderr
    assert f"(pid {os.getpid()})" in done.stderr
    assert desk.processes() == {}


def test_the_fabric_is_measured_without_a_deployment(desk: Desk) -> None:
    done = desk.run("fabric", "test", "tiny", "--size-mib", "16", "--rounds", "2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["nodes"], report["backend"], report["verdict"]) == (["node-a", "node-b"], "gloo", "unknown")
    assert report["bus_bytes_s"] > 0


def test_an_engine_that_exits_at_once_is_told_with_its_first_fatal_line_and_undone(desk: Desk) -> None:
    done = desk.run("up", "broken", "--nodes", "1", "--executor", "mp")
    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-flag" in done.stderr
    (kept,) = [line.partition("kept in ")[2] for line in done.stderr.splitlines() if "kept in " in line]
    assert "no-such-flag" in (Path(kept) / "node-a-0.log").read_text(encoding="utf-8")
    assert desk.processes() == {}
    assert desk.listening() == set()
    assert not (desk.state / "broken").exists()
