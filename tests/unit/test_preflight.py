"""Preflight refuses what cannot work, and says nothing about a healthy pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.doctor.preflight import findings
from orchestrator.facts.node import Container, Listener, Unit
from orchestrator.plan.build import build
from orchestrator.plan.launch import LaunchPlan
from tests.unit.builders import OPERATOR, facts, plan, profile, resolved

MP = resolved(profile(), executor="mp")


def codes(of: LaunchPlan = plan(MP), ours: tuple[LaunchPlan, ...] = (), **changes: Any) -> list[tuple[str, str]]:  # noqa: B008
    healthy = facts(MP)
    nodes = {**healthy, "spark-2": replace(healthy["spark-2"], **changes)}
    return [(finding.code, finding.node) for finding in findings(of, nodes, ours)]


def test_a_healthy_pair_has_no_finding() -> None:
    assert codes() == []


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        ("sh: 1: docker: not found", "DOCKER_ABSENT"),
        ("permission denied while trying to connect to the Docker daemon socket", "DOCKER_NO_RIGHTS"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock", "DOCKER_DOWN"),
    ],
)
def test_docker_that_does_not_answer(problem: str, code: str) -> None:
    assert codes(docker=None, docker_problem=problem) == [(code, "spark-2")]
    node = replace(facts(MP)["spark-2"], docker=None, docker_problem=problem)
    (found,) = findings(plan(MP), {**facts(MP), "spark-2": node}, ())
    assert found.remedy.startswith("on spark-2: sudo ")


def test_a_taken_port_names_its_owner() -> None:
    taken = Listener("0.0.0.0", 7070, "python3 (pid 4711)")
    (finding,) = findings(plan(MP), {**facts(MP), "spark-1": replace(facts(MP)["spark-1"], listeners=(taken,))}, ())
    assert (finding.code, finding.node) == ("PORT_TAKEN", "spark-1")
    assert "port 7070 (agent) taken by python3 (pid 4711)" in finding.observed


@pytest.mark.parametrize(
    ("owner", "others", "who", "command"),
    [
        ("", (Container("1", "ollama", "ollama/ollama", frozenset({7070})),), "container ollama", "docker stop ollama"),
        ("", (Container("1", "engine", "x/vllm", on_host=True),), "perhaps of container engine", "sudo ss -ltnp"),
        ("", (), "a process of another user on", "sudo ss -ltnp 'sport = :7070'"),
        ("python3 (pid 4711)", (), "python3 (pid 4711)", "ps -o user,lstart,args -p 4711"),
    ],
)
def test_a_port_of_a_stranger_has_a_command(owner: str, others: tuple[Container, ...], who: str, command: str) -> None:
    node = replace(facts(MP)["spark-1"], listeners=(Listener("0.0.0.0", 7070, owner),), others=others)
    (finding,) = findings(plan(MP), {**facts(MP), "spark-1": node}, ())
    assert who in finding.observed
    assert finding.remedy.startswith(f"on spark-1: {command}")


def test_a_port_on_another_address_is_no_conflict() -> None:
    assert codes(listeners=(Listener("127.0.0.1", 7070, "x (pid 1)"),)) == []


def test_ports_of_the_generation_that_runs_are_ours() -> None:
    old = plan(MP)
    taken = (Listener("192.168.100.12", 7070, ""),)
    assert codes(plan(MP, 2), (old,), listeners=taken) == []
    assert codes(plan(MP, 2), (), listeners=taken) == [("PORT_TAKEN", "spark-2")]


def test_a_container_of_ours_that_no_record_explains() -> None:
    stray = Unit("sparkctl-other-g1-rank-0", "other", 1, "0", "sha256:x", running=True)
    assert codes(units=(stray,)) == [("NODE_IN_USE", "spark-2")]


def test_an_image_without_a_digest_is_refused() -> None:
    ray = resolved(profile())
    found = findings(build(ray, facts(ray), OPERATOR, 1), facts(ray), ())
    assert [finding.code for finding in found] == ["IMAGE_DIGEST_UNKNOWN"]


TINY = resolved(profile("tiny"))


def tiny_codes(**changes: Any) -> list[tuple[str, str, str]]:
    nodes = facts(TINY, docker=None, arch="x86_64", python="/venv/bin/python", **changes)
    return [(each.code, each.node, each.observed) for each in findings(build(TINY, nodes, OPERATOR, 1), nodes, ())]


def test_what_runs_without_containers_must_be_installed() -> None:
    assert tiny_codes(programs=frozenset({"ray", "vllm", "haproxy"})) == []
    assert tiny_codes() == []  # nobody looked
    assert tiny_codes(programs=frozenset({"vllm"})) == [
        ("PROGRAM_ABSENT", "node-a", "no haproxy"),
        ("PROGRAM_ABSENT", "node-a", "no ray beside /venv/bin/python"),
        ("PROGRAM_ABSENT", "node-b", "no ray beside /venv/bin/python"),
    ]


def test_another_deployment_on_this_machine_is_one_finding_and_not_six_ports() -> None:
    units = tuple(Unit(f"rank-{rank}", "tiny", 1, str(rank), "", running=True) for rank in range(2))
    taken = (Listener("127.0.0.2", 7070, "python (pid 12526)"), Listener("127.0.0.2", 6379, "gcs_server (pid 1)"))
    other = resolved(profile("tiny"), name="other")
    nodes = facts(other, docker=None, units=units, listeners=taken)
    found = findings(build(other, nodes, OPERATOR, 1), nodes, ())
    assert {(each.code, each.remedy) for each in found} == {("NODE_IN_USE", "sparkctl down tiny")}
    assert len(found) == 2  # one a node
