"""What the nodes' answers say of a deployment: the plan that runs, the record of events, and where the two part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.facts.node import NodeFacts, Unit
from orchestrator.plan.events import Event
from orchestrator.plan.launch import LaunchPlan
from orchestrator.spec.cluster import Node, Rail, Ssh
from orchestrator.verbs.errors import VerbError
from orchestrator.verbs.running import running
from orchestrator.verbs.world import stands_on
from tests.unit.builders import facts, plan, profile, resolved

MP = resolved(profile(), executor="mp")
PLAN = plan(MP, 2)
SERVES_1 = Event("generation-ready", 10.0, generation=1)
SERVES_2 = Event("generation-ready", 20.0, generation=2)
FAILED_3 = Event("action-failed", 30.0, "Start the ranks", "spark-2", "no space left on device", 3)


def units(of: LaunchPlan, node: str) -> Iterator[Unit]:
    for unit in of.units:
        if unit.node == node:
            yield Unit(unit.name, of.deployment, of.generation, unit.rank, of.digest, running=True)


def nodes(*events: Event) -> dict[str, NodeFacts]:
    """Both nodes run all of ``PLAN``; the head's log holds ``events``."""
    found = {
        name: replace(node, units=tuple(units(PLAN, name)), plans=(PLAN.canonical(),))
        for name, node in facts(MP).items()
    }
    found[PLAN.head] = replace(found[PLAN.head], events=tuple(event.to_json() for event in events))
    return found


def test_the_record_and_the_nodes_agree() -> None:
    now = running(nodes(SERVES_1, SERVES_2), PLAN.deployment)
    assert (now.plan, now.differs, now.unrecorded) == (PLAN, (), ())
    assert (now.recorded.stage, now.recorded.serving, now.recorded.at) == ("ready", 2, 20.0)


def test_a_record_of_another_generation_is_told_and_is_no_reason_to_restart() -> None:
    now = running(nodes(SERVES_1), PLAN.deployment)
    assert now.unrecorded == ("spark-1: generation 1 serves by the record, found generation 2",)
    assert now.differs == ()


def test_no_record_contradicts_nothing() -> None:
    now = running(nodes(), PLAN.deployment)
    assert (now.unrecorded, now.recorded.stage) == ((), "nothing")


def test_an_update_that_failed_is_remembered_while_the_old_one_serves() -> None:
    now = running(nodes(SERVES_2, FAILED_3), PLAN.deployment)
    assert (now.recorded.stage, now.recorded.serving, now.unrecorded) == ("failed", 2, ())
    assert now.recorded.failure is not None
    assert (now.recorded.failure.node, now.recorded.failure.says) == ("spark-2", "no space left on device")


def test_a_stopped_unit_and_a_silent_node_differ() -> None:
    seen = nodes(SERVES_2)
    silent = running({PLAN.head: seen[PLAN.head]}, PLAN.deployment)
    assert any("spark-2: UNKNOWN" in line for line in silent.differs)
    gone = running({**seen, "spark-2": replace(seen["spark-2"], units=())}, PLAN.deployment)
    assert any(line.startswith("spark-2:") and "absent" in line for line in gone.differs)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"192.168.100.11"}, True),  # by a rail
        ({"10.0.0.5"}, True),  # by the address that SSH would use
        ({"spark-1.local"}, False),
        ({"laptop", "10.0.0.9"}, False),
        ({"127.0.0.1"}, False),  # every machine has that one
    ],
)
def test_an_operator_stands_on_a_node_by_its_addresses(own: set[str], expected: bool) -> None:
    rails = (Rail(netdev="enp1s0f0np0", address="192.168.100.11"), Rail(netdev="lo", address="127.0.0.1"))
    node = Node(name="spark-1", ssh=Ssh(host="10.0.0.5"), rails=rails)
    assert stands_on(node, frozenset(own)) is expected


def test_units_of_another_deployment_are_not_ours() -> None:
    strange = Unit("sparkctl-other-g7-rank-1", "other", 7, "1", "sha256:x", running=True)
    seen = nodes(SERVES_2)
    now = running({**seen, "spark-2": replace(seen["spark-2"], units=(strange,))}, PLAN.deployment)
    assert now.newest_generation == 2
    assert any(line.startswith("spark-2:") and "absent" in line for line in now.differs)


@pytest.mark.parametrize("record", ['{"schema": 99}', '{"deployment": "tiny"', "{}"])
def test_a_record_of_another_version_is_told_and_not_ignored(record: str) -> None:
    seen = nodes(SERVES_2)
    with pytest.raises(VerbError, match="spark-2: the plan stored there is of another version"):
        running({**seen, "spark-2": replace(seen["spark-2"], plans=(record,))}, PLAN.deployment)
