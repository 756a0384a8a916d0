"""Published failures, each turned into our values: every one is found or refused, and nothing else is reported."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from orchestrator.doctor.rules import everything
from orchestrator.plan.build import build
from orchestrator.plan.engine_args import speculative_json
from orchestrator.spec.profile import Speculative
from tests.unit.builders import OPERATOR, facts
from tests.unit.cases import READERS, Case, Outcome, cases, outcome
from tests.unit.patients import alarms, quiet, sight, spark

ALL = [*cases("plan"), *cases("preflight")]
BY_ID = {case.id: case for case in ALL}

# Typed settings make these impossible: they are refused, in words that hold all of these.
REFUSED = {
    "exec-conflict-01": ("engine_args/nnodes", "nnodes > 1 can only be set when distributed executor backend is mp"),
    "plan-tp-01": ("heads 64 % tensor parallel 3", "experts 256 % expert parallel 3", "legal node counts are 2, 4"),
    "plan-nodes-01": ("--nodes: should be 4", "found 2"),
    "plan-loop-01": ("a loopback address", "cannot be the rendezvous of several nodes"),
    "plan-spec-03": ("draft_sample_method: should be greedy, probabilistic or gumbel",),
    "plan-int-01": ('MAX_INFLIGHT_PREFILLS should be a whole number in digits (env_types), found "two"',),
    "secret-01": ("secrets: unknown key",),
    "lab-auth-01": ("env/RAY_AUTH_MODE: should be left to the plan",),
}
# Met as given these are well; what goes wrong next to them has a test of its own below.
WELL = {"neigh-01", "digest-01", "cache-01", "env-prop-01"}
# True, and from the table of known combinations: kernel 7.0 is reported with the same fault.
BESIDE = {"nccl-kernel-01": {"KERNEL_RDMA_REGISTRATION"}}


def expected(case: Case) -> set[tuple[str, str, str]]:
    """(verdict, code, node) as the case says it; an empty node is any."""
    if case.id in WELL:
        return set()
    found = re.findall(r"\b(error|warn)(?: \([^)]*\))?=([A-Z][A-Z0-9_]+)(?: (node-\w+))?", case.expected)
    return {("fail" if word == "error" else "warn", code, node) for word, code, node in found}


def missed(case: Case, got: Outcome) -> list[str]:
    if case.id in REFUSED:
        return [word for word in REFUSED[case.id] if word not in got.refused]
    return [
        f"{verdict} {code} {node}"
        for verdict, code, node in sorted(expected(case))
        if not any((verdict, code) == alarm[:2] and node in {"", alarm[2]} for alarm in got.alarms)
    ]


def false_alarms(case: Case, got: Outcome) -> list[str]:
    """Codes that the case does not speak of, codes on a healthy node, and refusals of what is allowed."""
    wanted = {code: node for _, code, node in expected(case)}
    beside = BESIDE.get(case.id, set())
    extra = [
        f"{verdict} {code} {node}"
        for verdict, code, node in got.alarms
        if code not in beside and (code not in wanted or wanted[code] not in {"", node})
    ]
    return extra + ([got.refused] if got.refused and case.id not in REFUSED else [])


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_a_published_failure_is_met(case: Case) -> None:
    got = outcome(case)
    assert missed(case, got) == []
    assert false_alarms(case, got) == []


def test_no_case_is_missed_and_no_alarm_is_false() -> None:
    results = [(case, outcome(case)) for case in ALL]
    misses = sum(1 for case, got in results if missed(case, got))
    false = sum(1 for case, got in results if false_alarms(case, got))
    print(f"{len(ALL)} cases, {misses} missed, {false} with false alarms")
    assert (misses, false) == (0, 0)


def test_every_kind_of_input_has_a_reader() -> None:
    assert {case.input_type for case in ALL} <= set(READERS)


def test_findings_carry_what_the_case_asks_to_be_told() -> None:
    def told(name: str, code: str) -> str:
        seen = READERS[BY_ID[name].input_type](BY_ID[name].input)
        return " ".join(f"{f.observed} {f.why} {f.remedy}" for f in everything(seen) if f.code == code)

    assert "node-a rocep1s0f0,roceP2p1s0f0 / node-b rocep1s0f1,roceP2p1s0f1" in told("hca-01", "HCA_NOT_ACTIVE")
    assert "roceP2p1s0f0" in told("hca-02", "HALF_PORT_ONLY")
    assert "GLOO_SOCKET_IFNAME=enP7s7, TP_SOCKET_IFNAME=enP7s7" in re.sub(
        r"TP_(.*), GLOO_(\S+)", r"GLOO_\2, TP_\1", told("ifname-02", "IMAGE_BAKED_IFNAME")
    )
    assert "13.2 of 200" in told("slow-link-01", "RAIL_DEGRADED")
    assert "MemFree 41.5 GiB and MemAvailable 115.7 GiB, 97.4 GiB wanted" in told(
        "mem-free-02", "PAGE_CACHE_HOLDS_MEMORY"
    )
    kernel = told("nccl-kernel-01", "KERNEL_CMA_ZERO")
    assert "7.0.0-1019-nvidia" in kernel
    assert "luxingcom/aicad-nccl-optimization issue 1" in kernel
    assert "issue 259" in kernel
    assert "67108864" in told("ray-shm-01", "SHM_TOO_SMALL")
    assert "VLLM_CACHE_ROOT" in told("cache-02", "JIT_CACHE_ON_SHARED_FS")
    assert "TRITON_CACHE_DIR" not in told("cache-02", "JIT_CACHE_ON_SHARED_FS")
    assert "0.19.1" in told("plan-kv-01", "KNOWN_BAD_COMBINATION")
    assert "eugr/spark-vllm-docker" in told("plan-spec-01", "SPEC_DEPTH_OUTSIDE_KNOWN_GOOD")


def test_images_with_different_layers_are_not_the_same() -> None:
    case = BY_ID["digest-01"]
    other = replace(case, input=case.input.replace('node-b:  {"Id":"sha256:2222"', 'node-b:  {"Id":"sha256:3"'))
    assert outcome(other).alarms == ()
    first, _, second = case.input.partition("node-b:")
    changed = replace(case, input=first + "node-b:" + second.replace("sha256:l2", "sha256:l3"))
    assert outcome(changed).alarms == (("fail", "IMAGES_DIFFER", ""),)


def test_a_model_that_is_there_in_part_is_incomplete_and_an_absent_one_is_to_be_sent() -> None:
    case = BY_ID["cache-01"]
    partly = replace(case, input=case.input.replace("46 of 46", "45 of 46"))
    assert outcome(partly).alarms == (("fail", "MODEL_INCOMPLETE", "node-a"),)


def test_variables_of_the_profile_reach_every_rank() -> None:
    wanted = {"HF_ENDPOINT": "http://mirror.example:8090", "REQUESTS_CA_BUNDLE": "/etc/ssl/ca.pem"}
    for executor in ("ray", "mp"):
        of = spark(quiet(env=wanted), executor=executor)
        plan = build(of, facts(of), OPERATOR, 1)
        assert all(wanted.items() <= rank.unit.env.items() for rank in plan.ranks)


def test_a_plan_of_ours_has_no_fault_that_only_other_tools_can_make() -> None:
    """Baked interface names, an unset VLLM_HOST_IP and an open Ray: the plan sets these on every rank."""
    for executor in ("ray", "mp"):
        assert alarms(sight(spark(executor=executor))) == []


def test_speculative_settings_are_written_by_a_json_encoder() -> None:
    value = Speculative(method="dspark", tokens=5, args={"rejection_sample_method": 'a","x":"'})
    assert json.loads(speculative_json(value, 'b","x":"')) == {
        "method": "dspark",
        "num_speculative_tokens": 5,
        "model": 'b","x":"',
        "rejection_sample_method": 'a","x":"',
    }
