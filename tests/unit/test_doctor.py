"""Every rule: what it finds, what it leaves alone, and that nothing is said where nobody could look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.doctor.rules import everything, fast
from orchestrator.doctor.sight import GIB, Sight
from orchestrator.facts.detail import Disk, Gpu, Holder, ImageInside, Memory, RdmaDevice
from orchestrator.facts.node import Container
from tests.unit.builders import SHIPPED, facts
from tests.unit.patients import alarms, detail, fabric, image, quiet, rdma, said, sight, spark

OF = spark()
HERE, THERE = OF.nodes
MEMORY = Memory(121 * GIB, 117 * GIB, 115 * GIB, 3 * GIB, 16 * GIB, 16 * GIB, 64 * 1024**2)


def met(**node_b: Any) -> list[tuple[str, str, str]]:
    """Alarms of a healthy pair of which node-b is changed."""
    return alarms(sight(OF, node_b=node_b))


@pytest.mark.parametrize("executor", ["ray", "mp"])
def test_a_healthy_pair_yields_passes_only(executor: Any) -> None:
    found = everything(sight(spark(executor=executor)))
    assert {each.verdict for each in found} == {"pass"}
    assert len(found) > 60


@pytest.mark.parametrize("count", [4, 8])
def test_a_healthy_cluster_at_a_switch_yields_passes_only(count: int) -> None:
    names = tuple(f"spark-{number}" for number in range(count))
    of = spark(cluster=fabric(names, "switch"), nodes=count)
    assert {each.verdict for each in everything(sight(of))} == {"pass"}


def test_nobody_looked_is_unknown_and_never_a_fault() -> None:
    blind = replace(sight(OF), details={})
    verdicts = {each.verdict for each in everything(blind)}
    assert verdicts == {"pass", "unknown"}
    codes = {each.code for each in everything(blind) if each.verdict == "unknown"}
    assert {"HCA_NOT_ACTIVE", "MTU_1500", "NO_ROCE_V2_GID", "MEMORY_LOW", "CLOCK_OFF", "DRIVERS_DIFFER"} <= codes


def test_without_a_profile_only_nodes_and_fabric_are_looked_at() -> None:
    cluster = Sight(OF.cluster, OF.nodes, facts(OF), {n.name: detail(n, OF) for n in OF.nodes}, SHIPPED.known_bad())
    assert alarms(cluster) == []
    codes = {each.code for each in everything(cluster)}
    assert {"MTU_1500", "KERNELS_DIFFER", "CLOCK_OFF"} <= codes
    assert not {"MEMORY_LOW", "IMAGES_DIFFER", "SHM_TOO_SMALL"} & codes


def test_rules_of_a_start_need_no_details() -> None:
    assert {each.verdict for each in fast(replace(sight(OF), details={}))} <= {"pass", "unknown"}


def devices(**changes: Any) -> tuple[RdmaDevice, ...]:
    return tuple(rdma(rail, **changes) for rail in THERE.rails)


# --- nodes, parity, memory, clocks


def test_a_node_that_is_no_spark() -> None:
    assert met(gpu=Gpu("NVIDIA RTX 6000", "580.126.09")) == [("fail", "NODE_NOT_GB10", "node-b")]


def test_docker_without_the_nvidia_runtime() -> None:
    assert met(runtimes=("runc",)) == [("warn", "NVIDIA_RUNTIME_ABSENT", "node-b")]


def test_a_disk_that_cannot_hold_the_model() -> None:
    assert met(disks=(Disk("/", 100 * 10**9, "ext4"),)) == [("fail", "DISK_LOW", "node-b")]
    assert met(disks=(Disk("/", 100 * 10**9), Disk("/home/spark/models", 900 * 10**9))) == []
    whole = {OF.model.name: {file.path: file.bytes for file in OF.model.files}}
    assert met(disks=(Disk("/", 60 * 10**9, "ext4"),), model_files=whole) == []
    assert met(disks=(Disk("/", 60 * 10**9, "ext4"),), model_files={}) == [("warn", "DISK_LOW", "node-b")]


def test_drivers_kernels_and_firmware_that_differ() -> None:
    assert met(gpu=Gpu("NVIDIA GB10", "580.95.05")) == [("warn", "DRIVERS_DIFFER", "")]
    assert met(kernel="6.14.0-1013-nvidia") == [("warn", "KERNELS_DIFFER", "")]
    assert met(rdma=devices(firmware="28.44.1036")) == [("warn", "FIRMWARE_DIFFERS", "")]


def test_a_driver_and_a_service_of_the_known_table() -> None:
    old = {"gpu": Gpu("NVIDIA GB10", "570.86.10")}
    assert alarms(sight(OF, node_a=old, node_b=old)) == [
        ("fail", "DRIVER_TOO_OLD", "node-a"),
        ("fail", "DRIVER_TOO_OLD", "node-b"),
    ]
    assert met(services=frozenset({"earlyoom"})) == [("warn", "EARLYOOM_KILLS", "node-b")]
    assert met(services=frozenset({"dgx-anti-oom"})) == [("warn", "DGX_ANTI_OOM_KILLS", "node-b")]


def test_nccl_that_hangs_and_builds_that_differ() -> None:
    assert met(images=(image(OF, nccl_version="2.28.9"),)) == [("warn", "NCCL_PROXY_HANG", "node-b")]
    assert met(images=(image(OF, nccl_sha256="0" * 64),)) == [("fail", "NCCL_TWO_BUILDS", "")]
    assert met(images=(image(OF, nccl_sha256=""),)) == []


def test_what_only_the_stack_states_is_said_once_and_without_a_node() -> None:
    stated = replace(OF, stack=OF.stack.model_copy(update={"inside": {"nccl": "2.28.9-1"}}))
    blind = replace(sight(stated), details={})
    assert alarms(blind) == [("warn", "NCCL_PROXY_HANG", "")]
    assert alarms(sight(stated)) == []  # every node showed 2.30.7


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE", "RAY_COMPILED_DAG_VARIABLES"),
        ("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "RAY_COMPILED_DAG_VARIABLES"),
        ("RAY_CGRAPH_get_timeout", "RAY_COMPILED_DAG_VARIABLES"),
        ("VLLM_USE_FLASHINFER_MOE_FP4", "FLASHINFER_MOE_VARIABLES"),
        ("VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "FLASHINFER_MOE_VARIABLES"),
    ],
)
def test_a_variable_that_a_newer_engine_does_not_read(name: str, code: str) -> None:
    of = spark(quiet(env={name: "1"}))
    new = replace(of, stack=of.stack.model_copy(update={"versions": {"vllm": "0.33.0"}}))
    assert {each[:2] for each in alarms(sight(new))} == {("warn", code)}
    assert alarms(sight(of)) == []


def test_a_variable_that_is_still_read_is_left_alone() -> None:
    of = spark(quiet(env={"VLLM_USE_FLASHINFER_MOE_INT4": "1"}))
    assert alarms(sight(replace(of, stack=of.stack.model_copy(update={"versions": {"vllm": "0.33.0"}})))) == []


@pytest.mark.parametrize(("dtype", "bad"), [("nvfp4", True), ("nvfp4_ds_mla", False), ("fp8", False)])
def test_a_cache_of_nvfp4_under_mla(dtype: str, bad: bool) -> None:
    of = spark(quiet(engine__kv_dtype=dtype, env={}))
    new = replace(of, stack=of.stack.model_copy(update={"versions": {"vllm": "0.33.0"}}))
    assert {each[:2] for each in alarms(sight(new))} == ({("fail", "NVFP4_KV_WITH_MLA")} if bad else set())


def test_memory_that_is_not_there() -> None:
    assert met(memory=replace(MEMORY, available=60 * GIB, free=50 * GIB)) == [("fail", "MEMORY_LOW", "node-b")]
    assert met(memory=replace(MEMORY, swap_free=10 * GIB)) == [("warn", "SWAP_IN_USE", "node-b")]
    assert met(memory=replace(MEMORY, swap_total=0, swap_free=0)) == []


def test_memory_that_is_held_is_named_with_its_holder() -> None:
    low = replace(MEMORY, available=30 * GIB, free=20 * GIB)
    held = (
        Holder(9, "Xorg", "root", GIB // 2),
        Holder(812, "VLLM::EngineCor", "root", 80 * GIB, "ab" * 32, on_gpu=True),
        Holder(77, "ollama", "ollama", 6 * GIB),
    )
    seen = sight(OF, node_b={"memory": low, "holders": held})
    others = (Container("ab" * 32, "vllm-node", "eugr/spark-vllm", on_host=True),)
    seen = replace(seen, facts={name: replace(each, others=others) for name, each in seen.facts.items()})
    (found,) = said(seen)
    assert (found.code, found.node) == ("MEMORY_LOW", "node-b")
    assert "VLLM::EngineCor (pid 812 of root) in container vllm-node 80.0 GiB, ollama (pid 77 of ollama) 6.0" in (
        found.observed
    )
    assert "Xorg" not in found.observed
    assert found.remedy == "on node-b: docker stop vllm-node"
    (alone,) = said(sight(OF, node_b={"memory": low, "holders": held[2:]}))
    assert alone.remedy.startswith("on node-b: sudo kill 77, or lower engine/memory_utilization")


def test_memory_that_the_deployment_itself_holds_is_well() -> None:
    seen = sight(OF, node_b={"memory": replace(MEMORY, available=10 * GIB, free=5 * GIB)})
    from orchestrator.facts.node import Unit

    own = tuple(Unit(unit.name, OF.deployment, 1, unit.rank, "", running=True) for unit in seen.plan.units)  # type: ignore[union-attr]
    busy = {name: replace(node, units=own) for name, node in seen.facts.items()}
    assert alarms(replace(seen, facts=busy, ours=(seen.plan,))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("offset", "verdict"), [(1.9, None), (-3.0, "warn"), (61.0, "fail"), (-7200.0, "fail")])
def test_a_clock_that_is_off(offset: float, verdict: str | None) -> None:
    assert met(clock_offset_s=offset) == ([(verdict, "CLOCK_OFF", "node-b")] if verdict else [])


# --- images


def test_an_image_for_another_processor() -> None:
    assert met(images=(image(OF, architecture="linux/amd64"),)) == [("fail", "IMAGE_ARCH_MISMATCH", "node-b")]
    assert met(images=(image(OF, architecture="linux/arm64/v8"),)) == []


def test_an_image_with_other_versions_than_the_stack() -> None:
    other = {**OF.stack.versions, "vllm": "0.1"}
    assert met(images=(image(OF, versions=other),)) == [("fail", "IMAGE_VERSIONS", "node-b")]


def test_an_image_without_ray_is_well_for_mp() -> None:
    assert met(images=(image(OF, versions=dict(OF.stack.versions)),)) == []


def test_an_image_that_is_not_there_is_brought_by_up() -> None:
    assert met(images=()) == []
    assert met(images=(ImageInside("other:latest", architecture="amd64"),)) == []


def test_baked_names_count_only_where_the_plan_sets_nothing() -> None:
    baked = image(OF, env={"GLOO_SOCKET_IFNAME": "enP7s7", "MN_IF_NAME": "enp1s0f0np0"})
    assert met(images=(baked,)) == []
    lost = image(OF, env={"MN_IF_NAME": "eth0"})
    assert met(images=(lost,)) == [("fail", "IMAGE_BAKED_IFNAME", "node-b")]


def test_baked_settings_of_the_network_count_only_where_the_plan_sets_nothing() -> None:
    pinned = image(OF, env={"NCCL_IB_GID_INDEX": "3", "NCCL_IB_DISABLE": "1"})
    assert met(images=(pinned,)) == [("warn", "GID_INDEX_PINNED", "node-b")]
    stale = image(OF, env={"NCCL_IB_GID_INDEX": "7"})
    assert met(images=(stale,)).count(("fail", "GID_INDEX_PINNED", "node-b")) == 2
    empty = image(OF, env={"NCCL_IB_GID_INDEX": "", "NCCL_SOCKET_IFNAME": ""})
    assert met(images=(empty,)) == [("fail", "EMPTY_NCCL_VALUE", "node-b")]
    of = spark(quiet(env={"NCCL_IB_GID_INDEX": "-1"}))
    assert alarms(sight(of, node_b={"images": (pinned,)})) == []


# --- plan


def of_env(**env: str) -> list[tuple[str, str, str]]:
    return alarms(sight(spark(quiet(env=env))))


@pytest.mark.parametrize("name", ["NCCL_IB_GID_INDEX", "NCCL_ALGO"])
def test_an_empty_nccl_variable(name: str) -> None:
    assert of_env(**{name: ""}) == [("fail", "EMPTY_NCCL_VALUE", "")]


def test_a_pinned_gid_index_warns_and_fails_where_the_table_has_another() -> None:
    assert of_env(NCCL_IB_GID_INDEX="3") == [("warn", "GID_INDEX_PINNED", "")]
    assert of_env(NCCL_IB_GID_INDEX="-1") == []  # NCCL's own default
    found = of_env(NCCL_IB_GID_INDEX="5")
    assert found.count(("fail", "GID_INDEX_PINNED", "node-a")) == 2


def test_interfaces_that_disagree() -> None:
    seen = sight(OF)
    assert seen.plan is not None
    ranks = []
    for rank in seen.plan.ranks:
        env = {**rank.unit.env, "GLOO_SOCKET_IFNAME": THERE.rails[1].netdev}
        ranks.append(replace(rank, unit=replace(rank.unit, env=env)) if rank.node == "node-b" else rank)
    changed = replace(seen, plan=replace(seen.plan, ranks=tuple(ranks)))
    assert alarms(changed) == [("fail", "SOCKET_IFNAMES_DISAGREE", "node-b")]


def test_shared_memory_has_a_floor_and_a_ceiling() -> None:
    assert alarms(sight(spark(quiet(shm_bytes=64 * GIB)))) == [("warn", "SHM_LARGE_ON_UMA", "")]
    assert alarms(sight(spark(quiet(shm_bytes=GIB), executor="ray"))) == [("warn", "SHM_TOO_SMALL", "")]
    assert alarms(sight(spark(quiet(shm_bytes=GIB)))) == []


@pytest.mark.parametrize(("tokens", "bad"), [(3, False), (5, False), (6, True), (16, True)])
def test_a_draft_that_is_too_deep(tokens: int, bad: bool) -> None:
    found = alarms(sight(spark(quiet(engine__speculative__tokens=tokens))))
    assert found == ([("warn", "SPEC_DEPTH_OUTSIDE_KNOWN_GOOD", "")] if bad else [])


def test_a_head_that_the_model_does_not_have() -> None:
    (found,) = said(sight(spark(quiet(engine__speculative__method="mtp", engine__speculative__tokens=2))))
    assert (found.verdict, found.code) == ("warn", "SPEC_WITHOUT_HEAD")
    assert "method: dspark" in found.remedy


@pytest.mark.parametrize(
    ("template", "bad"),
    [
        ("unsloth.jinja", True),
        ("/elsewhere/unsloth.jinja", True),
        ("{{ messages }}", False),
        ("/models/deepseek-v4-flash-0731/chat_template.jinja", False),
    ],
)
def test_a_chat_template_must_be_where_the_container_can_read_it(template: str, bad: bool) -> None:
    seen = sight(spark(quiet(engine_args={"chat-template": template})))
    assert alarms(seen) == ([("fail", "CHAT_TEMPLATE_NOT_THERE", "")] if bad else [])


@pytest.mark.parametrize(("executor", "bad"), [("ray", True), ("mp", False)])
def test_data_parallel_ranks_over_ray(executor: Any, bad: bool) -> None:
    seen = sight(spark(quiet(engine_args={"data-parallel-size": 2}), executor=executor))
    assert (("warn", "DATA_PARALLEL_OVER_RAY", "") in alarms(seen)) == bad


@pytest.mark.parametrize(("length", "bad"), [("0", True), ("33", True), ("x", True), ("16", False), ("32", False)])
def test_a_prefix_length_that_nccl_cannot_use(length: str, bad: bool) -> None:
    assert of_env(NCCL_IB_SUBNET_PREFIX_LEN=length) == ([("fail", "SUBNET_PREFIX_INVALID", "")] if bad else [])


def test_utilization_without_a_value_is_vllms_own_default() -> None:
    found = alarms(sight(spark(quiet(engine__memory_utilization=None))))
    assert ("warn", "UTIL_TOO_HIGH_FOR_UMA", "") in found


@pytest.mark.parametrize(("filesystem", "bad"), [("nfs4", True), ("cifs", True), ("ext4", False), ("btrfs", False)])
def test_a_cache_of_kernels_on_a_shared_disk(filesystem: str, bad: bool) -> None:
    from orchestrator.plan.launch import Mount

    of = spark(quiet(env={"FLASHINFER_CACHE_DIR": "/cache/fi", "HF_HUB_CACHE": "/cache/hub"}))
    seen = sight(of, node_b={"disks": (Disk("/", 3000 * 10**9, "ext4"), Disk("/mnt/share", 10**12, filesystem))})
    assert seen.plan is not None
    ranks = tuple(
        replace(rank, unit=replace(rank.unit, mounts=(*rank.unit.mounts, Mount("/mnt/share/c", "/cache", False))))
        for rank in seen.plan.ranks
    )
    found = alarms(replace(seen, plan=replace(seen.plan, ranks=ranks)))
    assert found == ([("fail", "JIT_CACHE_ON_SHARED_FS", "node-b")] if bad else [])
