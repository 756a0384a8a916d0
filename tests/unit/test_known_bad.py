"""Versions against bounds, and which entries of the table a stack or a node meets."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.plan.known_bad import GB10, holds, met, of_stack
from orchestrator.spec.pins import KnownBadTable
from tests.unit.builders import SHIPPED


@pytest.mark.parametrize(
    ("bound", "version", "expected"),
    [
        ("<2.29.3", "2.29.2", True),
        ("<2.29.3", "2.9.9", True),
        ("<2.29.3", "2.29.3", False),
        ("<2.29.3", "2.30.7+cuda13.0", False),
        ("<2.29.3", "2.29.3-1", False),
        (">=7.0", "7.0.0-1012-nvidia", True),
        (">=7.0", "6.17.0-1008-nvidia", False),
        ("==0.28.0", "0.28", True),
        ("!=0.28.0", "0.28.1", True),
        ("<0.28.0", "0.28.0rc1", True),
        ("<=580.95.05", "580.95.05", True),
        (">580.95.05", "580.126.09", True),
        ("==2.13.0", "2.13.0+cu130", True),
    ],
)
def test_bounds(bound: str, version: str, expected: bool) -> None:
    assert holds(bound, version) is expected


def test_a_bound_without_an_operator_is_an_error() -> None:
    with pytest.raises(ValueError, match="such as <2"):
        holds("2.29.3", "2.29.3")


def table(**changes: Any) -> KnownBadTable:
    entry = {
        "code": "NCCL_OLD",
        "part": "nccl",
        "versions": ["<2.29.3"],
        "where": {"arch": "aarch64"},
        "verdict": "fail",
        "what": "w",
        "remedy": "r",
        "sources": ["s"],
    }
    return KnownBadTable.model_validate({"combinations": [{**entry, **changes}]}, strict=False)


def test_an_entry_is_met_only_by_what_was_seen() -> None:
    here = {"arch": "aarch64"}
    assert [each.code for each in met(table(), {"nccl": "2.28.9"}, here)] == ["NCCL_OLD"]
    assert met(table(), {"nccl": "2.30.7"}, here) == ()
    assert met(table(), {"ray": "2.28.9"}, here) == ()
    assert met(table(), {"nccl": "2.28.9"}, {"arch": "x86_64"}) == ()
    assert met(table(), {"nccl": "2.28.9"}, {}) == ()
    assert met(table(versions=[]), {"nccl": "9"}, here) != ()


def test_a_stack_states_versions_in_two_places() -> None:
    found = of_stack(SHIPPED.stack("anemll-0-1-1"))
    assert (found["flashinfer"], found["torch"], found["cuda"]) == ("0.6.15", "2.11.0+cu130", "13.0.2")
    assert "vllm-source" not in found


def test_no_profile_that_ships_is_pinned_to_a_stack_that_is_known_to_fail() -> None:
    table = SHIPPED.known_bad()
    assert table.combinations
    for name in SHIPPED.names("profile"):
        for stack in SHIPPED.profile(name).stack.values():
            found = met(table, of_stack(SHIPPED.stack(stack)), GB10)
            assert [each.code for each in found if each.verdict == "fail"] == [], f"{name} {stack}"


def test_the_table_knows_what_cost_owners_days() -> None:
    found = {each.code for each in met(SHIPPED.known_bad(), {"nccl": "2.28.9", "kernel": "7.0.0-1019-nvidia"}, GB10)}
    assert {"NCCL_PROXY_HANG", "KERNEL_RDMA_REGISTRATION"} <= found
    assert met(SHIPPED.known_bad(), {"nccl": "2.30.7", "kernel": "6.17.0-1008-nvidia"}, GB10) == ()
