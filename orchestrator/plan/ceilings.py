"""Arithmetic around a cluster: smallest sizes, bandwidth and disk ceilings, power and price. Pure, no estimate.

A ceiling is what the memory bandwidth allows and is never reached; it is shown as a ceiling and never as a forecast.
"""

from __future__ import annotations

from math import ceil, floor

from orchestrator.spec.machine import Machine
from orchestrator.spec.model import Api, Architecture, Model

GIB = 2**30
HOURS_A_YEAR = 8760
# Prompts are longer than answers: an agent's traffic has about five input tokens for each output token.
INPUT_PER_OUTPUT = 5


def gigabytes(count: float) -> float:
    return count / 1e9


def smallest(weights_bytes: float, budget_bytes: float) -> int:
    """The fewest nodes whose budgets together hold the weights and nothing else."""
    return ceil(weights_bytes / budget_bytes)


def size_people_build(weights_bytes: float, machine: Machine) -> tuple[int, str]:
    """The step of ``machine.steps`` that the rule of weights per node leads to, and a remark where it is close.

    Within three percent above a step owners call it "just over" that step, within 1.5 percent below "at the limit":
    both are a matter of one more quantised tensor, and the remark says so instead of buying eight boxes.
    """
    nodes = weights_bytes / machine.weights_rule_bytes
    for step in machine.steps:
        if nodes <= step:
            return step, "at the limit" if nodes > 0.985 * step else ""
        if nodes <= 1.03 * step:
            return step, "just over"
    return ceil(nodes), ""


def legal_counts(shape: Architecture, *, expert_parallel: bool, most: int) -> tuple[int, ...]:
    """Tensor-parallel widths up to ``most`` that divide the heads and, with expert parallel, the experts.

    What is not known divides: a card without heads allows every width, and its answers say that heads are not known.
    """
    return tuple(
        width
        for width in range(1, most + 1)
        if not (shape.heads or 0) % width and not (expert_parallel and (shape.experts or 0) % width)
    )


def nearest(counts: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """The legal counts just below and just above ``wanted``."""
    below = [count for count in counts if count < wanted][-1:]
    above = [count for count in counts if count > wanted][:1]
    return (*below, *above)


def active_bytes(model: Model) -> tuple[float, str] | None:
    """Bytes of weights that one decode step of one sequence reads, and where the figure comes from."""
    if model.active is not None:
        return model.active.bytes_per_token, model.active.source
    size = model.tensor_bytes or model.weights_bytes
    if not (size and model.active_params and model.total_params):
        return None
    return model.active_params * size / model.total_params, "active parameters times the checkpoint's average width"


def decode_ceiling(nodes_reading_at_once: int, bytes_per_step: float, bandwidth_bytes_s: float) -> int:
    """Whole decode steps per second that memory bandwidth allows; a layer split reads one node at a time."""
    return floor(nodes_reading_at_once * bandwidth_bytes_s / bytes_per_step)


def seconds_per_token_from_disk(bytes_per_step: float, disk_bytes_s: float) -> float:
    """How long one token takes when every step reads its weights from a disk."""
    return bytes_per_step / disk_bytes_s


def power_usd_per_year(machine: Machine) -> float:
    """One node, running at the most that was measured, all year."""
    return machine.power.measured_w / 1000 * HOURS_A_YEAR * machine.power.usd_per_kwh


def api_usd_per_m_output(api: Api, input_per_output: float = INPUT_PER_OUTPUT) -> float:
    """What a million output tokens cost with their share of input, both uncached."""
    return input_per_output * api.input_usd_per_m + api.output_usd_per_m


def break_even_tokens(price_usd: float, api: Api) -> float:
    """Output tokens (with their input) that the owner's API sells for ``price_usd``."""
    return price_usd / api_usd_per_m_output(api) * 1e6
