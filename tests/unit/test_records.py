"""A plan that lies on a node is acted on only when it is what was written there, for these very nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.plan.launch import LaunchPlan, identity_of
from orchestrator.plan.load import plan_from_json
from orchestrator.plan.resolved import Resolved
from orchestrator.verbs.records import disbelief
from orchestrator.verbs.running import running
from tests.unit.builders import SHIPPED, facts, plan, profile, resolved

DOCKER = resolved(profile(), 2, "mp")
PROCESS = resolved(profile("tiny"), 2, "ray")


def unit(of: LaunchPlan, **changes: object) -> LaunchPlan:
    first, *rest = of.ranks
    return replace(of, ranks=(replace(first, unit=replace(first.unit, **changes)), *rest))  # type: ignore[arg-type]


def signed(of: LaunchPlan) -> LaunchPlan:
    """Whoever can write the file can write its digest too."""
    digest = identity_of(of)
    ranks = tuple(replace(each, rank_file=replace(each.rank_file, plan_digest=digest)) for each in of.ranks)
    return replace(of, digest=digest, ranks=ranks)


def seen_by(of: LaunchPlan) -> LaunchPlan:
    return plan_from_json(of.canonical())


@pytest.mark.parametrize("name", SHIPPED.names())
@pytest.mark.parametrize("generation", [1, 2, 37])
def test_every_shipped_profile_makes_a_record_that_is_believed(name: str, generation: int) -> None:
    for executor in profile(name).stack:
        of = resolved(profile(name), executor=executor)
        assert disbelief(seen_by(plan(of, generation)), of.deployment, facts(of)) == ""


def test_a_record_is_believed_where_another_node_is_silent() -> None:
    head, *_ = facts(DOCKER).values()
    assert disbelief(plan(DOCKER), DOCKER.deployment, {head.node: head}) == ""


CHANGES: dict[str, tuple[Callable[[LaunchPlan], LaunchPlan], str]] = {
    "another deployment": (lambda of: replace(of, deployment="other"), "its deployment should be"),
    "no generation": (lambda of: replace(of, generation=0), "should have a generation"),
    "no ranks": (lambda of: replace(of, ranks=()), "should have a generation and ranks"),
    "an agent elsewhere": (lambda of: replace(of, agent_sha256="../../evil"), "named by a sha256"),
    "a state directory elsewhere": (lambda of: replace(of, state=dict.fromkeys(of.state, "/home/spark")), "should be"),
    "no state directory": (lambda of: replace(of, state={}), "should be on a node of the plan"),
    "a directory elsewhere": (lambda of: unit(of, directory="/home/spark"), "the directory of rank-0 should be"),
    "a directory out of it": (lambda of: unit(of, directory=f"{of.ranks[0].unit.directory}/../.."), "should be"),
    "another name": (lambda of: unit(of, name="postgres"), "rank-0 should be called sparkctl-"),
    "another node": (lambda of: unit(of, node="elsewhere"), "should be on a node of the plan"),
    "a temporary directory elsewhere": (lambda of: unit(of, scratch="/home/spark"), "the temporary directory"),
}


@pytest.mark.parametrize("which", [DOCKER, PROCESS], ids=["docker", "process"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_record_that_leads_elsewhere_is_not_believed(which: Resolved, change: str) -> None:
    how, says = CHANGES[change]
    assert disbelief(how(plan(which)), which.deployment, facts(which))
    assert says in disbelief(signed(how(plan(which))), which.deployment, facts(which))


@pytest.mark.parametrize(
    "argv", [("/tmp/evil", "x", "run"), ("python3", "/tmp/evil.pyz", "run", "x"), ()], ids=["program", "agent", "none"]
)
def test_a_process_runs_only_the_nodes_own_programs(argv: tuple[str, ...]) -> None:
    changed = signed(unit(plan(PROCESS), argv=argv))
    assert "rank-0 should run" in disbelief(changed, PROCESS.deployment, facts(PROCESS))
    gateway = plan(PROCESS).gateway
    changed = replace(plan(PROCESS), gateway=replace(gateway, unit=replace(gateway.unit, argv=("/tmp/haproxy",))))
    assert "gateway should run haproxy" in disbelief(signed(changed), PROCESS.deployment, facts(PROCESS))


def test_a_container_that_became_a_process_is_not_believed() -> None:
    changed = signed(unit(plan(DOCKER), container=None))
    assert "should run as the runtime docker says" in disbelief(changed, DOCKER.deployment, facts(DOCKER))


def test_any_other_change_is_seen_by_the_digest() -> None:
    changed = replace(plan(DOCKER), served_name="another")
    assert "its digest does not fit" in disbelief(changed, DOCKER.deployment, facts(DOCKER))


def test_a_record_for_another_home_is_not_believed() -> None:
    moved = facts(DOCKER, home="/home/somebody")
    assert "its state directory on spark-1 should be /home/somebody/" in disbelief(
        plan(DOCKER), DOCKER.deployment, moved
    )


def test_what_is_not_believed_is_told_and_nothing_comes_of_it() -> None:
    edited = replace(plan(DOCKER), served_name="another").canonical()
    seen = {name: replace(node, plans=(edited,)) for name, node in facts(DOCKER).items()}
    now = running(seen, DOCKER.deployment, "switch")
    assert now.plan is None
    assert now.unreadable[0] == (
        "spark-1: the plan stored there is not believed: it was changed after it was written: its digest does not fit"
    )
