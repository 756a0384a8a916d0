"""Where a rank's files and programs are, as the agent sees them: the one place that knows docker from process.

The same plan and the same agent run in both runtimes; only these paths differ.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from orchestrator.facts.node import STATE_ROOT, NodeFacts
from orchestrator.plan.resolved import Resolved
from orchestrator.spec.cluster import Node
from orchestrator.spec.model import Model


@dataclass(frozen=True, slots=True)
class Seat:
    """Paths of one rank. ``*_host`` are on the node; the others are what the agent and the engine see.

    ``models`` are the directories of ``Resolved.models``, in that order. ``bin`` ends in a slash, or is empty where the
    image's own PATH decides.
    """

    node: Node
    rank: int
    address: str
    state_host: str
    directory_host: str
    directory: str
    agent_host: str
    agent: str
    models_host: tuple[str, ...]
    models: tuple[str, ...]
    python: str
    bin: str
    scratch: str


def assumed_facts(node: Node) -> NodeFacts:
    """What a node is taken to be where nobody asked it: a plan without a live cluster still names its paths."""
    user = node.ssh.user if node.ssh is not None and node.ssh.user else "spark"
    home = "/root" if user == "root" else f"/home/{user}"
    return NodeFacts(node=node.name, user=user, uid=1000, hostname=node.name, arch="aarch64", now=0.0, home=home)


def gateway_node(resolved: Resolved) -> str:
    """The cluster file's choice where it is part of this deployment, otherwise the head."""
    chosen = resolved.cluster.gateway.node
    names = [node.name for node in resolved.nodes]
    return chosen if chosen in names else names[0]


def engine_address(resolved: Resolved) -> str:
    """Where the engine listens on the head: loopback, unless the gateway is on another node.

    vLLM asks for a key below /v1, /v2, /inference and /cohere only; /invocations, /tokenize, /scale_elastic_ep and
    others answer anybody who reaches the port.
    """
    head = resolved.nodes[0]
    own = head.rails[0].address
    if own.startswith("127.") or gateway_node(resolved) != head.name:
        return own
    return "127.0.0.1"


def state_root(facts: NodeFacts, deployment: str) -> str:
    return f"{facts.home}/{STATE_ROOT}/{deployment}"


def seat(resolved: Resolved, rank: int, facts: NodeFacts, numbers: tuple[int, str]) -> Seat:
    """Rank ``rank``'s paths; ``numbers`` is (generation, sha256 of the agent)."""
    generation, agent_sha256 = numbers
    node = resolved.nodes[rank]
    state = state_root(facts, resolved.deployment)
    directory_host = f"{state}/g{generation}/rank-{rank}"
    agent_host = f"{state}/agent/{agent_sha256}.pyz"
    models_host = tuple(model_directory(resolved, model, facts) for model in resolved.models)
    docker = resolved.profile.runtime == "docker"
    python = facts.python if not docker else (resolved.stack.image.python if resolved.stack.image else "python3")
    return Seat(
        node=node,
        rank=rank,
        address=node.rails[0].address,
        state_host=state,
        directory_host=directory_host,
        directory="/run/sparkctl" if docker else directory_host,
        agent_host=agent_host,
        agent="/opt/sparkctl/agent.pyz" if docker else agent_host,
        models_host=models_host,
        models=tuple(f"/models/{model.name}" for model in resolved.models) if docker else models_host,
        python=python,
        bin="" if docker or "/" not in python else python.rpartition("/")[0] + "/",
        scratch=f"/tmp/sparkctl-{rank}" if docker else scratch(facts, resolved.deployment, rank),  # noqa: S108
    )


def scratch(facts: NodeFacts, deployment: str, rank: int) -> str:
    """A rank's short-lived files on the node itself; inside a container they need no name of their own."""
    return f"/tmp/sparkctl-{facts.uid}-{_short(state_root(facts, deployment))}-{rank}"  # noqa: S108


def _short(text: str) -> str:
    """Eight hex digits: unix socket paths end at 107 bytes and Ray adds up to 66 to its temporary directory."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def model_directory(resolved: Resolved, model: Model, facts: NodeFacts) -> str:
    """Where a model lies on a node: one directory per revision, so that two revisions never mix."""
    root = expand(resolved.cluster.bits.models, facts.home)
    revision = f"-{model.revision[:12]}" if model.revision else ""
    return f"{root}/{model.name}{revision}"


def expand(path: str, home: str) -> str:
    """``~`` and ``~/…`` are the node user's home; anything else stays as it is."""
    if path == "~":
        return home
    return f"{home}/{path[2:]}" if path.startswith("~/") else path
