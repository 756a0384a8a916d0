"""What a diagnosis says: the numbers and names of the line, no hole where it has none, and no secret."""

from __future__ import annotations

import re

import pytest

from orchestrator.doctor.diagnose import diagnose, explain
from orchestrator.doctor.incident import Diagnosis, Log
from tests.unit.builders import SHIPPED
from tests.unit.logbook import cases

TABLE = SHIPPED.signatures()


def diagnosed(*lines: str) -> Diagnosis:
    return diagnose((Log("one.log", lines),), TABLE)


def said(*lines: str) -> str:
    found = diagnosed(*lines)
    assert found.cause
    return f"{found.cause.says} | {found.cause.remedy}"


def by_id(name: str) -> tuple[str, ...]:
    return next(case.lines for case in cases() if case.id == name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ray-ip-01", ["192.0.2.21", "VLLM_HOST_IP", "SPREAD"]),
        ("ray-ip-02", ["192.0.2.40 is the odd one", "each container's own environment"]),
        ("ray-ver-01", ["2.43.0", "2.44.1", "down --purge", "no effect"]),
        ("ray-hb-01", ["10.0.0.2", "all ranks together"]),
        ("dp-gloo-01", ["1800 s"]),
        ("nccl-12-mid", ["10.0.0.2", "localGid ::ffff:10.0.0.1", "remoteGid ::ffff:10.0.0.2"]),
        ("wedge-01", ["rank 1", "600 s", "_ALLGATHER_BASE"]),
        ("c10d-01", ["172.17.0.9", "docker-bridge"]),
        ("mem-free-01", ["0.82", "drop the page cache"]),
        ("mem-rm-01", ["severity=critical", "expandable_segments:False"]),
        ("worker-died-01", ["rank 2"]),
        ("freeze-01", ["phase=nccl-init"]),
        ("route-01", ["10.0.0.4", "113"]),
    ],
)
def test_captures_reach_the_words(name: str, words: list[str]) -> None:
    text = said(*by_id(name))
    assert [word for word in words if word not in text] == []


def test_a_link_local_gid_is_pointed_out() -> None:
    line = by_id("nccl-12-mid")[0].replace("::ffff:10.0.0.1", "fe80::1")
    assert "LINK_LOCAL_GID" in said(line)


def test_what_a_line_does_not_say_leaves_no_hole() -> None:
    for entry in TABLE.signatures:
        found = explain(entry.examples[0], TABLE)
        text = f"{found.says} {found.remedy}" if found else ""
        assert not re.search(r"\{\w+\}|\(\)|  | [,;.]", text), text


def test_an_nccl_line_names_its_machine() -> None:
    found = diagnosed(*by_id("ifname-01"))
    assert found.cause
    assert found.cause.witnesses[0].node == "node-b"


def test_a_witness_shows_no_secret() -> None:
    found = diagnosed("OSError: [Errno 28] No space left on device, api_key='sk-TESTONLY456' hf_TESTONLY123")
    assert found.cause
    assert "TESTONLY" not in found.cause.witnesses[0].text
