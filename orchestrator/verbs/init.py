"""``sparkctl init HOST…``: from a list of hosts to a commented ``cluster.yaml``, with nothing changed on any node."""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.facts import cabling, fabric
from orchestrator.facts.detail import NodeDetail
from orchestrator.facts.topology import Found, decide
from orchestrator.plan.cluster_text import Known, cluster_text
from orchestrator.run.sshsettings import Files
from orchestrator.run.transport import NodeError, Transport
from orchestrator.spec.cluster import Cluster, Ssh
from orchestrator.spec.parsing import parse
from orchestrator.spec.problems import SpecError
from orchestrator.verbs import details as asking
from orchestrator.verbs.errors import UsageError, VerbError
from orchestrator.verbs.hosts import Trust, acquaint, read, with_way_in
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.world import own_addresses

MOST_NODES = 64
_NAME = re.compile(r"[a-z0-9]+((-+|\.)[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line said. ``out`` is None where nothing is to be written; ``ssh_config`` empty: your own."""

    hosts: tuple[str, ...]
    out: Path | None
    force: bool = False
    ssh_config: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found. ``text`` is the file, empty where none can be written; ``written`` says whether it was.

    ``details`` are by node, ``silent`` by the host as it was typed.
    """

    details: Mapping[str, NodeDetail]
    silent: Mapping[str, NodeError] = field(default_factory=dict)
    found: Found | None = None
    remarks: tuple[str, ...] = ()
    text: str = ""
    written: bool = False


def init(wish: Wish, trust: Trust) -> Outcome:
    """Ask the hosts, find the topology and write the file. Raises ``VerbError``; a node's failure is in the outcome."""
    hosts = read(wish.hosts)
    _check(wish, trust)
    files = Files(config=Path(wish.ssh_config).expanduser() if wish.ssh_config else None)
    here = _here(hosts)
    failed = acquaint({name: ssh for name, ssh in hosts.items() if name not in here}, files, trust)
    with sitting(_transports({name: ssh for name, ssh in hosts.items() if name not in failed}, here, files)) as seats:
        answers = asking.gather(seats)
        silent = {name: with_way_in(error) for name, error in (failed | dict(answers.silent)).items()}
        named = _named(answers.details)
        details = {each.node: each for each in named.values()}
        if silent:
            return Outcome(details, {name: silent[name] for name in hosts if name in silent})
        _distinct(named)
        links = fabric.pairs(list(details.values()))
        echoes = asking.ping({each.node: seats[host] for host, each in named.items()}, fabric.pings(links))
    if echoes.silent:
        return Outcome(details, echoes.silent)
    ssh = {each.node: hosts[host] for host, each in named.items() if host not in here}
    return _concluded(wish, Known(details, ssh, wish.ssh_config), fabric.tried(links, echoes.reached))


def _concluded(wish: Wish, known: Known, links: Sequence[fabric.Link]) -> Outcome:
    found = decide(list(known.details.values()), links)
    if found.topology is None:
        return Outcome(known.details, found=found)
    remarks = cabling.remarks(found, known.details.values(), links)
    text = cluster_text(found, known, remarks)
    _proof(text)
    if wish.out:
        _write(wish.out, text, force=wish.force)
    return Outcome(known.details, {}, found, remarks, text, written=wish.out is not None)


def _check(wish: Wish, trust: Trust) -> None:
    """Everything that can be wrong before any node is asked."""
    problems = trust.problems()
    if not 1 <= len(wish.hosts) <= MOST_NODES:
        problems.append(f"HOST: should be 1 to {MOST_NODES} hosts, found {len(wish.hosts)}")
    if wish.ssh_config and not Path(wish.ssh_config).expanduser().is_file():
        problems.append(f"--ssh-config: should be a file, found nothing at {wish.ssh_config}")
    if problems:
        raise UsageError(*problems)
    if wish.out and os.path.lexists(wish.out) and not wish.force:
        raise UsageError(f"{wish.out} is there already", remedy="name another with --out, or overwrite it with --force")


def _here(hosts: Mapping[str, Ssh]) -> frozenset[str]:
    """Those hosts that are this machine; they are asked without SSH. A loopback address is somebody's tunnel."""
    own = own_addresses()
    return frozenset(
        name
        for name, ssh in hosts.items()
        if ssh.port == 22 and not ssh.host.startswith("127.") and {ssh.host, ssh.host.removesuffix(".local")} & own
    )


def _transports(hosts: Mapping[str, Ssh], here: frozenset[str], files: Files) -> dict[str, Transport]:
    from orchestrator.run.local import LocalTransport
    from orchestrator.run.ssh import SshTransport

    return {
        name: LocalTransport(name) if name in here else SshTransport(name, ssh, files.known_hosts, files.config)
        for name, ssh in hosts.items()
    }


def _named(details: Mapping[str, NodeDetail]) -> dict[str, NodeDetail]:
    """Nodes are called by their own host names; where those are no names or not unique, ``spark-1`` and so on."""
    wanted = [
        re.sub(r"[^a-z0-9.]+", "-", each.hostname.lower().partition(".")[0]).strip("-") for each in details.values()
    ]
    good = all(_NAME.fullmatch(name) and len(name) <= 42 for name in wanted) and len(set(wanted)) == len(wanted)
    names = wanted if good else [f"spark-{number}" for number in range(1, len(wanted) + 1)]
    return {host: replace(each, node=name) for name, (host, each) in zip(names, details.items(), strict=True)}


def _distinct(named: Mapping[str, NodeDetail]) -> None:
    """Two names of one machine would pair with themselves over loopback."""
    told = {host: _identity(each) for host, each in named.items()}
    for identity, count in Counter(told.values()).items():
        if count > 1:
            same = [host for host, each in told.items() if each == identity]
            raise UsageError(
                f"{' and '.join(same)} are the same machine ({identity[0]})", remedy="name each machine once"
            )


def _identity(detail: NodeDetail) -> tuple[str, Sequence[str]]:
    return detail.hostname, tuple(sorted(address for each in detail.netdevs or () for address in each.addresses))


def _proof(text: str) -> None:
    """What init writes must be what sparkctl reads."""
    try:
        parse(text, "cluster.yaml", Cluster)
    except SpecError as error:
        raise VerbError(
            "what was found makes no cluster file:",
            *(str(problem) for problem in error.problems),
            remedy="run it with --json and write cluster.yaml by hand; docs/cluster.md has a commented example",
        ) from None


def _write(out: Path, text: str, *, force: bool) -> None:
    """Whole or not at all, and never over a file that appeared meanwhile."""
    beside = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        try:
            if force:
                beside.replace(out)
            else:
                os.link(beside, out)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as problem:
        raise VerbError(f"cannot write {out}: {problem.strerror}", remedy="name another file with --out") from None
