"""``support-bundle``: one file that lets somebody else see what happened, without a secret in it."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import __version__
from orchestrator.doctor import rules
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.redact import redact
from orchestrator.doctor.sight import Sight
from orchestrator.facts.node import question
from orchestrator.plan import runtime
from orchestrator.plan.launch import LaunchPlan
from orchestrator.run.at_once import at_once
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import NodeError, Transport
from orchestrator.spec.cluster import Cluster
from orchestrator.spec.pins import KnownBadTable
from orchestrator.spec.problems import SpecError
from orchestrator.verbs import names, secrets, world
from orchestrator.verbs.doctor import details
from orchestrator.verbs.errors import UsageError
from orchestrator.verbs.evidence import in_words, kept_logs
from orchestrator.verbs.running import Running, running
from orchestrator.verbs.silent import told, unlisted
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.world import Answers

LINES = 5000
ASK_S = 30.0


@dataclass(frozen=True, slots=True)
class Bundle:
    """Where it lies, the names of what is in it, and the nodes that did not answer."""

    path: Path
    members: tuple[str, ...]
    silent: Mapping[str, NodeError]


def support_bundle(catalog: Catalog, name: str, out: Path) -> Bundle:
    """Collect what is known of deployment ``name``. Nodes that are silent are said to be so in the bundle.

    Raises ``UsageError`` when ``out`` cannot be written; it is not written over.
    """
    names.check(name, "NAME")
    members: dict[str, str] = {"versions.json": _versions()}
    silent: dict[str, NodeError] = {}
    for cluster in world.clusters(catalog):
        with sitting(world.seats(cluster)) as seats:
            members |= _of_cluster(catalog, cluster, seats, (name, silent))
    members |= {f"kept/{path}": text for path, text in kept_logs(name)}
    known_of = any(path.startswith("kept/") or path.endswith(("plan.json", "unrecorded.txt")) for path in members)
    if not known_of and not silent:
        raise UsageError(
            f"NAME: should be a deployment that something is known of, found {name}", remedy="sparkctl status"
        )
    known = _known_secrets(name)
    clean = {path: redact(text, known) for path, text in sorted(members.items())}
    _write(out, clean)
    return Bundle(out, tuple(clean), silent)


def _of_cluster(
    catalog: Catalog, cluster: Cluster, seats: Mapping[str, Transport], of: tuple[str, dict[str, NodeError]]
) -> dict[str, str]:
    name, silent = of
    where = f"cluster-{cluster.name}"
    answers = world.gather(seats, name)
    silent |= answers.silent
    found = {f"{where}/cluster.json": cluster.model_dump_json(indent=2)}
    found |= {f"{where}/{node}/silent.txt": f"{error}\n{error.remedy}\n" for node, error in answers.silent.items()}
    found |= dict(_facts(where, seats, name))
    now = running(answers.facts, name, cluster.topology)
    if now.unreadable or now.remains:
        found[f"{where}/unrecorded.txt"] = "\n".join((*now.unreadable, *now.remains)) + "\n"
    found[f"{where}/findings.txt"] = in_words(_findings(catalog, cluster, seats, (answers, now)))
    if now.plan is None:
        return found
    found[f"{where}/plan.json"] = now.plan.canonical()
    found[f"{where}/differs.txt"] = "\n".join((*now.differs, *now.unrecorded)) + "\n"
    gone = unlisted(now, cluster)
    silent |= gone
    if gone:  # in one file, for names out of a record make no paths here
        found[f"{where}/unlisted.txt"] = "\n".join(told(gone)) + "\n"
    return found | dict(_logs(where, now.plan, seats))


def _findings(
    catalog: Catalog, cluster: Cluster, seats: Mapping[str, Transport], told: tuple[Answers, Running]
) -> tuple[Finding, ...]:
    """The doctor's, of nodes and fabric and of what the recorded plan needs; its profile may be another by now."""
    answers, now = told
    try:
        table = catalog.known_bad()
    except SpecError:
        table = KnownBadTable(combinations=())
    ours = (*((now.plan,) if now.plan else ()), *now.others)
    seen = Sight(cluster, cluster.nodes, answers.facts, table=table, plan=now.plan, ours=ours)
    return rules.everything(replace(seen, details=details(seats, seen, answers).details))


def _facts(where: str, seats: Mapping[str, Transport], name: str) -> Iterator[tuple[str, str]]:
    """Every node's whole answer as it was: the parser may be what is wrong."""

    said = at_once(lambda node: _said(seats[node], question(name)), seats, seats)
    yield from ((f"{where}/{node}/facts.txt", text) for node, text in said.items())


def _logs(where: str, plan: LaunchPlan, seats: Mapping[str, Transport]) -> Iterator[tuple[str, str]]:
    for unit in (each for each in plan.units if each.node in seats):
        text = _said(seats[unit.node], runtime.logs(unit, follow=False, lines=LINES))
        yield f"{where}/{unit.node}/{unit.rank}.log", text


def _said(transport: Transport, argv: tuple[str, ...]) -> str:
    try:
        result = transport.run(argv, deadline_s=ASK_S)
    except NodeError as error:
        return f"{error}\n"
    return result.stdout + result.stderr


def _versions() -> str:
    value = {
        "sparkctl": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return json.dumps(value, indent=2) + "\n"


def _known_secrets(name: str) -> tuple[str, ...]:
    """The operator's own keys, of every deployment: a log may quote any of them."""
    found = []
    for each in {name, *secrets.started_here()}:
        try:
            found.append(secrets.client_key_path(each).read_text(encoding="utf-8", errors="replace").strip())
        except OSError:
            continue
    return tuple(found)


def _write(out: Path, members: Mapping[str, str]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in members.items():
            data = text.encode(errors="replace")
            info = tarfile.TarInfo(f"sparkctl-support/{path}")
            info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
            archive.addfile(info, io.BytesIO(data))
    try:
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(buffer.getvalue())
    except OSError as error:
        raise UsageError(f"--out: should be a new file that can be written, found {out}: {error.strerror}") from None
