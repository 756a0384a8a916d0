"""``sparkctl up`` on real nodes. Assertions look from outside (HTTP) and from behind (inside the nodes), and never take
sparkctl's word for it. The tests run in the order they stand in: each begins with a deployment that serves."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.embedded.single import found
from tests.lab import operator as desk
from tests.lab import processes
from tests.lab.image import Layout
from tests.lab.node import Node
from tests.lab.nodes import Lab, Snapshot
from tests.operator import Operator, press_ctrl_c, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PHASES = (
    "Bring the images",
    "Bring the model",
    "Write the agent",
    "Start generation",
    "Wait until every gate",
    "Open the gateway",
)


@pytest.fixture(scope="module")
def operator(
    lab: Lab, lab_image: Layout, lab_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    made = desk.make(tmp_path_factory.mktemp("operator"), lab, lab_image, lab_model)
    yield made
    made.run("down", "lab")


@pytest.fixture(scope="module")
def bare(lab: Lab) -> list[Any]:
    """What the nodes look like before anything was done to them."""
    return [node.snapshot() for node in lab.nodes]


def sparkctl_containers(node: Node) -> list[str]:
    return [container.name for container in node.containers() if container.name.startswith("sparkctl-")]


def added(after: Snapshot, before: Snapshot) -> set[str]:
    """Command lines that were not there before."""
    return set(after.processes) - set(before.processes)


def assert_bare(operator: Operator, lab: Lab, bare: list[Any]) -> None:
    """Nothing is there that was not there before: only models stay, and images, which are named by digest."""
    state = {".local", ".local/state", ".local/state/sparkctl"}
    for node, before in zip(lab.nodes, bare, strict=True):
        until = time.monotonic() + 15
        while added(after := node.snapshot(), before) and time.monotonic() < until:  # a session's helpers outlive it
            time.sleep(0.5)
        assert added(after, before) == set()
        assert after.containers == before.containers
        assert after.listening == before.listening
        assert after.temporary - before.temporary == set()
        more = {path for path in after.files.keys() - before.files.keys() if not path.startswith("models")}
        assert more - state == set()
    assert operator.processes() == {}
    assert list((operator.folder / "tmp").iterdir()) == []


def engine_pids(lab: Lab) -> set[tuple[str, int]]:
    words = ("ray::", "raylet", "gcs_server", "vllm serve", "VLLM::")
    return {(node.name, pid) for node in lab.nodes for word in words for pid in node.pids(word)}


def test_plan_changes_nothing_on_any_node(operator: Operator, lab: Lab, bare: list[Any]) -> None:
    done = operator.run("plan", "lab", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    assert "nothing runs yet" in done.stdout
    assert [node.snapshot() for node in lab.nodes] == bare


def test_up_brings_the_image_by_digest_and_serves_over_the_fabric(
    operator: Operator, lab: Lab, lab_image: Layout
) -> None:
    done = operator.run("up", "lab", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    for node in lab.nodes:
        assert lab_image.ref.digest in node.sh("docker image ls --digests")
    before = [node.rail_bytes(0) for node in lab.nodes]
    response = operator.chat(tokens=32)
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["completion_tokens"] == 32
    crossed = [node.rail_bytes(0) - old for node, old in zip(lab.nodes, before, strict=True)]
    assert min(crossed) > 100_000, f"bytes over the fabric for 32 tokens: {crossed}"


def words_of(pid: int, file: str) -> list[bytes]:
    """The environment or the command line of a process, as the kernel has it."""
    return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")[:-1]


def test_strings_arrive_in_the_container_byte_for_byte(operator: Operator, lab: Lab) -> None:
    engine = lab.nodes[0].pids("vllm serve")[0]
    agents = [node.pids("agent.pyz run")[0] for node in lab.nodes]
    for pid in (engine, *agents):
        assert f"ODD={desk.ODD}".encode() in words_of(pid, "environ")
    planned = json.loads(operator.run("plan", "lab", "--nodes", "2", "--json").stdout)["ranks"][0]["rank_file"]
    words = [word.encode() for word in planned["steps"][-1]["argv"]][1:]
    assert f"--response-role={desk.ODD}".encode() in words
    assert words_of(engine, "cmdline")[-len(words) :] == words
    assert operator.chat().json()["choices"][0]["message"]["role"] == desk.ODD


# What Ray itself asks its head's server with. A driver that does not know the token gets no further than this either.
_ASK_GCS = (
    "import sys; from ray._raylet import GcsClient; "
    "print('nodes', len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5)))"
)


def test_rays_head_refuses_who_does_not_know_the_token(lab: Lab) -> None:
    (name,) = [name for name in sparkctl_containers(lab.nodes[1]) if "rank-1" in name]

    def asked(env: str) -> str:
        said = f"timeout 60 env {env} python3 -c {shlex.quote(_ASK_GCS)} {lab.nodes[0].fabric[0]}:6379 2>&1"
        return lab.nodes[1].sh(f"docker exec {name} sh -c {shlex.quote(said)}", check=False, timeout_s=90)

    assert "nodes 2" in asked("")
    for env in ("-u RAY_AUTH_TOKEN_PATH RAY_AUTH_MODE=disabled", "-u RAY_AUTH_TOKEN_PATH RAY_AUTH_TOKEN=not-the-token"):
        said = asked(env)
        assert "nodes 2" not in said
        assert "InvalidAuthToken" in said, said


def test_the_engine_listens_on_loopback_only(lab: Lab) -> None:
    listening = lab.nodes[0].sh("ss -Hltn 'sport = :8001'").split()
    assert [word for word in listening if word.endswith(":8001")] == ["127.0.0.1:8001"]
    for address in (lab.nodes[0].fabric[0], lab.nodes[0].address):
        assert "000" in lab.nodes[1].sh(f"curl -s -m 2 -o /dev/null -w '%{{http_code}}' {address}:8001/tokenize; true")


def test_no_secret_is_in_an_argv_an_inspection_or_a_log(operator: Operator, lab: Lab) -> None:
    state = "/home/spark/.local/state/sparkctl/lab"
    for node in lab.nodes:
        found = f"$(find {state} -name '*.token' -o -name '*.key' -o -name engine.map)"
        secrets = node.sh(f"for file in {found}; do cat $file; echo; done").split()
        names = " ".join(sparkctl_containers(node))
        seen = node.sh(
            f"ps -eo args; docker inspect {names}; for c in {names}; do docker logs $c 2>&1; done; "
            f"cat $(find {state} -name plan.json -o -name rank.json -o -name status.json)"
        )
        assert len(secrets) >= 3
        assert [secret[:4] for secret in secrets if len(secret) > 8 and secret in seen] == []
        assert operator.key not in seen
        assert set(node.sh(f"find {state} -name '*.key' -printf '%m\\n'").split()) == {"600"}


def test_the_greedy_answer_is_that_of_one_process(operator: Operator, lab_model: Path) -> None:
    single = Path(__file__).parents[1] / "embedded" / "single.py"
    done = subprocess.run([sys.executable, single, lab_model], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = operator.chat(tokens=24).json()["choices"][0]["message"]["content"]
    assert said == found(done.stdout)


def test_the_openai_client_chats_streams_hangs_up_and_is_refused(operator: Operator, lab: Lab) -> None:
    client = openai.OpenAI(base_url=f"{operator.url}/v1", api_key=operator.key, max_retries=0)
    ask: Any = [{"role": "user", "content": "Hello fox"}]
    assert client.chat.completions.create(model="tiny", messages=ask, max_tokens=4).usage is not None
    chunks = list(client.chat.completions.create(model="tiny", messages=ask, max_tokens=8, stream=True))
    assert len(chunks) >= 2
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{operator.url}/v1", api_key="sk-wrong-wrong-wrong", max_retries=0).models.list()
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=ask)
    more: Any = {"ignore_eos": True}
    long = client.chat.completions.create(model="tiny", messages=ask, max_tokens=450, stream=True, extra_body=more)
    next(iter(long))
    long.close()
    running = "curl -s http://127.0.0.1:8001/metrics | grep '^vllm:num_requests_running'"
    wait_for("the engine drops what its client hung up on", lambda: lab.nodes[0].sh(running).split()[-1] == "0.0", 20)


def test_up_again_changes_nothing_and_begins_nothing(operator: Operator, lab: Lab) -> None:
    log = "cat /home/spark/.local/state/sparkctl/lab/events.jsonl"
    before, events = ([node.snapshot() for node in lab.nodes], engine_pids(lab)), lab.nodes[0].sh(log)
    began = time.monotonic()
    done = operator.run("up", "lab", "--nodes", "2")
    print(f"\n  up again took {time.monotonic() - began:.2f} s")
    assert done.returncode == 0, done.stderr
    assert "no changes" in done.stdout
    assert done.stderr == ""
    assert lab.nodes[0].sh(log) == events
    assert "no changes" in operator.run("plan", "lab").stdout
    assert engine_pids(lab) == before[1]
    assert [each.containers for each in (node.snapshot() for node in lab.nodes)] == [
        each.containers for each in before[0]
    ]


def gang_restarts(operator: Operator, lab: Lab, node: Node, pid: int) -> None:
    """Kill a process from behind: traffic is refused with 503 and comes back, and no old process survives."""
    before = engine_pids(lab)
    node.kill(pid)
    wait_for("the gateway refuses with 503 and Retry-After", operator.refuses, 90)
    wait_for("the service answers again", operator.answers, 240)
    assert before & engine_pids(lab) == set()


def test_a_killed_vllm_worker_restarts_the_gang(operator: Operator, lab: Lab) -> None:
    gang_restarts(operator, lab, lab.nodes[1], lab.nodes[1].pids("ray::RayWorker")[0])


def test_a_killed_raylet_restarts_the_gang(operator: Operator, lab: Lab) -> None:
    gang_restarts(operator, lab, lab.nodes[1], lab.nodes[1].pids("raylet/raylet")[0])


def test_a_killed_agent_restarts_the_gang(operator: Operator, lab: Lab) -> None:
    gang_restarts(operator, lab, lab.nodes[1], lab.nodes[1].pids("agent.pyz run")[0])


def test_after_a_reboot_the_service_comes_back_by_itself(operator: Operator, lab: Lab) -> None:
    before = engine_pids(lab)
    lab.nodes[1].reboot()
    wait_for("the gateway refuses with 503 and Retry-After", operator.refuses, 120)
    wait_for("the service answers again", operator.answers, 300)
    head = lab.nodes[0].name
    assert {each for each in before & engine_pids(lab) if each[0] == head} == set()


def test_after_a_reboot_of_the_head_the_service_comes_back_by_itself(operator: Operator, lab: Lab) -> None:
    """Rank 0, Ray's head and the gateway go at once: nobody answers until docker has started them again."""
    engines, head = engine_pids(lab), lab.nodes[0]
    before = {pid: processes.started_at(pid) for pid in head.pids(".")}
    generation = operator.status()["generation"]
    head.reboot()
    wait_for("the gateway refuses with 503 and Retry-After", operator.refuses, 120)
    wait_for("the service answers again", operator.answers, 300)
    assert [pid for pid, started in before.items() if processes.started_at(pid) == started] == []
    assert engines & engine_pids(lab) == set()
    assert operator.status()["generation"] == generation


def test_down_with_a_node_out_of_reach_says_unknown_and_keeps_the_record(operator: Operator, lab: Lab) -> None:
    lab.nodes[1].block_ssh()
    try:
        done = operator.run("down", "lab")
    finally:
        lab.nodes[1].unblock_ssh()
    assert done.returncode == 1
    assert "spark-2: UNKNOWN" in done.stderr
    assert sparkctl_containers(lab.nodes[0]) == []
    assert sparkctl_containers(lab.nodes[1]) != []
    assert "g1/plan.json" in lab.nodes[0].sh("find /home/spark/.local/state/sparkctl -name plan.json")


def test_down_leaves_bare_nodes(operator: Operator, lab: Lab, bare: list[Any]) -> None:
    done = operator.run("down", "lab")
    assert done.returncode == 0, done.stderr
    assert_bare(operator, lab, bare)


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_at_every_phase_boundary_leaves_nothing(
    operator: Operator, lab: Lab, bare: list[Any], phase: str
) -> None:
    with operator.start("up", "lab", "--nodes", "2") as process:
        assert "what was begun is undone" in press_ctrl_c(process, phase)
    assert_bare(operator, lab, bare)


def test_a_second_operator_is_refused_with_the_holders_name(operator: Operator, lab: Lab) -> None:
    lock = "/home/spark/.local/state/sparkctl/lab.lock/holder.json"
    with operator.start("up", "lab", "--nodes", "2", "--executor", "mp") as first:
        wait_for("the first holds the lock", lambda: "nonce" in lab.nodes[0].sh(f"cat {lock}", check=False), 60)
        second = operator.run("up", "lab", "--nodes", "2", "--executor", "mp")
        assert second.returncode == 4, second.stderr
        assert f"spark-1: locked by {getpass.getuser()}@{os.uname().nodename} (process {first.pid}) " in second.stderr
        _, err = first.communicate(timeout=400)
    assert first.returncode == 0, err


def test_mp_serves_the_same_without_ray(operator: Operator, lab: Lab) -> None:
    assert operator.chat(tokens=8).json()["usage"]["completion_tokens"] == 8
    assert [pid for node in lab.nodes for pid in node.pids("raylet")] == []
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://{lab.nodes[0].address}:8001/health", timeout=2)


def test_mp_a_killed_vllm_worker_restarts_the_gang(operator: Operator, lab: Lab) -> None:
    gang_restarts(operator, lab, lab.nodes[1], lab.nodes[1].pids("VLLM::Worker")[0])
    assert operator.run("down", "lab").returncode == 0


def test_the_fabric_is_measured_in_the_image_and_over_the_fabric(operator: Operator, lab: Lab) -> None:
    before = lab.nodes[1].rail_bytes(0)
    done = operator.run("fabric", "test", "lab", "--nodes", "2", "--executor", "mp", "--size-mib", "32", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["nodes"], report["backend"], report["verdict"]) == (["spark-1", "spark-2"], "gloo", "unknown")
    assert report["bus_bytes_s"] > 0
    assert lab.nodes[1].rail_bytes(0) - before > 12 * 16 * 2**20
    assert [each.name for node in lab.nodes for each in node.containers()] == []
