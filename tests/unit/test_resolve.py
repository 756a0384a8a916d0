"""What cannot be planned is refused before anything is copied, with every reason and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.plan.resolve import PlanError
from orchestrator.spec.cluster import Cluster, Node, Rail
from orchestrator.verbs.world import EMBEDDED, EXAMPLE
from tests.unit.builders import profile, resolved


def problems(wish: dict[str, Any], **changes: Any) -> tuple[str, ...]:
    with pytest.raises(PlanError) as caught:
        resolved(profile(**changes), **wish)
    return caught.value.problems


def test_a_plan_takes_the_first_nodes_and_splits_over_all_of_them() -> None:
    found = resolved(profile())
    assert [node.name for node in found.nodes] == ["spark-1", "spark-2"]
    assert found.tensor == 2


def test_more_nodes_than_the_profile_allows() -> None:
    assert problems({"nodes": 9}) == ("--nodes: should be 2, 4 or 8 for profile deepseek-v4-flash, found 9",)
    only = {"min": 2, "max": 2}
    assert problems({"nodes": 3}, nodes=only) == ("--nodes: should be 2 for profile deepseek-v4-flash, found 3",)


def test_three_nodes_are_refused_because_heads_do_not_divide() -> None:
    assert problems({"nodes": 3}) == (
        "profiles/deepseek-v4-flash.yaml nodes: 3 nodes do not divide: heads 64 % tensor parallel 3; "
        "legal node counts are 2, 4, 8",
    )


def test_fewer_nodes_than_the_model_needs_is_never_accepted_silently() -> None:
    found = problems({"nodes": 2}, nodes={"min": 3, "max": 8, "default": 4})
    assert found == ("--nodes: should be 4 or 8 for profile deepseek-v4-flash, found 2",)


def test_a_count_that_does_not_divide_names_the_legal_ones() -> None:
    found = problems({"nodes": 3}, nodes={"min": 1, "max": 8, "default": 2}, engine__expert_parallel=True)
    assert found == (
        "profiles/deepseek-v4-flash.yaml nodes: 3 nodes do not divide: heads 64 % tensor parallel 3; "
        "experts 256 % expert parallel 3; legal node counts are 1, 2, 4, 8",
    )


def test_a_cluster_that_is_too_small() -> None:
    small = EXAMPLE.model_copy(update={"nodes": EXAMPLE.nodes[:1]})
    found = problems({"cluster": small})
    assert found == ("cluster.yaml nodes: should be at least 2 for this plan, found 1 (spark-1)",)


def test_the_way_out_of_an_illegal_count_names_those_that_this_cluster_allows() -> None:
    wide = profile(nodes={"min": 1, "max": 8, "default": 2})
    small = EXAMPLE.model_copy(update={"nodes": EXAMPLE.nodes[:5]})
    with pytest.raises(PlanError) as caught:
        resolved(wide, 3, cluster=small)
    assert caught.value.remedy == "use --nodes 1 or --nodes 2 or --nodes 4"
    with pytest.raises(PlanError) as caught:  # --nodes is not at fault
        resolved(profile(engine__context_tokens=2_000_000), 2)
    assert caught.value.remedy == ""


def test_a_planned_flag_in_engine_args_is_refused_with_vllms_own_words() -> None:
    (found,) = problems({}, engine_args={"nnodes": 2})
    assert found.startswith("profiles/deepseek-v4-flash.yaml engine_args/nnodes: should be set through --nodes")
    assert "nnodes > 1 can only be set when distributed executor backend is mp" in found


@pytest.mark.parametrize("flag", ["max-model-len", "tensor-parallel-size", "tp", "no-enable-prefix-caching", "host"])
def test_what_a_typed_field_owns_cannot_be_said_twice(flag: str) -> None:
    (found,) = problems({}, engine_args={flag: 1})
    assert f"engine_args/{flag}: should be set through" in found


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("hos", "should be a flag's whole name, found what vLLM takes for host; set that through the plan"),
        ("tensor-parallel", "found what vLLM takes for tensor-parallel-size; set that through --nodes"),
        (
            "no-enable-prefix",
            "found what vLLM takes for no-enable-prefix-caching; set that through engine/",
        ),
        ("config", "should be the flags themselves, found a file of flags that no plan shows"),
        ("conf", "found a file of flags"),
        *((flag, "found a flag that opens the engine") for flag in ("ssl-keyfile", "uds", "root-path", "root-p")),
        *((flag, "found a flag that opens the engine") for flag in ("allowed-origins", "allow-cred", "middleware")),
    ],
)
def test_no_flag_goes_around_the_plan(flag: str, says: str) -> None:
    (found,) = problems({}, engine_args={flag: "x"})
    assert found.startswith(f"profiles/deepseek-v4-flash.yaml engine_args/{flag}: should be")
    assert says in found


def test_a_flag_that_only_begins_like_a_planned_one_is_itself() -> None:
    fine = {"tokenizer": "/models/other", "config-format": "hf", "api-server-count": 1}
    assert resolved(profile(engine_args=fine)).profile.engine_args == fine


def test_a_context_beyond_the_model() -> None:
    (found,) = problems({}, engine__context_tokens=2_000_000)
    assert "engine/context_tokens: should be at most 1048576" in found


def test_a_loopback_rendezvous_in_a_cluster_of_several() -> None:
    nodes = tuple(
        Node(name=f"n{i}", rails=(Rail(netdev="lo", address=f"127.0.0.{i}"),), accelerator="gb10") for i in (1, 2)
    )
    (found,) = problems({"cluster": Cluster(nodes=nodes)})
    assert "nodes/n1/rails/0/address" in found
    assert "loopback cannot be the rendezvous" in found


def test_a_ring_of_four_cannot_use_ray_but_can_use_mp() -> None:
    ring = Cluster(topology="ring", nodes=EXAMPLE.nodes[:4])
    wide = profile(nodes={"min": 2, "max": 4, "default": 4})
    with pytest.raises(PlanError, match="a ring of four or more nodes cannot use Ray"):
        resolved(wide, 4, "ray", ring)
    assert resolved(wide, 4, "mp", ring).tensor == 4


def test_several_problems_are_told_at_once() -> None:
    found = problems({"nodes": 9}, engine__context_tokens=2_000_000, engine_args={"port": 1})
    assert len(found) == 3


def test_a_profile_for_other_machines_is_not_planned_for_these() -> None:
    (found,) = problems({}, accelerator="none")
    assert "accelerator: should be what the nodes have" in found


@pytest.mark.parametrize(
    ("name", "value", "should"),
    [
        ("RAY_AUTH_MODE", "disabled", "token"),
        ("TMPDIR", "/tmp", "another value on each node"),
        ("RAY_AUTH_TOKEN_PATH", "/tmp/token", "/run/sparkctl/ray.token"),
        ("VLLM_CONFIG_ROOT", "/tmp", "/run/sparkctl/vllm"),
        ("NCCL_NET", "Socket", "IB"),
        ("VLLM_HOST_IP", "0.0.0.0", "another value on each node"),
    ],
)
def test_a_variable_that_the_plan_sets_is_not_the_profiles_to_change(name: str, value: str, should: str) -> None:
    assert problems({}, env={name: value}) == (
        f"profiles/deepseek-v4-flash.yaml env/{name}: should be left to the plan, which sets {should}, "
        f"found {value}; take it out",
    )


def test_a_variable_with_the_value_that_the_plan_sets_is_harmless() -> None:
    same = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "HF_HUB_OFFLINE": "1"}
    assert resolved(profile(env=same)).profile.env == same


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY", "CLIENT_SECRET", "db_password", "AZURE_CREDENTIAL"]
)
def test_a_secret_stands_in_no_plan_and_in_no_message(name: str) -> None:
    (found,) = problems({}, env={name: "hunter2"})
    assert found.startswith(f"profiles/deepseek-v4-flash.yaml env/{name}: should not be a variable that holds a secret")
    assert "secrets stand in no plan" in found
    assert "hunter2" not in found


def test_a_count_of_tokens_and_the_path_of_a_secret_are_no_secrets() -> None:
    fine = {"VLLM_GATHER_MAX_TOKENS": "65536", "HF_TOKEN_PATH": "/run/token", "SOME_API_KEY_FILE": "/run/key"}
    assert resolved(profile(env=fine)).profile.env == fine


def test_problems_of_the_environment_are_told_with_the_others() -> None:
    found = problems({"nodes": 9}, env={"RAY_AUTH_MODE": "disabled", "HF_TOKEN": "x"}, engine_args={"port": 1})
    assert len(found) == 4


@pytest.mark.parametrize("cluster", [EMBEDDED, EXAMPLE], ids=lambda cluster: cluster.name)
def test_the_clusters_that_need_no_file_are_what_a_file_could_say(cluster: Cluster) -> None:
    assert Cluster.model_validate(cluster.model_dump()) == cluster
