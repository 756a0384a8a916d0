"""What the nodes' answers say of a deployment: the plan that runs, the record of events, and where the two part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.facts.node import NodeFacts, Unit
from orchestrator.plan.events import Event
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.rankfile import RankStatus
from orchestrator.spec.cluster import Node, Rail, Ssh
from orchestrator.verbs.names import recorded
from orchestrator.verbs.running import running
from orchestrator.verbs.world import haproxy, stands_on
from tests.unit.builders import facts, plan, profile, resolved

MP = resolved(profile(), executor="mp")
PLAN = plan(MP, 2)
STATUS = RankStatus(
    *(PLAN.deployment, 2, PLAN.digest, 0, "spark-1", "one", "running", 1, "serving", True),
    *((), {}, {}, (), "", 1000.0),
)
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
    now = running(nodes(SERVES_1, SERVES_2), PLAN.deployment, "switch")
    assert (now.plan, now.differs, now.unrecorded) == (PLAN, (), ())
    assert (now.recorded.stage, now.recorded.serving, now.recorded.at) == ("ready", 2, 20.0)


def test_a_record_of_another_generation_is_told_and_is_no_reason_to_restart() -> None:
    now = running(nodes(SERVES_1), PLAN.deployment, "switch")
    assert now.unrecorded == ("spark-1: generation 1 serves by the record, found generation 2",)
    assert now.differs == ()


def test_no_record_contradicts_nothing() -> None:
    now = running(nodes(), PLAN.deployment, "switch")
    assert (now.unrecorded, now.recorded.stage) == ((), "nothing")


def test_an_update_that_failed_is_remembered_while_the_old_one_serves() -> None:
    now = running(nodes(SERVES_2, FAILED_3), PLAN.deployment, "switch")
    assert (now.recorded.stage, now.recorded.serving, now.unrecorded) == ("failed", 2, ())
    assert now.recorded.failure is not None
    assert (now.recorded.failure.node, now.recorded.failure.says) == ("spark-2", "no space left on device")


def test_a_generation_of_files_alone_keeps_its_number() -> None:
    """An ``up`` that was killed before it started anything: the next one removes it, and itself under no such name."""
    seen, left = nodes(SERVES_2), plan(MP, 3)
    seen["spark-2"] = replace(seen["spark-2"], plans=(PLAN.canonical(), left.canonical()))
    now = running(seen, PLAN.deployment, "switch")
    assert (now.plan, now.others, now.newest_generation) == (PLAN, (left,), 3)
    root = left.state["spark-2"].rpartition("/")[0]
    torn = (f"{root}/{PLAN.deployment}/g4", f"{root}/{PLAN.deployment}-2/g7", f"{root}/{PLAN.deployment}/gx")
    seen["spark-2"] = replace(seen["spark-2"], generations=torn)
    assert running(seen, PLAN.deployment, "switch").newest_generation == 4


def test_a_stopped_unit_and_a_silent_node_differ() -> None:
    seen = nodes(SERVES_2)
    silent = running({PLAN.head: seen[PLAN.head]}, PLAN.deployment, "switch")
    assert any("spark-2: UNKNOWN" in line for line in silent.differs)
    gone = running({**seen, "spark-2": replace(seen["spark-2"], units=())}, PLAN.deployment, "switch")
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
    now = running({**seen, "spark-2": replace(seen["spark-2"], units=(strange,))}, PLAN.deployment, "switch")
    assert now.newest_generation == 2
    assert any(line.startswith("spark-2:") and "absent" in line for line in now.differs)


@pytest.mark.parametrize("record", ['{"schema": 99}', '{"deployment": "tiny"', "{}"])
def test_a_record_of_another_version_is_told_and_not_ignored(record: str) -> None:
    seen = {name: replace(node, plans=(record,)) for name, node in nodes(SERVES_2).items()}
    now = running(seen, PLAN.deployment, "switch")
    assert now.plan is None
    assert now.unreadable[0].startswith("spark-1: the plan stored there is not believed: damaged, or of")
    assert now.lost
    assert "spark-2: sparkctl-deepseek-v4-flash-g2-rank-1 of generation 2 runs" in now.remains


def test_a_torn_record_on_one_node_does_not_hide_the_whole_one_on_another() -> None:
    seen = nodes(SERVES_2)
    torn = replace(seen["spark-2"], plans=(PLAN.canonical()[:-200],))
    now = running({**seen, "spark-2": torn}, PLAN.deployment, "switch")
    assert (now.plan, now.lost, now.remains) == (PLAN, False, ())
    assert len(now.unreadable) == 1


def test_units_without_any_record_are_not_nothing() -> None:
    now = running({name: replace(node, plans=()) for name, node in nodes().items()}, PLAN.deployment, "switch")
    assert (now.plan, now.lost, now.unreadable) == (None, True, ())
    assert recorded(nodes()) == [PLAN.deployment]


def test_an_empty_generation_directory_alone_is_no_deployment_and_one_with_files_is() -> None:
    (node, *_) = facts(MP).values()
    assert not running({node.node: node}, "tiny", "switch").lost
    with_files = replace(node, generations=(f"{node.home}/.local/state/sparkctl/tiny/g1",))
    assert running({node.node: with_files}, "tiny", "switch").remains == (
        "spark-1: no units, found files in /home/spark/.local/state/sparkctl/tiny",
    )


@pytest.mark.parametrize(
    "change",
    [{"written_at": 1e308}, {"written_at": "now"}, {"rank": [0]}, {"history": 1}, {"gates": None}, {"state": "happy"}],
)
def test_a_status_that_no_agent_wrote_is_no_status(change: dict[str, object]) -> None:
    value = {**json.loads(STATUS.to_json()), **change}
    seen = nodes(SERVES_2)
    line = json.dumps(value)
    assert (
        running({**seen, "spark-1": replace(seen["spark-1"], statuses=(line,))}, PLAN.deployment, "switch").statuses
        == {}
    )


@pytest.mark.parametrize(
    ("now_s", "runs", "last"), [(1005.0, True, {}), (1040.0, True, {0: 40.0}), (1005.0, False, {0: 5.0})]
)
def test_the_status_of_a_rank_that_is_gone_is_only_its_last_word(
    now_s: float, runs: bool, last: dict[int, float]
) -> None:
    seen = nodes(SERVES_2)
    head = replace(
        seen["spark-1"],
        now=now_s,
        statuses=(STATUS.to_json(),),
        units=tuple(replace(unit, running=runs) for unit in seen["spark-1"].units),
    )
    assert running({**seen, "spark-1": head}, PLAN.deployment, "switch").last_words == last


def test_the_haproxy_beside_this_python_is_found_whatever_path_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without root it is unpacked into the environment; a later call without that in its PATH must find the same."""
    own = tmp_path / "bin" / "haproxy"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(own.with_name("python")))
    monkeypatch.setenv("PATH", "/usr/bin:/usr/sbin")
    assert haproxy() == str(own)
