"""Rules over the plan alone: settings that start and then hurt. Fast: no node need be asked."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.memory import DEFAULT_SHARE
from orchestrator.doctor.sight import GIB, Sight, gib
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.resolved import Resolved

UTIL_TOO_HIGH_FOR_UMA = Code(
    "UTIL_TOO_HIGH_FOR_UMA",
    "engine/memory_utilization of at most 0.90",
    "On GB10 this share covers the system, the page cache and NCCL too; above 0.90 starts fail or long "
    "sessions run out of memory.",
    "set engine/memory_utilization in the profile, such as 0.85",
)
SHM_LARGE_ON_UMA = Code(
    "SHM_LARGE_ON_UMA",
    "shm_bytes of at most 32 GiB",
    "Shared memory is taken from the same memory as the weights. One operator saw sudden power-offs with 64 "
    "GiB and none "
    "with 10 GiB; that this was the cause is his guess "
    "(tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark issue 31).",
    "set shm_bytes: 10737418240 in the profile",
)
SHM_TOO_SMALL = Code(
    "SHM_TOO_SMALL",
    "shm_bytes above Ray's object store plus 1 GiB",
    "What does not fit into /dev/shm Ray keeps in /tmp, on the disk, and vLLM's queues between processes fail "
    "(docker's own default is 67108864 bytes).",
    "set shm_bytes: 10737418240 in the profile",
)
SPEC_DEPTH_OUTSIDE_KNOWN_GOOD = Code(
    "SPEC_DEPTH_OUTSIDE_KNOWN_GOOD",
    "a depth of speculation that is known to be good",
    "Beyond the depth that the draft was made for its tokens are rejected, and some versions of an engine "
    "refuse to start "
    "(vllm-project/vllm pull request 41834).",
    "set engine/speculative/tokens to the depth of the model's card",
)
EMPTY_NCCL_VALUE = Code(
    "EMPTY_NCCL_VALUE",
    "a value, or no variable at all",
    "An empty NCCL variable is not an unset one: an empty NCCL_IB_GID_INDEX is 0, a link-local address, and "
    "the connection fails.",
    "take the variable out of env in the profile",
)
GID_INDEX_PINNED = Code(
    "GID_INDEX_PINNED",
    "no NCCL_IB_GID_INDEX",
    "The index of the right GID differs between nodes and devices and moves with links and firmware; NCCL "
    "finds it by itself.",
    "take NCCL_IB_GID_INDEX out of env in the profile",
)
RAY_OPEN = Code(
    "RAY_OPEN",
    "Ray with token authentication",
    "Ray listens on every address of a node, and without a token whoever reaches it can run any program there.",
    "take RAY_AUTH_MODE out of env in the profile; the plan sets it to token",
)
SPEC_WITHOUT_HEAD = Code(
    "SPEC_WITHOUT_HEAD",
    "a method of speculation that the model has a head for",
    "The weights of another head are not in the checkpoint: DeepSeek-V4-Flash-0731 has a DSpark head and none for mtp "
    "(vllm-project/recipes, DeepSeek-V4-Flash).",
    "set engine/speculative/method to the method of the model's card",
)
CHAT_TEMPLATE_NOT_THERE = Code(
    "CHAT_TEMPLATE_NOT_THERE",
    "a chat template that the container can read",
    "vLLM ends at start: the supplied chat template string appears path-like, but doesn't exist "
    "(eugr/spark-vllm-docker issue 294).",
    "use a file of the model's own folder, or leave chat-template out of engine_args: the model brings one",
)
DATA_PARALLEL_OVER_RAY = Code(
    "DATA_PARALLEL_OVER_RAY",
    "executor mp for data parallel ranks on several nodes",
    "vLLM's Ray executor has no way between nodes for the messages of data parallel ranks: the start waits 30 minutes "
    "and ends with Gloo's Timed out waiting 1800000ms (vllm-project/vllm issue 43420).",
    "sparkctl up PROFILE --executor mp, or take data-parallel-size out of engine_args",
)
SUBNET_PREFIX_INVALID = Code(
    "SUBNET_PREFIX_INVALID",
    "an NCCL_IB_SUBNET_PREFIX_LEN of 1 to 32",
    "NCCL compares so many bits of two addresses to see whether they share a subnet, 24 where nobody says otherwise; "
    "outside of 1 to 32 it cannot (NCCL 2.30.7, net_ib/connect.cc).",
    "take NCCL_IB_SUBNET_PREFIX_LEN out of env in the profile, or set it to the prefix length of the rails",
)
# -1 is NCCL's own default: it looks for the index itself.
FREE_INDEX = ("", "-1")
LARGE_SHM, LEAST_SHM = 32 * GIB, GIB


def findings(sight: Sight) -> Iterator[Finding]:
    if sight.plan is None or sight.resolved is None:
        return
    yield from _memory(sight.resolved, sight.plan)
    yield from _depth(sight.resolved)
    yield from _arguments(sight.resolved, sight.plan)
    yield from _environment(sight.plan)


def _memory(resolved: Resolved, plan: LaunchPlan) -> Iterator[Finding]:
    profile = resolved.profile
    if profile.accelerator == "gb10":
        share = profile.engine.memory_utilization or DEFAULT_SHARE
        said = f"{share:g}" + ("" if profile.engine.memory_utilization else ", vLLM's own default")
        yield UTIL_TOO_HIGH_FOR_UMA.warn("", said) if share > 0.90 else UTIL_TOO_HIGH_FOR_UMA.passed("", said)
    container = plan.ranks[0].unit.container
    if container is None:
        return
    said = f"{container.shm_bytes} ({gib(container.shm_bytes)})"
    floor = LEAST_SHM + (profile.ray.object_store_bytes if plan.executor == "ray" else 0)
    yield SHM_TOO_SMALL.warn("", said) if container.shm_bytes < floor else SHM_TOO_SMALL.passed("", said)
    if profile.accelerator == "gb10":
        large = container.shm_bytes > LARGE_SHM
        yield SHM_LARGE_ON_UMA.warn("", said) if large else SHM_LARGE_ON_UMA.passed("", said)


def _depth(resolved: Resolved) -> Iterator[Finding]:
    wanted, draft = resolved.profile.engine.speculative, resolved.model.draft
    if wanted is None:
        return
    card = f"pins/models/{resolved.model.name}.yaml"
    if wanted.method == "mtp" and draft is not None and draft.method != "mtp":
        notes = f" ({' '.join(draft.notes)})" if draft.notes else ""
        remedy = f"set engine/speculative/method: {draft.method} in profiles/{resolved.profile.name}.yaml"
        yield SPEC_WITHOUT_HEAD.warn("", f"mtp, while {card} knows {draft.method}{notes}", remedy)
        return
    if draft is None or draft.tokens is None or draft.method != wanted.method:
        yield SPEC_DEPTH_OUTSIDE_KNOWN_GOOD.unknown("", f"{card} says nothing about {wanted.method}")
    elif wanted.tokens > draft.tokens:
        notes = f"; {' '.join(draft.notes)}" if draft.notes else ""
        remedy = f"set engine/speculative/tokens: {draft.tokens} in profiles/{resolved.profile.name}.yaml"
        said = f"{wanted.method} {wanted.tokens}, while {card} knows {draft.tokens}{notes}"
        yield SPEC_DEPTH_OUTSIDE_KNOWN_GOOD.warn("", said, remedy)
    else:
        yield SPEC_DEPTH_OUTSIDE_KNOWN_GOOD.passed("", f"{wanted.method} {wanted.tokens}")


def _arguments(resolved: Resolved, plan: LaunchPlan) -> Iterator[Finding]:
    """Of what a profile hands to the engine as it is: what refers to something outside of it."""
    args = resolved.profile.engine_args
    if "chat-template" in args and plan.runtime == "docker":
        yield _template(str(args["chat-template"]), plan)
    ways = str(args.get("data-parallel-size", 1))
    if ways != "1" and plan.executor == "ray" and len(plan.nodes) > 1:
        yield DATA_PARALLEL_OVER_RAY.warn("", f"data-parallel-size {ways} on {len(plan.nodes)} nodes with Ray")


def _template(said: str, plan: LaunchPlan) -> Finding:
    """A template may also be written out in place; a file must lie in what is mounted."""
    if "{" in said or "\n" in said:
        return CHAT_TEMPLATE_NOT_THERE.passed("", "written out in the profile")
    inside = [mount.target.rstrip("/") for rank in plan.ranks[:1] for mount in rank.unit.mounts]
    if any(said.startswith(f"{target}/") or said == target for target in inside):
        return CHAT_TEMPLATE_NOT_THERE.passed("", said)
    return CHAT_TEMPLATE_NOT_THERE.fail("", f"{said}, which is in none of the folders {', '.join(inside) or '(none)'}")


def _environment(plan: LaunchPlan) -> Iterator[Finding]:
    ranks = {rank.node: rank.unit.env for rank in plan.ranks}
    empty = sorted({name for env in ranks.values() for name, value in env.items() if _is_network(name) and not value})
    yield _either(EMPTY_NCCL_VALUE, empty, "fail")
    pinned = sorted(
        {
            f"{name}={env[name]}"
            for env in ranks.values()
            for name in ("NCCL_IB_GID_INDEX",)
            if env.get(name, "") not in FREE_INDEX
        }
    )
    yield _either(GID_INDEX_PINNED, pinned, "warn")
    lengths = {env.get("NCCL_IB_SUBNET_PREFIX_LEN", "") for env in ranks.values()} - {""}
    wrong = sorted(each for each in lengths if not (each.isdigit() and 1 <= int(each) <= 32))
    yield _either(SUBNET_PREFIX_INVALID, [f"NCCL_IB_SUBNET_PREFIX_LEN={each}" for each in wrong], "fail")
    if plan.executor == "ray":
        open_on = [node for node, env in ranks.items() if env.get("RAY_AUTH_MODE") != "token"]
        yield _either(RAY_OPEN, [f"no token on {', '.join(open_on)}"] if open_on else [], "warn")


def _is_network(name: str) -> bool:
    return name.startswith(("NCCL_", "GLOO_", "TP_SOCKET", "UCX_", "OMPI_"))


def _either(code: Code, bad: list[str], verdict: str) -> Finding:
    if not bad:
        return code.passed("", "none")
    return code.fail("", ", ".join(bad)) if verdict == "fail" else code.warn("", ", ".join(bad))
