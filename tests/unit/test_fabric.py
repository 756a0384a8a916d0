"""Measuring the fabric: sizes that freeze no box, an answer that is judged, and a result that grows old."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.plan import fabric
from orchestrator.plan.fabric import Measured
from orchestrator.verbs import fabric as verb
from orchestrator.verbs.fabric import Report
from tests.unit.builders import SHIPPED, plan, profile, resolved

EXPECTED = SHIPPED.machine("gb10").fabric_bytes_s
MP = resolved(profile(), executor="mp")


def measured(gb_s: float, backend: str = "nccl", right: bool = True) -> Measured:
    """Two ranks: half of the gathered bytes cross the wire to each."""
    return Measured(2, 2**30, 2**30 / 2 / (gb_s * 1e9), backend, right)


def test_a_rank_runs_in_its_own_container_with_its_own_network_and_no_restart() -> None:
    made = plan(MP)
    for rank in made.ranks:
        argv = fabric.command(made, rank, fabric.MOST_BYTES, 10, 25000)
        text = " ".join(argv)
        assert argv[:4] == ("docker", "run", "--rm", "--interactive")
        assert "--network host" in text
        assert "--gpus all" in text
        assert f"RANK={rank.rank}" in argv
        assert f"MASTER_ADDR={made.ranks[0].address}" in argv
        assert "NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0" in argv
        assert "--restart" not in argv
        assert "--detach" not in argv


@pytest.mark.parametrize("size", [0, fabric.MOST_BYTES + 1, 16 * 2**30])
def test_no_size_that_could_freeze_a_box(size: int) -> None:
    made = plan(MP)
    with pytest.raises(ValueError, match="size should be from 1 to 1073741824 bytes"):
        fabric.command(made, made.ranks[0], size, 1, 25000)


def test_the_answer_is_found_among_other_words() -> None:
    value = {"ranks": 2, "bytes": 1000, "seconds": 0.5, "backend": "nccl", "right": True}
    found = fabric.parse(f"NCCL INFO something\n{fabric.MARK}{json.dumps(value)}\nbye")
    assert found == Measured(2, 1000, 0.5, "nccl", True)
    assert found.bus_bytes_s == 1000
    assert fabric.parse("Traceback") is None


@pytest.mark.parametrize(
    ("seen", "topology", "expected"),
    [
        (measured(23.74), "direct", "pass"),  # both halves, MTU 9000
        (measured(18.94), "direct", "warn"),  # MTU 1500
        (measured(3.04), "switch", "warn"),
        (measured(12.0), "ring", "pass"),
        (measured(50.0, backend="gloo"), "direct", "unknown"),
        (measured(30.0), "loopback", "unknown"),
        (measured(30.0, right=False), "direct", "fail"),
    ],
)
def test_judgement_by_topology(seen: Measured, topology: str, expected: str) -> None:
    assert fabric.verdict(seen, EXPECTED, topology)[0] == expected


def test_a_profile_may_ask_for_a_recent_test_of_its_own_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asks = resolved(profile(fabric_test_days=7), executor="mp")
    now = time.time()
    assert verb.missing(MP, now) == ()
    (finding,) = verb.missing(asks, now)
    assert (finding.code, finding.observed) == ("FABRIC_TEST_MISSING", "none that passed")
    assert finding.remedy == "sparkctl fabric test deepseek-v4-flash --nodes 2"
    cluster = asks.cluster.name
    fresh = Report(now - 86400, cluster, ("spark-1", "spark-2"), 2**29, 23e9, "nccl", "pass", "23 GB/s")
    for report, left in (
        (replace(fresh, nodes=("spark-1", "spark-3")), 1),
        (replace(fresh, verdict="warn"), 1),
        (replace(fresh, at=now - 8 * 86400), 1),
        (fresh, 0),
    ):
        verb._remember(report)
        assert len(verb.missing(asks, now)) == left
    assert verb.reports(cluster)[-1] == fresh


def test_a_result_that_another_line_was_written_into_is_none() -> None:
    whole = '{"ranks": 2, "bytes": 8, "seconds": 2.0, "backend": "nccl", "right": true}'
    odd = ("", "{", "[]", "7", whole[:-9], whole.replace("2.0", "0"), whole.replace("2.0", '"x"'))
    for said in odd:
        assert fabric.parse(f"{fabric.MARK}{said}\n") is None
        assert fabric.parse(f"{fabric.MARK}{said}\n{fabric.MARK}{whole}\n") == Measured(2, 8, 2.0, "nccl", True)
