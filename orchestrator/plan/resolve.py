"""Cluster + profile + pins -> Resolved: which nodes, which split, which exact bits; or every reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.plan.engine_args import refusal
from orchestrator.plan.owned_env import env_problems
from orchestrator.plan.resolved import Resolved
from orchestrator.spec.cluster import Cluster
from orchestrator.spec.model import Model
from orchestrator.spec.pins import Stack
from orchestrator.spec.profile import Executor, Profile


class PlanError(Exception):
    """What cannot be planned. ``problems`` are whole sentences that name file, key, found and expected.

    ``remedy`` is a way out that holds for all of them; empty where the sentences say it themselves.
    """

    def __init__(self, problems: tuple[str, ...], remedy: str = "") -> None:
        super().__init__("\n".join(problems))
        self.problems, self.remedy = problems, remedy


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator asked for on the command line; ``None`` leaves the choice to the profile.

    ``cluster_file`` is what messages call the file that the cluster stands in.
    """

    profile: Profile
    nodes: int | None = None
    executor: Executor | None = None
    name: str | None = None
    cluster_file: str = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class Pins:
    """The cards that a profile names: ``stacks`` by name, the model, and the draft of its own that speculation uses."""

    stacks: Mapping[str, Stack]
    model: Model
    draft: Model | None = None


def resolve(wish: Wish, cluster: Cluster, pins: Pins) -> Resolved:
    """Make every choice. Raises ``PlanError`` with all problems at once."""
    stacks, model = pins.stacks, pins.model
    profile = wish.profile
    executor = wish.executor or profile.executor
    problems: list[str] = []
    count = wish.nodes or profile.nodes.default or profile.nodes.max
    stack_name = profile.stack.get(executor)
    if stack_name is None:
        known = ", ".join(sorted(profile.stack))
        problems.append(f"{_where(profile)} stack: should name a stack for executor {executor}, found only {known}")
    problems += _count_problems(wish, model, cluster, count)
    problems += _split_problems(profile, model, count)
    problems += _draft_problems(profile, model, pins.draft)
    problems += _flag_problems(profile)
    problems += [f"{wish.cluster_file} {each}" for each in _topology_problems(cluster, executor, count)]
    if stack_name is not None and executor == "ray" and "ray" not in stacks[stack_name].has:
        problems.append(
            f"pins/stacks/{stack_name}.yaml has: should list ray for executor ray, found "
            f"{', '.join(stacks[stack_name].has)}; use a stack that has Ray, or --executor mp"
        )
    if stack_name is not None:
        name = wish.name or profile.name
        nodes = cluster.nodes[:count]
        found = Resolved(name, cluster, profile, model, stacks[stack_name], executor, nodes, pins.draft)
        problems += [f"{_where(profile)} {each}" for each in env_problems(found)]
    if problems or stack_name is None:
        raise PlanError(tuple(problems), _other_counts(wish, model, cluster) if wish.nodes else "")
    return found


def _where(profile: Profile) -> str:
    return f"profiles/{profile.name}.yaml"


def _other_counts(wish: Wish, model: Model, cluster: Cluster) -> str:
    """The way out of a --nodes that is illegal: the counts that are not; empty when --nodes is not at fault."""
    legal = [count for count in legal_counts(wish.profile, model) if count <= len(cluster.nodes)]
    if not legal or wish.nodes in legal:
        return ""
    return f"use {' or '.join(f'--nodes {count}' for count in legal)}"


def _count_problems(wish: Wish, model: Model, cluster: Cluster, count: int) -> list[str]:
    profile = wish.profile
    if not profile.nodes.min <= count <= profile.nodes.max:
        legal = _either(legal_counts(profile, model)) or "a count that divides the model (none does)"
        return [f"--nodes: should be {legal} for profile {profile.name}, found {count}"]
    if count > len(cluster.nodes):
        names = ", ".join(node.name for node in cluster.nodes)
        found = f"found {len(cluster.nodes)} ({names})"
        return [f"{wish.cluster_file} nodes: should be at least {count} for this plan, {found}"]
    wrong = [node.name for node in cluster.nodes[:count] if node.accelerator != profile.accelerator]
    if wrong:
        return [
            f"{_where(profile)} accelerator: should be what the nodes have, found {profile.accelerator} "
            f"for {', '.join(wrong)}; this profile is made for other machines than these"
        ]
    return []


def _either(counts: tuple[int, ...]) -> str:
    *most, last = map(str, counts or ("",))
    return f"{', '.join(most)} or {last}" if most else last


def _split_problems(profile: Profile, model: Model, count: int) -> list[str]:
    if model.context_tokens is not None and model.context_tokens < profile.engine.context_tokens:
        return [
            f"{_where(profile)} engine/context_tokens: should be at most {model.context_tokens} "
            f"(pins/models/{model.name}.yaml), found {profile.engine.context_tokens}"
        ]
    legal = legal_counts(profile, model)
    reasons = _indivisible(profile, model, count)
    if not reasons or not profile.nodes.min <= count <= profile.nodes.max:
        return []
    way_out = f"legal node counts are {', '.join(map(str, legal))}" if legal else "no count in this profile is legal"
    return [f"{_where(profile)} nodes: {count} nodes do not divide: {'; '.join(reasons)}; {way_out}"]


def legal_counts(profile: Profile, model: Model) -> tuple[int, ...]:
    """The node counts of the profile that its model can be divided by."""
    wanted = range(profile.nodes.min, profile.nodes.max + 1)
    return tuple(count for count in wanted if not _indivisible(profile, model, count))


def _indivisible(profile: Profile, model: Model, count: int) -> list[str]:
    """Why ``count`` nodes cannot hold this split. vLLM's own rules: heads % tensor, experts % expert-parallel size."""
    engine, shape = profile.engine, model.architecture
    if count % engine.pipeline:
        return [f"nodes {count} % pipeline {engine.pipeline}"]
    tensor = count // engine.pipeline
    found = []
    if shape.heads is not None and shape.heads % tensor:
        found.append(f"heads {shape.heads} % tensor parallel {tensor}")
    if engine.expert_parallel and shape.experts is not None and shape.experts % tensor:
        found.append(f"experts {shape.experts} % expert parallel {tensor}")
    if tensor % engine.decode_context_parallel:
        found.append(f"tensor parallel {tensor} % decode context parallel {engine.decode_context_parallel}")
    return found


def _draft_problems(profile: Profile, model: Model, draft: Model | None) -> list[str]:
    """A draft knows the words and the hidden states of one model only: another one's tokens are never accepted."""
    where, wanted = f"{_where(profile)} engine/speculative", profile.engine.speculative
    found = []
    if model.draft_of:
        served = " or ".join(model.draft_of)
        found.append(
            f"{_where(profile)} model: should be what is served, found {model.name}, which only drafts for {served}"
        )
    if draft is not None and model.name not in draft.draft_of:
        of = f"a draft of {' and '.join(draft.draft_of)}" if draft.draft_of else "no draft (its card has no draft_of)"
        found.append(f"{where}/draft: should be a draft of {model.name}, found {draft.name}, {of}")
    if draft is not None and wanted is not None and wanted.method in ("mtp", "ngram"):
        found.append(f"{where}/draft: should be left out for method {wanted.method}, found {draft.name}")
    own = model.draft
    if draft is None and wanted is not None and own is not None and own.card and wanted.method == own.method:
        found.append(f"{where}/draft: should be {own.card}, {model.name} has no {own.method} layers itself; found none")
    if draft is None and wanted is not None and wanted.method == "draft_model":
        found.append(f"{where}/draft: should name a card of pins/models/ for method draft_model, found none")
    return found


def _flag_problems(profile: Profile) -> list[str]:
    refused = {flag: refusal(flag) for flag in profile.engine_args}
    return [f"{_where(profile)} engine_args/{flag}: {why}" for flag, why in refused.items() if why]


def _topology_problems(cluster: Cluster, executor: Executor, count: int) -> list[str]:
    found = []
    if cluster.topology == "ring" and len(cluster.nodes) >= 4 and executor == "ray":
        found.append("topology: a ring of four or more nodes cannot use Ray; use --executor mp or a switch")
    if cluster.topology == "ring" and count not in (1, 2, len(cluster.nodes)):
        found.append(f"topology: {count} of {len(cluster.nodes)} nodes of a ring are not a ring; use all of them")
    loopback = [node.name for node in cluster.nodes[:count] if node.rails[0].address.startswith("127.")]
    if loopback and count > 1 and cluster.topology != "loopback":
        found.append(
            f"nodes/{loopback[0]}/rails/0/address: should be an address that the other nodes reach, found "
            "a loopback address; loopback cannot be the rendezvous of several nodes"
        )
    return found
