"""Waivers, the page of codes, and the verb as a person meets it: grouped, with a remedy, and its exit codes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.doctor.catalogue import codes, names
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.rules import fast
from orchestrator.doctor.waive import problems, waived
from orchestrator.facts.detail import NodeDetail
from orchestrator.facts.reach import Ping
from orchestrator.plan.events import Event
from orchestrator.run.transport import DeadlineExceeded, Result
from orchestrator.spec.cluster import Rail
from orchestrator.verbs import details, doctor
from orchestrator.verbs.errors import RefusedError
from orchestrator.verbs.running import running
from orchestrator.verbs.up import View, _refuse_impossible, _tell_waived
from orchestrator.verbs.world import Answers
from tests.unit.builders import SHIPPED
from tests.unit.codes_page import PAGE, page
from tests.unit.patients import fabric, quiet, said, sight, spark

ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """sparkctl in an empty folder and an empty home."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKCTL_"))}
    own |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""}
    argv = [sys.executable, "-m", "orchestrator.cli", *words]
    done = subprocess.run(argv, cwd=tmp_path, env=own, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def write(tmp_path: Path, env: str = "", **changes: Any) -> None:
    """A profile ``mine``: the shipped ``tiny`` with a line more in its env, and top-level lines added."""
    text = (ROOT / "profiles" / "tiny.yaml").read_text().replace("name: tiny", "name: mine")
    text = text.replace("\nenv:\n", f"\nenv:\n{env}")
    (tmp_path / "profiles").mkdir()
    more = "\n".join(f"{key}: {json.dumps(value)}" for key, value in changes.items())
    (tmp_path / "profiles" / "mine.yaml").write_text(f"{text}\n{more}\n")


# --- waivers


def test_a_waived_fail_is_a_warning_that_names_the_reason() -> None:
    env = {"NCCL_ALGO": ""}
    (plain,) = said(sight(spark(quiet(env=env))))
    assert (plain.verdict, plain.code) == ("fail", "EMPTY_NCCL_VALUE")
    (found,) = said(sight(spark(quiet(env=env, waivers={"EMPTY_NCCL_VALUE": "our NCCL reads it as unset"}))))
    assert found.verdict == "warn"
    assert "our NCCL reads it as unset" in found.observed


def test_a_waiver_touches_no_other_code_and_no_other_verdict() -> None:
    found = (Finding("A", "n", "o", "e", "r"), Finding("B", "n", "o", "e", "r", verdict="unknown"))
    assert waived(found, {"B": "because", "C": "because"}) == found


def test_a_waiver_of_a_code_that_does_not_exist_names_the_nearest() -> None:
    (problem,) = problems(quiet(waivers={"HALF_PORT": "x"}), SHIPPED.known_bad())
    assert "waivers/HALF_PORT" in problem
    assert "did you mean HALF_PORT_ONLY?" in problem
    assert problems(quiet(waivers={"NCCL_TWO_BUILDS": "x", "MTU_1500": "y"}), SHIPPED.known_bad()) == ()


def test_an_image_without_a_digest_cannot_be_waived() -> None:
    (problem,) = problems(quiet(waivers={"IMAGE_DIGEST_UNKNOWN": "x"}), SHIPPED.known_bad())
    assert "can be waived" in problem


def test_waivers_in_a_file_are_read_and_checked(tmp_path: Path) -> None:
    write(tmp_path, waivers={"PORT_TAKE": "x"})
    for words in (("doctor", "mine"), ("plan", "mine"), ("up", "mine")):
        done = run(tmp_path, *words)
        assert done.returncode == 2
        assert "did you mean PORT_TAKEN?" in done.stderr


@pytest.mark.parametrize("waivers", [{"not a code": "x"}, {"MTU_1500": ""}])
def test_a_waiver_that_is_none(tmp_path: Path, waivers: dict[str, str]) -> None:
    write(tmp_path, waivers=waivers)
    done = run(tmp_path, "plan", "mine")
    assert done.returncode == 2
    assert "profiles/mine.yaml waivers" in done.stderr


def test_up_says_what_it_passes_over() -> None:
    of = spark(quiet(env={"NCCL_ALGO": ""}, waivers={"EMPTY_NCCL_VALUE": "tested"}))
    seen, told = sight(of), list[Event]()
    assert seen.plan is not None
    view = View(seen.plan, running({}, of.deployment, "switch"), seen.facts, fast(seen))
    stage: Any = SimpleNamespace(chosen=SimpleNamespace(resolved=of), sink=told.append)
    _refuse_impossible(view)
    _tell_waived(stage, view)
    assert [each.says for each in told] == [
        "waived: should be a value, or no variable at all, found NCCL_ALGO (waived: tested) [EMPTY_NCCL_VALUE]"
    ]
    bad = spark(quiet(env={"NCCL_ALGO": ""}))
    with pytest.raises(RefusedError, match="EMPTY_NCCL_VALUE"):
        _refuse_impossible(replace(view, findings=fast(sight(bad))))


# --- the page


def test_the_page_of_codes_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_code_says_what_is_expected_why_and_what_to_do() -> None:
    assert all(each.expected and each.why and each.remedy for each in codes().values())
    assert {each.code for each in said(sight(spark(quiet(shm_bytes=2**40))))} <= names(SHIPPED.known_bad())


# --- the verb


def test_this_machine_without_a_cluster_file(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor")
    assert done.returncode == 0
    assert "this machine" in done.stdout
    assert "0 fail" in done.stdout


def test_silent_nodes_are_unknown_and_every_one_has_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rows = [
        f"  - {{name: {name}, ssh: {{host: 127.0.0.1, user: nobody, port: {port}}}, "
        f"rails: [{{netdev: eth0, address: 198.51.100.{number}}}]}}"
        for number, name in enumerate(("a", "b"), 1)
    ]
    (tmp_path / "cluster.yaml").write_text("nodes:\n" + "\n".join(rows) + "\n")
    done = run(tmp_path, "doctor")
    assert done.returncode == 1
    assert done.stdout.count("unknown SSH_UNREACHABLE: ") == 2
    assert done.stdout.count(f"-> ssh -v -p {port} nobody@127.0.0.1 true") == 2
    value = json.loads(run(tmp_path, "doctor", "--json").stdout)
    assert sorted(value["silent"]) == ["a", "b"]
    assert value["counts"]["fail"] == 0
    assert {each["verdict"] for each in value["findings"]} <= {"unknown", "pass"}


def test_a_fail_has_a_remedy_and_exit_code_5_until_it_is_waived(tmp_path: Path) -> None:
    write(tmp_path, env="  NCCL_ALGO: ''\n")
    done = run(tmp_path, "doctor", "mine")
    assert done.returncode == 5
    assert "fail    EMPTY_NCCL_VALUE: " in done.stdout
    assert "NCCL_ALGO" in done.stdout
    assert "->" in done.stdout
    refused = run(tmp_path, "up", "mine")
    assert refused.returncode == 5
    assert "EMPTY_NCCL_VALUE" in refused.stderr
    text = (tmp_path / "profiles" / "mine.yaml").read_text()
    (tmp_path / "profiles" / "mine.yaml").write_text(text + 'waivers: {EMPTY_NCCL_VALUE: "it is a word for tests"}\n')
    again = run(tmp_path, "doctor", "mine", "--all")
    assert again.returncode in {0, 5}  # 5 only where this machine lacks a program
    assert "warn    EMPTY_NCCL_VALUE" in again.stdout
    assert "it is a word for tests" in again.stdout
    assert "pass    RAY_OPEN" in again.stdout


# --- asking for details


class Seat:
    """Answers every question with ``said``, or not at all."""

    node = "node-a"

    def __init__(self, said: str | None) -> None:
        self.said, self.asked = said, list[tuple[str, ...]]()

    def run(self, argv: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"") -> Result:
        self.asked.append(argv)
        if self.said is None:
            raise DeadlineExceeded(self.node, "no answer in time")
        return Result(0, self.said, "")


def asked(monkeypatch: pytest.MonkeyPatch, seat: Seat) -> details.Details:
    monkeypatch.setattr(details, "parse", lambda node, text, now: NodeDetail(node, kernel=text))
    seen = replace(sight(spark()), details={})
    seats: Any = {"node-a": seat}
    return doctor.details(seats, seen, Answers({"node-a": seen.facts["node-a"]}, {}))


def test_a_node_is_asked_for_its_image_its_paths_and_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    seat = Seat("6.17.0")
    found = asked(monkeypatch, seat).details["node-a"]
    assert found.kernel == "6.17.0"
    assert found.model_files == {"deepseek-v4-flash-0731": {}}
    words = seat.asked[0]
    assert any(word.startswith("image=sparkctl.local/") for word in words)
    assert {"to=192.168.100.12", "to=192.168.101.12"} <= set(words)
    assert "ping=192.168.101.12,8972,enP2p1s0f0np0" in words
    assert any(word.startswith("path=") and "deepseek-v4-flash-0731" in word for word in words)


def test_a_node_that_falls_silent_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, Seat(None))
    assert (found.details, list(found.silent)) == ({}, ["node-a"])


def test_neighbours_in_a_ring_are_asked_for_and_nobody_else() -> None:
    of = fabric(("a", "b", "c", "d"), "ring")
    seen = replace(sight(spark()), cluster=of, nodes=of.nodes)
    assert [each.name for each in doctor._others(seen, of.nodes[0])] == ["d", "b"]
    assert doctor._pings(seen, of.nodes[0])[0] == Ping("192.168.100.14", "enp1s0f0np0")
    away = of.nodes[1].model_copy(update={"rails": (Rail(netdev="x", address="10.9.9.9"),)})
    assert {each.address for each in doctor._pings(replace(seen, nodes=(of.nodes[0], away)), of.nodes[0])} == set()
