"""``logs``: the output of every rank, merged, each line with its node. Read-only; ending it ends nothing else.

Two kinds of lines are left out unless all are asked for: what the prober asked the engine, once a second (an engine
before vLLM 0.16, or one that was started without the flag for it, writes them down), and what HAProxy says of a server
on its standard error, because it writes the same into its log, which is read here as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.doctor.redact import redact
from orchestrator.plan import runtime
from orchestrator.plan.launch import Unit
from orchestrator.run.at_once import at_once
from orchestrator.run.catalog import Catalog
from orchestrator.run.transport import Cancelled, NodeError, Transport
from orchestrator.verbs import names, world
from orchestrator.verbs.errors import UsageError, VerbError
from orchestrator.verbs.running import running
from orchestrator.verbs.silent import unknown, unlisted
from orchestrator.verbs.sitting import sitting

_ASKED = re.compile(r'INFO: +\S+ - "GET /(?:health|metrics|v1/models) HTTP/[\d.]+" 200 OK$')
_SAID_TWICE = re.compile(r"^\[(?:NOTICE|WARNING|ALERT)\] +\(\d+\) : (?:Server \S+ is |backend '\S+' has no server )")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output. ``rank`` is a number, or "gateway"."""

    node: str
    rank: str
    text: str


@dataclass(frozen=True, slots=True)
class Which:
    """Whose output, how much of it, and whether to stay for more."""

    name: str
    rank: str | None = None
    lines: int = 100
    follow: bool = False
    all: bool = False


def noise(line: Line) -> bool:
    """Whether a line says only what another line, or nothing going wrong, says as well."""
    return bool((_SAID_TWICE if line.rank == "gateway" else _ASKED).search(line.text))


def logs(catalog: Catalog, which: Which, show: Callable[[Line], None]) -> None:
    """Hand every line to ``show`` as it comes, from all ranks at once, without secrets.

    Raises ``UsageError`` for an unknown name, and ``VerbError`` for one that only a silent node may know.
    """
    names.check(which.name, "NAME")
    silent: dict[str, NodeError] = {}
    there: list[str] = []
    for cluster in world.clusters(catalog):
        with sitting(world.seats(cluster)) as seats:
            answers = world.gather(seats, which.name)
            now = running(answers.facts, which.name, cluster.topology)
            if now.lost:
                says = f"{which.name}: should have a record of what is there, found none that can be believed"
                raise VerbError(says, *now.unreadable, *now.remains, remedy=f"sparkctl down {which.name}")
            if now.plan is None:
                silent |= answers.silent
                there += names.recorded(answers.facts)
                continue
            units = [unit for unit in now.plan.units if which.rank in (None, unit.rank)]
            if not units:
                ranks = ", ".join(unit.rank for unit in now.plan.units)
                raise UsageError(f"--rank: should be one of {ranks}, found {which.rank}")
            gone = unlisted(now, cluster)
            for unit in units:
                if unit.node in gone:
                    show(Line(unit.node, unit.rank, f"(no output: {gone[unit.node].what})"))
            _read_all([unit for unit in units if unit.node not in gone], seats, which, show)
            return
    if silent:
        raise VerbError(*unknown(silent, which.name), remedy="sparkctl status")
    raise names.no_such(which.name, there, catalog.names("profile"))


def _read_all(units: list[Unit], seats: dict[str, Transport], which: Which, show: Callable[[Line], None]) -> None:
    def pass_on(line: Line) -> None:
        if which.all or not noise(line):
            show(line)

    by_name = {f"{unit.node} {unit.rank}": unit for unit in units}

    def read(name: str) -> None:
        unit = by_name[name]
        argv = runtime.logs(unit, follow=which.follow, lines=which.lines)
        try:
            seats[unit.node].follow(argv, lambda text: pass_on(Line(unit.node, unit.rank, redact(text))), lambda: False)
            if which.follow:
                show(Line(unit.node, unit.rank, f"(no more output: {unit.name} is gone)"))
        except Cancelled:
            return
        except NodeError as error:
            show(Line(unit.node, unit.rank, f"(no more output: {error.what})"))

    at_once(read, by_name, seats)
