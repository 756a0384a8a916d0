"""Where a verb stands: what the operator wrote, the nodes he can reach, and what they answered.

A verb asks once, then decides on the answers. The operator may stand anywhere with SSH or on one of the nodes; that
node is recognised by its address and is then reached without SSH. Without a cluster file the embedded one is used:
two loopback nodes on this machine.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.facts.node import NodeFacts, UnreadableFactsError, parse, question
from orchestrator.plan.resolve import Pins, PlanError, Wish, resolve
from orchestrator.plan.resolved import Resolved
from orchestrator.run.at_once import at_once
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError, Transport
from orchestrator.spec.cluster import Bits, Cluster, GatewayAt, Node, Rail, Ssh
from orchestrator.spec.problems import SpecError
from orchestrator.spec.profile import Executor, Profile
from orchestrator.verbs.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.run.sshsettings import Files

# Constants that a test validates: made without pydantic's validators, which every command would have to build first.
EMBEDDED = Cluster.model_construct(
    name="embedded",
    topology="loopback",
    nodes=(
        Node.model_construct(
            name="node-a", rails=(Rail.model_construct(netdev="lo", address="127.0.0.2"),), accelerator="none"
        ),
        Node.model_construct(
            name="node-b", rails=(Rail.model_construct(netdev="lo", address="127.0.0.3"),), accelerator="none"
        ),
    ),
    gateway=GatewayAt.model_construct(address="127.0.0.1"),
    bits=Bits.model_construct(models="~/.cache/sparkctl/models", models_from="~/.cache/sparkctl/models"),
)

# What a profile for Sparks is planned for where there is no cluster file: nodes named as NVIDIA's guide names them.
EXAMPLE = Cluster.model_construct(
    name="example",
    topology="switch",
    nodes=tuple(
        Node.model_construct(
            name=f"spark-{number}",
            ssh=Ssh.model_construct(host=f"spark-{number}", user="spark"),
            rails=(
                Rail.model_construct(netdev="enp1s0f0np0", rdma="rocep1s0f0", address=f"192.168.100.{10 + number}"),
                Rail.model_construct(netdev="enP2p1s0f0np0", rdma="roceP2p1s0f0", address=f"192.168.101.{10 + number}"),
            ),
        )
        for number in range(1, 17)
    ),
)

GATHER_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Ask:
    """What the command line said, before any file was read. ``profile`` is empty where a stored plan is to say it."""

    profile: str
    nodes: int | None = None
    executor: Executor | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files that an ``Ask`` leads to, resolved. ``origin`` says which cluster this is, for people."""

    resolved: Resolved
    origin: str
    example: bool


def choose(catalog: Catalog, ask: Ask, *, may_assume: bool) -> Chosen:
    """Read cluster, profile and pins and resolve them; every problem of one ring at once, as a ``UsageError``.

    ``may_assume`` lets a profile for Sparks be planned for example nodes where there is no cluster file.
    """
    try:
        profile = catalog.profile(ask.profile)
        _check_waivers(catalog, profile)
        cluster, origin, example = _cluster(catalog, profile, may_assume=may_assume)
        pins = pins_of(catalog, profile)
        file = "the embedded cluster" if cluster is EMBEDDED else catalog.cluster_file
        wish = Wish(profile, ask.nodes, ask.executor, ask.name, "the example cluster" if example else file)
        return Chosen(resolve(wish, cluster, pins), origin, example)
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None
    except PlanError as error:
        raise UsageError(*error.problems, remedy=error.remedy) from None


def pins_of(catalog: Catalog, profile: Profile) -> Pins:
    """Every card that ``profile`` names. Raises ``SpecError``."""
    speculative = profile.engine.speculative
    return Pins(
        stacks={name: catalog.stack(name) for name in sorted(set(profile.stack.values()))},
        model=catalog.model(profile.model),
        draft=catalog.model(speculative.draft) if speculative and speculative.draft else None,
    )


def _check_waivers(catalog: Catalog, profile: Profile) -> None:
    """Imports the doctor only for a profile that has waivers: a plan need not wait for all of its rules."""
    if not profile.waivers:
        return
    from orchestrator.doctor.waive import problems

    if wrong := problems(profile, catalog.known_bad()):
        raise UsageError(*wrong, remedy="docs/doctor.md lists the codes")


def _cluster(catalog: Catalog, profile: Profile, *, may_assume: bool) -> tuple[Cluster, str, bool]:
    cluster = catalog.cluster()
    if profile.runtime == "process":
        own = cluster is not None and cluster.topology == "loopback"
        return (cluster if own and cluster else EMBEDDED), "this machine (loopback nodes)", False
    if cluster is not None:
        return cluster, f"cluster {cluster.name}", False
    if may_assume:
        return EXAMPLE, "example nodes, because there is no cluster.yaml", True
    raise UsageError(
        f"profiles/{profile.name}.yaml is for a cluster, and there is no cluster.yaml here or in ~/.config/sparkctl",
        remedy="write one with `sparkctl init HOST…`, or try `sparkctl up tiny` on this machine",
    )


def clusters(catalog: Catalog, *, named_only: bool = False) -> tuple[Cluster, ...]:
    """Where deployments may be: the operator's cluster if there is one, then this machine's own.

    ``named_only`` leaves this machine's own out where a cluster file was named. Raises ``UsageError``.
    """
    try:
        cluster = catalog.cluster()
        if cluster is None:
            return (EMBEDDED,)
        alone = cluster.topology == "loopback" or (named_only and catalog.cluster_path is not None)
        return (cluster,) if alone else (cluster, EMBEDDED)
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None


def seats(cluster: Cluster, nodes: Iterable[Node] | None = None) -> dict[str, Transport]:
    """One transport per node (default: every node of the cluster); nothing is connected yet."""
    from orchestrator.run.local import LocalTransport

    own = own_addresses()
    found: dict[str, Transport] = {}
    config = ssh_files(cluster).config
    for node in cluster.nodes if nodes is None else nodes:
        if node.ssh is None or stands_on(node, own):
            found[node.name] = LocalTransport(node.name)
        else:
            from orchestrator.run.ssh import SshTransport

            found[node.name] = SshTransport(node.name, node.ssh, config=config)
    return found


def ssh_files(cluster: Cluster) -> Files:
    """The SSH files that the cluster file names in place of the operator's own."""
    from orchestrator.run.sshsettings import Files

    return Files(config=Path(cluster.ssh_config).expanduser() if cluster.ssh_config else None)


def own_addresses() -> frozenset[str]:
    """This machine's IPv4 addresses and names, so that a node can be recognised as the one we stand on."""
    name = os.uname().nodename
    found = {name}
    try:
        import subprocess

        argv = ("ip", "-4", "-o", "addr", "show")
        text = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False).stdout
        found |= {word.partition("/")[0] for line in text.splitlines() for word in line.split()[3:4]}
    except (OSError, subprocess.SubprocessError):
        pass
    return frozenset(found)


def stands_on(node: Node, own: frozenset[str]) -> bool:
    """Whether ``node`` is this machine: one of its rails or its SSH host is an address or the name of ours."""
    hosts = {rail.address for rail in node.rails} | ({node.ssh.host} if node.ssh else set())
    return any(host in own for host in hosts if not host.startswith("127."))


@dataclass(frozen=True, slots=True)
class Answers:
    """What the nodes said, and which did not answer and why."""

    facts: Mapping[str, NodeFacts]
    silent: Mapping[str, NodeError]


def gather(transports: Mapping[str, Transport], deployment: str) -> Answers:
    """Ask every node at once; one round trip each."""

    def ask(name: str) -> NodeFacts | NodeError:
        transport = transports[name]
        try:
            result = transport.run(question(deployment), deadline_s=GATHER_DEADLINE_S)
            return _with_python(parse(name, result.stdout), transport)
        except UnreadableFactsError as error:
            return NodeError(name, str(error), "look at what the shell of that user prints when it starts")
        except NodeError as error:
            return error

    answers = at_once(ask, transports, transports)
    return Answers(
        {name: answer for name, answer in answers.items() if isinstance(answer, NodeFacts)},
        {name: answer for name, answer in answers.items() if isinstance(answer, NodeError)},
    )


def _with_python(facts: NodeFacts, transport: Transport) -> NodeFacts:
    from orchestrator.run.local import LocalTransport

    if not isinstance(transport, LocalTransport):
        return facts
    beside = Path(sys.executable).parent
    found = {name for name in ("ray", "vllm") if os.access(beside / name, os.X_OK)}
    found |= {"haproxy"} if os.access(haproxy(), os.X_OK) else set()
    return replace(facts, python=sys.executable, haproxy=haproxy(), programs=frozenset(found))


def haproxy() -> str:
    """This machine's HAProxy: the one beside this Python first, so that every call finds the same whatever PATH says.

    An ordinary user's PATH often lacks the sbin folders where Debian puts it.
    """
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    return shutil.which("haproxy", path=path) or "haproxy"


def local_facts(node: Node) -> NodeFacts:
    """Facts of a node that is this machine, without asking a shell: enough for a plan."""
    return NodeFacts(
        node=node.name,
        user=os.environ.get("USER", ""),
        uid=os.getuid(),
        hostname=os.uname().nodename,
        arch=os.uname().machine,
        now=0.0,
        home=str(Path.home()),
        python=sys.executable,
        haproxy=haproxy(),
    )
