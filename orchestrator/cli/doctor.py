"""``sparkctl doctor [PROFILE]``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, ask, catalog, wish

if TYPE_CHECKING:
    from orchestrator.doctor.finding import Finding
    from orchestrator.verbs.doctor import Report

_COLOURS = {"fail": "red", "warn": "yellow", "unknown": "cyan", "pass": "green"}
_ORDER = tuple(_COLOURS)


@click.command("doctor", short_help="Look at nodes, fabric and plan for what would go wrong; changes nothing")
@wish(required=False)
@as_json
@click.option("--all", "every", is_flag=True, help="Show what passed and what nobody could see, too.")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, every: bool, **values: Any) -> None:
    """Look at the nodes for what would go wrong; with PROFILE also at its plan on them. Changes nothing.

    Exit code 5 when something is known to be wrong, 1 when a node is silent and nobody knows, otherwise 0.
    """
    from orchestrator.verbs.doctor import doctor

    report = doctor(catalog(ctx), ask(values))
    if as_json:
        click.echo(json.dumps(_value(report), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(_page(report, every=every)))
    ctx.exit(report.code)


def _value(report: Report) -> dict[str, Any]:
    return {
        "looked_at": report.origin,
        "nodes": list(report.nodes),
        "silent": {name: error.what for name, error in report.silent.items()},
        "counts": {verdict: _count(report, verdict) for verdict in _ORDER},
        "findings": [asdict(each) for each in report.findings],
    }


def _count(report: Report, verdict: str) -> int:
    return sum(1 for each in report.findings if each.verdict == verdict)


def _page(report: Report, *, every: bool) -> list[str]:
    shown = _ORDER if every else ("fail", "warn")
    lines = [f"{click.style('doctor', bold=True)}: {report.origin}"]
    for place in ("", *report.nodes):
        here = [each for each in report.findings if _place(each, report) == place]
        told = [each for each in here if each.verdict in shown or each in report.untold]
        said = [line for each in sorted(told, key=_rank) for line in _lines(each, whole=each in report.untold)]
        if said:
            lines += ["", click.style(place or "plan and all nodes", bold=True), *said]
    return [*lines, "", _summary(report, every=every)]


def _place(finding: Finding, report: Report) -> str:
    return finding.node if finding.node in report.nodes else ""


def _rank(finding: Finding) -> int:
    return _ORDER.index(finding.verdict)


def _lines(finding: Finding, *, whole: bool) -> Iterator[str]:
    """``whole``: with the reason and the remedy, whatever the verdict."""
    word = click.style(f"{finding.verdict:<7}", fg=_COLOURS[finding.verdict])
    if finding.verdict == "pass":
        yield f"  {word} {finding.code}: {finding.observed}"
        return
    yield f"  {word} {finding.code}: should be {finding.expected}, found {_below(finding.observed)}"
    if finding.verdict != "unknown" or whole:
        if finding.why:
            yield f"          {finding.why}"
        yield f"          -> {_below(finding.remedy)}"


def _below(text: str) -> str:
    """Further lines stand below the first one."""
    return "\n             ".join(line.strip() for line in text.splitlines())


def _summary(report: Report, *, every: bool) -> str:
    fails, warns, unknown, passed = (_count(report, verdict) for verdict in _ORDER)
    more = "" if every or not (unknown or passed) else "; --all shows them"
    return f"{fails} fail, {warns} warn; {passed} passed, {unknown} unknown{more}"
