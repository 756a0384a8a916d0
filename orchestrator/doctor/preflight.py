"""Rules over a plan and the nodes' facts, checked before anything is copied or started. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from orchestrator.doctor.finding import Finding
from orchestrator.facts.node import Listener, NodeFacts
from orchestrator.plan.launch import LaunchPlan, Rank

# What `uname -m` says and what an image's architecture is called.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def findings(plan: LaunchPlan, facts: Mapping[str, NodeFacts], ours: tuple[LaunchPlan, ...]) -> tuple[Finding, ...]:
    """Everything that stands in the way, in the order of the nodes. What older generations hold does not count.

    A node without facts is passed over: it did not answer, and that is said elsewhere.
    """
    found: list[Finding] = list(_pins(plan))
    for name in dict.fromkeys((*plan.nodes, plan.gateway.node)):
        node = facts.get(name)
        if node is None:
            continue
        found += docker(node) if plan.runtime == "docker" else ()
        found += _programs(plan, node)
        strangers = tuple(_strangers(plan, node, ours))
        # The ports of another deployment of ours are taken by it; one finding says what to do about all of them.
        found += strangers or _ports(plan, node, _held(ours, name))
    return tuple(found)


def _pins(plan: LaunchPlan) -> Iterator[Finding]:
    for bits in plan.images:
        if not bits.digest:
            yield Finding(
                "IMAGE_DIGEST_UNKNOWN",
                ", ".join(bits.nodes),
                f"no digest for {bits.repository} in pins/stacks/{plan.stack}.yaml",
                "an image pinned by digest",
                "build or resolve it and write the digest into the stack; containers/README.md says how",
            )


def docker(node: NodeFacts) -> Iterator[Finding]:
    """Whether the node's user can have docker do something, and what is in the way."""
    if node.docker is not None:
        return
    problem = node.docker_problem
    if "permission denied" in problem.lower():
        yield Finding(
            "DOCKER_NO_RIGHTS",
            node.node,
            f"user {node.user} may not talk to docker",
            f"{node.user} in group docker",
            f"on {node.node}: sudo usermod -aG docker {node.user}, then log in again",
        )
    elif "cannot connect" in problem.lower() or "failed to connect" in problem.lower():
        yield Finding(
            "DOCKER_DOWN", node.node, problem[:160], "a running docker", f"on {node.node}: sudo systemctl start docker"
        )
    else:
        yield Finding(
            "DOCKER_ABSENT",
            node.node,
            problem[:160],
            "docker",
            f"on {node.node}: sudo apt-get update && sudo apt-get install -y docker.io",
        )


def _programs(plan: LaunchPlan, node: NodeFacts) -> Iterator[Finding]:
    """Without containers the node itself must have what the plan starts; not looked at where ``programs`` is None."""
    if plan.runtime != "process" or node.programs is None:
        return
    steps = {
        step.argv[0] for rank in plan.ranks if rank.node == node.node for step in rank.rank_file.steps if step.argv
    }
    wanted = {word.rpartition("/")[2] for word in steps} & {"ray", "vllm"}
    if plan.gateway.node == node.node:
        wanted.add("haproxy")
    for name in sorted(wanted - node.programs):
        own = name == "haproxy"
        yield Finding(
            "PROGRAM_ABSENT",
            node.node,
            f"no {name}" + ("" if own else f" beside {node.python}"),
            f"{name}, which this profile runs without a container",
            "install HAProxy (apt-get install haproxy)" if own else "in a clone of sparkctl's repository: make up",
        )


def _ports(plan: LaunchPlan, node: NodeFacts, held: frozenset[int]) -> Iterator[Finding]:
    for port, what, address in wanted_ports(plan, node.node):
        taken = [each for each in node.listeners if each.port == port and _overlap(each, address)]
        if taken and port not in held:
            owner, end = _owner(node, taken[0])
            yield Finding(
                "PORT_TAKEN",
                node.node,
                f"port {port} ({what}) taken by {owner} on {taken[0].address}",
                f"port {port} free",
                f"on {node.node}: {end}; or choose another port ({_where(what, plan.profile)})",
            )


def _owner(node: NodeFacts, listener: Listener) -> tuple[str, str]:
    """Who listens, and the next step: the command that ends a container, or that shows what a process is.

    Never one that ends a process: it may serve somebody.
    """
    for each in node.others:
        if listener.port in each.ports:
            return f"container {each.name} ({each.image})", f"docker stop {each.name}"
    pid = re.search(r"\(pid (\d+)\)", listener.owner)
    if pid:
        return listener.owner, f"ps -o user,lstart,args -p {pid[1]} shows what that is, and whose"
    hosts = [each.name for each in node.others if each.on_host]
    perhaps = f", perhaps of container {' or '.join(hosts)}" if hosts else ""
    return f"a process of another user{perhaps}", f"sudo ss -ltnp 'sport = :{listener.port}'"


def _where(what: str, profile: str) -> str:
    return "gateway/port in cluster.yaml" if what == "gateway" else f"ports/{what} in profiles/{profile}.yaml"


def _overlap(listener: Listener, address: str) -> bool:
    wild = {"0.0.0.0", "*", "::", ""}  # noqa: S104 -- compared, not bound
    return listener.address in wild or address in wild or listener.address.partition("%")[0] == address


def wanted_ports(plan: LaunchPlan, node: str) -> tuple[tuple[int, str, str], ...]:
    """(port, what for, address) of everything that the plan will listen on at ``node``."""
    found: list[tuple[int, str, str]] = []
    for rank in plan.ranks:
        if rank.node != node:
            continue
        found.append((rank.rank_file.agent_port, "agent", rank.address))
        if rank.rank == 0:
            found.append((rank.rank_file.check_port, "check", rank.address))
            host, _, port = rank.rank_file.service.base_url.removeprefix("http://").rpartition(":")
            found.append((int(port), "engine", host))
            found += _of_the_executor(rank)
    if plan.gateway.node == node:
        found.append((plan.gateway.port, "gateway", plan.gateway.bind))
        found.append((plan.gateway.metrics_port, "gateway_metrics", "127.0.0.1"))
    return tuple(found)


def _of_the_executor(head: Rank) -> Iterator[tuple[int, str, str]]:
    """Where the ranks find each other: what is told to Ray and to vLLM, read from their own words."""
    steps = head.rank_file.steps
    yield from ((step.port, "ray", head.address) for step in steps if step.kind == "tcp")
    words = [word for step in steps for word in step.argv]
    for word, after in itertools.pairwise((*words, "")):
        if word.startswith("--ray-client-server-port="):
            yield int(word.partition("=")[2]), "ray_client", "0.0.0.0"  # noqa: S104 -- Ray binds it wild
        if word == "--master-port":
            yield int(after), "rendezvous", head.address


def _held(ours: tuple[LaunchPlan, ...], node: str) -> frozenset[int]:
    return frozenset(port for old in ours for port, _, _ in wanted_ports(old, node))


def _strangers(plan: LaunchPlan, node: NodeFacts, ours: tuple[LaunchPlan, ...]) -> Iterator[Finding]:
    """Units of ours that no record explains: another deployment, or a generation whose record is gone."""
    known = {(old.deployment, old.generation, unit.rank) for old in ours for unit in old.units}
    strange = [u for u in node.units if u.running and (u.deployment, u.generation, u.rank) not in known]
    for deployment in dict.fromkeys(unit.deployment for unit in strange):
        names = ", ".join(unit.name for unit in strange if unit.deployment == deployment)
        gone = plan.runtime == "docker" and deployment == plan.deployment
        yield Finding(
            "NODE_IN_USE",
            node.node,
            f"deployment {deployment} runs there ({names})",
            "a node that serves one deployment",
            f"on {node.node}: docker rm --force {names.replace(',', '')}" if gone else f"sparkctl down {deployment}",
        )
