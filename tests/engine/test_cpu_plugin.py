"""The plugin that lets vLLM's Ray executor run on CPUs, against the installed vLLM."""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quiet_imports() -> None:
    """What vLLM's modules warn about while they load is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("vllm_cpu_ray.communicator")


@pytest.fixture(scope="module")
def expert_map(_quiet_imports: None) -> ModuleType:
    return importlib.import_module("vllm_cpu_ray.expert_map")


def resolve(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_vllm_finds_the_plugin_by_its_entry_point() -> None:
    points = importlib.metadata.entry_points(group="vllm.platform_plugins")
    assert [point.value for point in points if point.name == "cpu_ray"] == ["vllm_cpu_ray:register"]


def test_ray_counts_a_rank_as_one_gpu_and_the_communicator_is_ours() -> None:
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.platforms.cpu import CpuPlatform

    platform = resolve(importlib.import_module("vllm_cpu_ray").register())
    assert issubclass(platform, CpuPlatform)
    assert platform.ray_device_key == "GPU"
    communicator = resolve(platform.get_device_communicator_cls())
    assert issubclass(communicator, CpuCommunicator)
    assert communicator is not CpuCommunicator


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_RAY", "0")
    assert importlib.import_module("vllm_cpu_ray").register() is None


def test_the_shares_of_the_ranks_add_up_to_the_whole_mixture(expert_map: ModuleType) -> None:
    """Each expert as one number, so that a mixture is a weighted sum and can be checked by arithmetic."""
    import torch

    experts = torch.tensor([2.0, 3.0, 5.0, 7.0])
    ids = torch.tensor([[0, 3], [1, 2], [2, 3]], dtype=torch.int32)
    weights = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]])
    whole = (experts[ids.long()] * weights).sum(dim=1)

    shares = []
    for mine in ([0, 1], [2, 3]):
        numbers = torch.full((4,), -1, dtype=torch.int32)
        numbers[mine] = torch.arange(2, dtype=torch.int32)
        local_weights, local_ids = expert_map.to_local_experts(weights, ids, numbers)
        assert local_ids.dtype == ids.dtype
        assert int(local_ids.min()) >= 0
        assert int(local_ids.max()) < 2
        shares.append((experts[mine][local_ids.long()] * local_weights).sum(dim=1))
    assert torch.equal(shares[0] + shares[1], whole)
    assert not torch.equal(shares[0], whole)


def test_vllms_own_kernel_gives_the_whole_mixture_over_two_ranks(expert_map: ModuleType) -> None:
    """Through the repaired ``apply`` and the compiled kernel, against the same mixture in plain arithmetic."""
    import torch
    from vllm._custom_ops import cpu_prepack_moe_weight
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    class BareExperts(CPUUnquantizedExperts):  # type: ignore[misc]
        """The kernel's caller without a layer around it."""

        w1_bias = w2_bias = None

        def __init__(self) -> None:
            self._use_zentorch = False

    expert_map.repair_expert_parallel()
    random = torch.Generator().manual_seed(7)
    tokens, hidden, inner, experts, chosen = 5, 64, 32, 4, 2

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, generator=random).div(hidden**0.5).to(torch.bfloat16)

    inputs = draw(tokens, hidden) * 8
    gate_up, down = draw(experts, 2 * inner, hidden), draw(experts, hidden, inner)
    weights, ids = torch.topk(torch.rand(tokens, experts, generator=random).softmax(dim=-1), chosen)
    ids = ids.to(torch.int32)

    expected = torch.zeros(tokens, hidden)
    for token in range(tokens):
        for weight, expert in zip(weights[token], ids[token].tolist(), strict=True):
            gate, up = (gate_up[expert].float() @ inputs[token].float()).chunk(2)
            expected[token] += weight * (down[expert].float() @ (torch.nn.functional.silu(gate) * up))

    def share(mine: list[int]) -> Any:
        numbers = torch.full((experts,), -1, dtype=torch.int32)
        numbers[mine] = torch.arange(len(mine), dtype=torch.int32)
        output, nothing = torch.zeros_like(inputs), torch.empty(0)
        BareExperts().apply(
            *(output, inputs, cpu_prepack_moe_weight(gate_up[mine], "vec"), cpu_prepack_moe_weight(down[mine], "vec")),
            *(weights, ids, MoEActivation.SILU, experts, numbers, None, None, nothing, nothing, None, False),
        )
        return output.float()

    first, second = share([0, 1]), share([2, 3])
    torch.testing.assert_close(first + second, expected, rtol=0.03, atol=0.01)
    assert float(first.abs().max()) > 0.05
    assert float(second.abs().max()) > 0.05


def test_the_repair_is_made_once_and_is_inherited(expert_map: ModuleType) -> None:
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts, X86CPUUnquantizedExperts

    expert_map.repair_expert_parallel()
    repaired = CPUUnquantizedExperts.apply
    expert_map.repair_expert_parallel()
    assert CPUUnquantizedExperts.apply is repaired
    assert X86CPUUnquantizedExperts.apply is repaired
    assert not hasattr(repaired.__wrapped__, "__wrapped__")


def test_shared_memory_has_one_name_in_one_process() -> None:
    communicator = importlib.import_module("vllm_cpu_ray.communicator")
    first = communicator.shared_memory_identity()
    assert first == communicator.shared_memory_identity()
    boot_id, device, inode = first.split(":")
    assert len(boot_id) == 36
    assert device.isdigit()
    assert inode.isdigit()
