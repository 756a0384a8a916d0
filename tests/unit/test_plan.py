"""The launch plan as a value: identity, order, words, and what a command line does to odd strings."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.doctor.preflight import wanted_ports
from orchestrator.plan import phases, runtime
from orchestrator.plan.actions import Put, Run
from orchestrator.plan.build import Operator, build
from orchestrator.plan.diff import changes
from orchestrator.plan.engine_args import free_args, quiet_args
from orchestrator.plan.launch import LaunchPlan, identity, identity_of
from orchestrator.plan.load import plan_from_json
from orchestrator.plan.rankfile import RankFile
from orchestrator.plan.runtime import start
from orchestrator.plan.seat import assumed_facts, seat
from orchestrator.plan.serve import RAY_DIRECTORY
from orchestrator.spec.cluster import GatewayAt
from orchestrator.spec.profile import Executor
from orchestrator.verbs.world import EXAMPLE
from tests.unit.builders import facts, plan, profile, resolved

ODD = [
    "two words",
    'it\'s "quoted"',
    "$(touch /tmp/never)",
    "`id`",
    "line\nbreak",
    "-leading",
    "--",
    "ünïcode 🦊",
    "",
    "*",
]


@pytest.mark.parametrize(
    ("version", "args", "known"),
    [
        ("0.32.0+cpu", {}, True),
        ("0.25.2.dev0+g752a3a504.d20260714", {}, True),
        ("0.16.0", {}, True),
        ("0.15.1", {}, False),
        ("", {}, False),
        ("0.32.0", {"disable-access-log-for-endpoints": "/health"}, False),
    ],
)
def test_the_probers_requests_are_kept_out_of_the_log(version: str, args: dict[str, str], known: bool) -> None:
    flag = ("--disable-access-log-for-endpoints", "/health,/metrics,/v1/models")
    assert quiet_args(version, args) == (flag if known else ())


def test_identity_does_not_depend_on_the_generation() -> None:
    of = resolved(profile())
    assert plan(of, 1).digest == plan(of, 7).digest
    assert plan(of, 7).generation == 7


def test_identity_changes_with_anything_that_would_run_differently() -> None:
    one, other = plan(resolved(profile())), plan(resolved(profile(engine__max_seqs=5)))
    assert one.digest != other.digest


def test_another_operator_restarts_nothing() -> None:
    of = resolved(profile())
    mine, theirs = (build(of, facts(of), Operator(home, "b" * 64), 3) for home in ("/home/me", "/home/them"))
    assert mine.models[0].source != theirs.models[0].source
    assert (mine.digest, changes(mine, theirs)) == (theirs.digest, ())
    assert identity_of(theirs) == theirs.digest
    assert replace(mine, warnings=("in other words",)).digest == identity_of(replace(mine, warnings=()))


def test_identity_is_refused_for_a_plan_that_has_a_generation() -> None:
    with pytest.raises(ValueError, match="before it gets a generation"):
        identity(plan(resolved(profile())))


def test_a_stored_plan_is_the_same_value() -> None:
    one = plan(resolved(profile()))
    assert plan_from_json(one.canonical()) == one


def test_a_damaged_plan_says_where() -> None:
    value = plan(resolved(profile())).to_value()
    value["ranks"][0]["unit"].pop("argv")
    with pytest.raises(ValueError, match="ranks/0/unit/argv"):
        plan_from_json(json.dumps(value))


def test_a_rank_file_is_the_same_value_after_its_journey() -> None:
    for rank in plan(resolved(profile())).ranks:
        assert RankFile.from_json(rank.rank_file.to_json()) == rank.rank_file


def test_a_rank_file_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="this agent reads 1"):
        RankFile.from_json('{"schema": 2}')


def test_the_difference_names_what_changed_and_nothing_that_only_counts() -> None:
    old, new = plan(resolved(profile()), 3), plan(resolved(profile(engine__max_seqs=5)), 4)
    paths = {change.path.rpartition("/")[2] for change in changes(old, new)}
    assert all("generation" not in change.path and "/g" not in change.path for change in changes(old, new))
    assert paths
    assert {(change.before, change.after) for change in changes(old, new)} == {("6", "5")}


def test_no_old_plan_and_the_same_plan() -> None:
    one = plan(resolved(profile()))
    assert [str(change) for change in changes(None, one)] == ["+ deployment: deepseek-v4-flash (nothing runs yet)"]
    assert changes(one, one) == ()


def test_odd_strings_reach_the_container_byte_for_byte() -> None:
    env = {f"ODD_{index}": text for index, text in enumerate(ODD)}
    one = plan(resolved(profile(env=env)))
    argv = start(one, one.ranks[0].unit)
    for index, text in enumerate(ODD):
        assert f"ODD_{index}={text}" in argv
    # One shell, once: what the transport quotes is what arrives.
    line = f"printf '%s\\0' {shlex.join(argv)}"
    assert subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout.decode().split("\0")[:-1] == list(
        argv
    )


def test_free_arguments_keep_odd_values_apart_from_flags() -> None:
    assert free_args({"b": "-x y", "a": True, "c": False, "d": ["1", "2"], "e": "z"}) == (
        *("--a", "--b=-x y", "--no-c", "--d", "1", "2", "--e", "z"),
    )


def test_every_variable_of_the_profile_is_on_every_node() -> None:
    one = plan(
        resolved(profile(env={"HF_ENDPOINT": "http://mirror.example:8090", "REQUESTS_CA_BUNDLE": "/etc/ca.pem"}))
    )
    for rank in one.ranks:
        assert rank.unit.env["HF_ENDPOINT"] == "http://mirror.example:8090"
        assert rank.unit.env["REQUESTS_CA_BUNDLE"] == "/etc/ca.pem"


def test_network_variables_come_from_each_node_and_are_kept_from_being_copied() -> None:
    one = plan(resolved(profile()))
    hosts = [rank.unit.env["VLLM_HOST_IP"] for rank in one.ranks]
    assert hosts == ["192.168.100.11", "192.168.100.12"]
    (kept,) = {file.text for rank in one.ranks for file in rank.files}
    for name in ("VLLM_HOST_IP", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "VLLM_API_KEY"):
        assert name in json.loads(kept)
    assert all("NCCL_IB_GID_INDEX" not in rank.unit.env for rank in one.ranks)


def test_production_flags_stand_for_gb10_and_none_of_them_without_an_accelerator() -> None:
    one = plan(resolved(profile()))
    argv = start(one, one.ranks[0].unit)
    line = " ".join(argv)
    for words in (
        "--network host", "--gpus all", "--device /dev/infiniband", "--cap-add IPC_LOCK", "--ulimit memlock=-1:-1",
        "--restart unless-stopped",
    ):  # fmt: skip
        assert words in line
    assert "--privileged" not in argv
    gateway = " ".join(start(one, one.gateway.unit))
    for words in ("--gpus", "/dev/infiniband", "IPC_LOCK"):
        assert words not in gateway


def test_secrets_are_named_in_a_plan_and_never_shown() -> None:
    one = plan(resolved(profile()))
    baggage = phases.Baggage(b"agent", dict.fromkeys(NAMES, b"TOP-SECRET"), {})
    todo = phases.up(one, phases.Before(), baggage)
    puts = [action for phase in todo for action in phase.actions if isinstance(action, Put) and action.secret]
    assert {put.mode for put in puts} == {0o600}
    assert len(puts) == 2 * 3 + 2
    assert "TOP-SECRET" not in one.canonical() + repr(todo)
    assert all(
        "TOP-SECRET" not in " ".join(run.argv) for phase in todo for run in phase.actions if isinstance(run, Run)
    )


NAMES = ("agent-token", "engine-key", "ray-token", "client-keys", "gateway-engine-key")


def test_up_reads_as_sentences_and_keeps_the_old_generation_until_the_new_one_is_ready() -> None:
    old, new = plan(resolved(profile()), 3), plan(resolved(profile(engine__max_seqs=5)), 4)
    baggage = phases.Baggage(b"agent", dict.fromkeys(NAMES, b"x"), {})
    assert [phase.title for phase in phases.up(new, phases.Before(old), baggage)] == [
        "Bring the images to the nodes",
        "Bring the model to the nodes",
        "Write the agent, the rank files and the keys",
        "Let generation 3 finish what it answers",
        "Stop generation 3",
        "Hand the gateway to generation 4",
        "Start generation 4",
        "Wait until every gate of every rank is open",
        "Open the gateway",
        "Forget generation 3",
    ]


def test_a_start_is_undone_without_waiting_for_answers() -> None:
    new = plan(resolved(profile()), 4)
    baggage = phases.Baggage(b"agent", dict.fromkeys(NAMES, b"x"), {})
    (start_,) = [phase for phase in phases.up(new, phases.Before(), baggage) if phase.title == "Start generation 4"]
    graces = {action.argv[-1] for action in start_.undo if isinstance(action, Run)}
    assert new.ranks[0].unit.stop_grace_s > 100
    assert graces == {"10", "20"}


def test_a_generation_that_is_being_forgotten_is_forgotten_to_the_end() -> None:
    leftover, old, new = (plan(resolved(profile(engine__max_seqs=5 + n)), 2 + n) for n in range(3))
    baggage = phases.Baggage(b"agent", dict.fromkeys(NAMES, b"x"), {})
    todo = phases.up(new, phases.Before(old, (leftover,)), baggage)
    first, last = todo[-2:]
    assert [phase.title for phase in todo if phase.settles] == [first.title, last.title]
    assert first.undo == (*first.actions, *last.actions)
    assert last.undo == last.actions


def test_down_with_a_node_out_of_reach_keeps_the_record_on_the_others() -> None:
    one = plan(resolved(profile()))
    whole = phases.down(one, frozenset(one.nodes))
    part = phases.down(one, frozenset({"spark-1"}))
    assert {action.node for phase in part for action in phase.actions} == {"spark-1"}
    assert any("plan.json" in " ".join(action.argv) for action in part[-1].actions if isinstance(action, Run))
    assert not any("plan.json" in " ".join(action.argv) for action in whole[-1].actions if isinstance(action, Run))


def test_stopping_what_was_never_started_is_harmless(tmp_path: Path) -> None:
    """Without containers the agent's archive stops a unit; an ``up`` that was cut off may not have brought it."""
    one = plan(resolved(profile("tiny")))
    for how in (runtime.stop, runtime.remove):
        argv = how(one, one.units[0])
        assert subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def told(of: LaunchPlan) -> tuple[str, str, str]:
    """Where the engine listens, where the prober asks and where the gateway sends, as the plan says it to each."""
    argv = next(step.argv for step in of.ranks[0].rank_file.steps if step.name == "engine")
    haproxy = next(file.text for file in of.gateway.files if file.path.endswith("haproxy.cfg"))
    server = next(line.split()[2] for line in haproxy.splitlines() if line.strip().startswith("server rank-0"))
    return argv[argv.index("--host") + 1], of.ranks[0].rank_file.service.base_url, server


def test_the_engine_is_on_loopback_where_the_gateway_is_on_the_head() -> None:
    of = plan(resolved(profile()))
    assert told(of) == ("127.0.0.1", "http://127.0.0.1:8001", "127.0.0.1:8001")
    assert (8001, "engine", "127.0.0.1") in wanted_ports(of, "spark-1")
    assert [each for each in of.warnings if "without a key" in each] == []


@pytest.mark.parametrize(
    ("executor", "more"), [("ray", {("ray", 6379), ("ray_client", 10001)}), ("mp", {("rendezvous", 25000)})]
)
def test_every_port_that_will_be_listened_on_is_wanted(executor: Executor, more: set[tuple[str, int]]) -> None:
    """By ``ss`` on the head while it serves; the workers have the agent alone."""
    of = plan(resolved(profile(), executor=executor))
    head = {("agent", 7070), ("check", 7071), ("engine", 8001), ("gateway", 8000), ("gateway_metrics", 7072)}
    assert {(what, port) for port, what, _ in wanted_ports(of, "spark-1")} == head | more
    assert {(what, port) for port, what, _ in wanted_ports(of, "spark-2")} == {("agent", 7070)}


def test_an_engine_that_the_gateway_reaches_over_the_fabric_is_warned_of() -> None:
    apart = EXAMPLE.model_copy(update={"gateway": GatewayAt(node="spark-2")})
    of = plan(resolved(profile(), cluster=apart))
    head = of.ranks[0].address
    assert told(of) == (head, f"http://{head}:8001", f"{head}:8001")
    assert (8001, "engine", head) in wanted_ports(of, "spark-1")
    (warning,) = [each for each in of.warnings if "without a key" in each]
    assert warning.startswith(f"gateway/node spark-2: the engine listens on {head}:8001 of spark-1")


def test_an_engine_on_a_loopback_address_of_its_own_keeps_it() -> None:
    assert told(plan(resolved(profile("tiny"))))[0].startswith("127.")


def test_rays_longest_socket_fits_where_its_directory_lies_inside_the_scratch() -> None:
    of = resolved(profile("tiny"))
    facts = replace(assumed_facts(of.nodes[0]), uid=4294967294)
    scratch = seat(of, 0, facts, (1, "b" * 64)).scratch.removesuffix("0") + "63"
    session = "session_2026-11-30_10-38-18_123456_4194304"
    assert len(f"{scratch}/{RAY_DIRECTORY}/{session}/sockets/plasma_store") <= 107
    argv = plan(of).ranks[0].rank_file.steps[0].argv
    assert f"--temp-dir={plan(of).ranks[0].rank_file.scratch}/{RAY_DIRECTORY}" in argv
