"""Rules over a node's unified memory: what the plan asks for, what holds it, and what could take it away.

All figures are of /proc/meminfo: nvidia-smi answers N/A for memory on a Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight, gib
from orchestrator.facts.detail import Holder, Memory, NodeDetail
from orchestrator.facts.node import NodeFacts
from orchestrator.spec.cluster import Node

MEMORY_LOW = Code(
    "MEMORY_LOW",
    "memory for the planned share",
    "vLLM takes its share of all memory at once at start and ends when less is there: Free memory on device "
    "is less than "
    "desired GPU memory utilization.",
    "see what holds it: ps -eo pid,user,rss,args --sort=-rss | head; or lower engine/memory_utilization in the profile",
)
PAGE_CACHE_HOLDS_MEMORY = Code(
    "PAGE_CACHE_HOLDS_MEMORY",
    "free memory for the planned share",
    "CUDA counts the page cache as used: after a copy of a model the machine looks full to an engine that "
    "asks CUDA, though "
    "the kernel would give the memory back.",
    "sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'",
)
SWAP_IN_USE = Code(
    "SWAP_IN_USE",
    "swap that is empty",
    "Pages of unified memory that are swapped out make the GPU wait for the disk; the machine then stalls for minutes.",
    "end what is not needed, then: sudo swapoff -a && sudo swapon -a; and keep it so: sudo sysctl vm.swappiness=0",
)
KERNEL_CMA_ZERO = Code(
    "KERNEL_CMA_ZERO",
    "a kernel that keeps contiguous memory (CmaTotal above 0 kB)",
    "On such kernels registering memory for RDMA failed for some (luxingcom/aicad-nccl-optimization issue 1) "
    "and worked for "
    "others: the kernel's version alone is not the cause (MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark issue 259).",
    "if NCCL says Cannot allocate memory at start, boot another kernel that is installed",
)
# vLLM's own default where a profile sets no share (0.33: config/cache.py).
DEFAULT_SHARE = 0.92
# Less is what any machine swaps out on a quiet night.
MUCH_SWAP = 1024**3
# A desktop and its browser hold less; an engine holds more.
MUCH_MEMORY = 4 * 1024**3


def findings(sight: Sight) -> Iterator[Finding]:
    for node, detail in sight.seen():
        if node.accelerator != "gb10":
            continue
        yield from _share(sight, node, detail)
        if detail.memory is None:
            yield SWAP_IN_USE.unknown(node.name, "the node told no memory")
            yield KERNEL_CMA_ZERO.unknown(node.name, "the node told no memory")
            continue
        used = detail.memory.swap_total - detail.memory.swap_free
        said = f"{gib(used)} of {gib(detail.memory.swap_total)} in use"
        yield SWAP_IN_USE.warn(node.name, said) if used > MUCH_SWAP else SWAP_IN_USE.passed(node.name, said)
        yield _cma(node, detail, detail.memory)


def _cma(node: Node, detail: NodeDetail, memory: Memory) -> Finding:
    if memory.cma_total is None:
        return KERNEL_CMA_ZERO.unknown(node.name, "the node told no CmaTotal")
    said = f"kernel {detail.kernel or 'unknown'} with CmaTotal {memory.cma_total // 1024} kB"
    return KERNEL_CMA_ZERO.passed(node.name, said) if memory.cma_total else KERNEL_CMA_ZERO.warn(node.name, said)


def _holder(held: Holder, names: Mapping[str, str]) -> str:
    much = "" if held.size is None else f" {gib(held.size)}"
    inside = f" in container {names.get(held.container, held.container[:12])}" if held.container else ""
    of = f" of {held.user}" if held.user else ""
    return f"{held.name} (pid {held.pid}{of}){inside}{much}"


def _end(node: Node, held: Holder, names: Mapping[str, str], facts: NodeFacts | None) -> str:
    """The command that gives back what the largest holder has; whether it may be ended is for its owner to say."""
    if held.container:
        return f"on {node.name}: docker stop {names.get(held.container, held.container[:12])}"
    own = facts is not None and held.user == facts.user
    return f"on {node.name}: {'' if own else 'sudo '}kill {held.pid}, or lower engine/memory_utilization in the profile"


def _share(sight: Sight, node: Node, detail: NodeDetail) -> Iterator[Finding]:
    if sight.resolved is None or sight.serves(node.name):
        return
    memory = detail.memory
    if memory is None:
        yield MEMORY_LOW.unknown(node.name, "the node told no memory")
        yield PAGE_CACHE_HOLDS_MEMORY.unknown(node.name, "the node told no memory")
        return
    share = sight.resolved.profile.engine.memory_utilization or DEFAULT_SHARE
    wanted = share * memory.total
    said = (
        f"MemFree {gib(memory.free)} and MemAvailable {gib(memory.available)}, "
        f"{gib(wanted)} wanted ({share:g} of {gib(memory.total)})"
    )
    if memory.available < wanted:
        facts = sight.facts.get(node.name)
        names = {each.id: each.name for each in facts.others} if facts else {}
        held = [each for each in detail.holders if each.on_gpu or (each.size or 0) >= MUCH_MEMORY]
        held.sort(key=lambda each: (each.on_gpu, each.size or 0), reverse=True)
        who = "; held by " + ", ".join(_holder(each, names) for each in held) if held else ""
        yield MEMORY_LOW.fail(node.name, said + who, _end(node, held[0], names, facts) if held else "")
        return
    yield MEMORY_LOW.passed(node.name, said)
    cached = memory.free < wanted
    yield PAGE_CACHE_HOLDS_MEMORY.warn(node.name, said) if cached else PAGE_CACHE_HOLDS_MEMORY.passed(node.name, said)
