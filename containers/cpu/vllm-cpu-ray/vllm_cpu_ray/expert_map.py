"""Expert parallel on the CPU: vLLM 0.32 gives its CPU experts an expert map and they do not look at it.

A rank holds only its own experts. The router names experts by their number in the whole model; used as an index into
the weights of one rank, that number reads past their end and kills the process.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

_MARK = "_reads_expert_map"


def to_local_experts(
    topk_weights: torch.Tensor, topk_ids: torch.Tensor, expert_map: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Router weights and expert numbers as this rank must see them.

    ``expert_map[i]`` is the local number of expert ``i``, or -1 where another rank holds it. Such an expert becomes
    local expert 0 with weight 0: it adds nothing here, and the all-reduce adds the share of the rank that has it.
    """
    local_ids = expert_map[topk_ids.long()]
    elsewhere = local_ids < 0
    return topk_weights.masked_fill(elsewhere, 0), local_ids.masked_fill(elsewhere, 0).to(topk_ids.dtype)


def repair_expert_parallel() -> None:
    """Makes vLLM's unquantized CPU experts obey the expert map. Calling it again changes nothing.

    Subclasses that do not override ``apply`` (the x86 AMX kernels, the plain loop) inherit the repair.
    """
    stock: Callable[..., None] = CPUUnquantizedExperts.apply
    if getattr(stock, _MARK, False):
        return
    # By parameter name, because vLLM may hand over each of them by place or by name.
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def apply(*args: Any, **kwargs: Any) -> None:
        call = signature.bind(*args, **kwargs)
        given = call.arguments
        if given["expert_map"] is not None:
            given["topk_weights"], given["topk_ids"] = to_local_experts(
                given["topk_weights"], given["topk_ids"], given["expert_map"]
            )
        stock(*call.args, **call.kwargs)

    setattr(apply, _MARK, True)
    CPUUnquantizedExperts.apply = apply
