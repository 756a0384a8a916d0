"""``sparkctl diagnose [FILE…|-|--last]``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, catalog

if TYPE_CHECKING:
    from orchestrator.doctor.incident import Diagnosis, Incident, Witness


@click.command("diagnose", short_help="Find the first cause of a failure in logs")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE]...")
@click.option("--last", is_flag=True, help="Read what the last failed `up` left on this machine.")
@click.option("--silent-for", "silent_s", type=click.FloatRange(min=0), help="Nothing has come for so many seconds.")
@as_json
@click.pass_context
def command(ctx: click.Context, /, files: tuple[str, ...], last: bool, silent_s: float | None, as_json: bool) -> None:
    """Find the first cause of a failure in the output of one rank or of all of them; no cluster is needed.

    FILE is a log, a folder of *.log, or - for standard input (`docker logs x 2>&1 | sparkctl diagnose`). Exit code 1
    when something is wrong, 0 when nothing bad is found.
    """
    from orchestrator.verbs.diagnose import Sources, diagnose

    piped = not files and not last and not sys.stdin.isatty()
    found = diagnose(catalog(ctx), Sources(("-",) if piped else files, last, silent_s))
    if as_json:
        click.echo(json.dumps(_value(found), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(_page(found)))
    ctx.exit(1 if found.bad else 0)


def _page(found: Diagnosis) -> list[str]:
    lines = _cause(found.cause) if found.cause is not None else _no_cause(found.first_fatal)
    if found.cause is not None and found.first_fatal is not None:
        said = "before it came" if found.cause.tells == "cause" else "it names no reason; that may be"
        lines += [f"  {said} a line that no entry knows", *_quoted(found.first_fatal)]
    if found.others:
        lines.append("  seen as well, after it or because of it:")
        lines += [f"    {each.code}: {each.says} ({_at(each.witnesses[0])})" for each in found.others]
    for each in found.warnings:
        lines.append(f"{click.style('warning', fg='yellow')} {each.code}: {each.says} ({_at(each.witnesses[0])})")
        lines.append(f"  -> {each.remedy}")
    return lines


def _cause(cause: Incident) -> list[str]:
    first, *rest = cause.witnesses
    lines = [f"{click.style('cause', fg='red')} {click.style(cause.code, bold=True)}: {cause.says}"]
    if cause.outlived:
        lines.append("  the engine came up after this: it ended an earlier start")
    lines += [f"  at {_at(first)}", f"     {first.text}", f"  -> {cause.remedy}"]
    if cause.rules_out:
        lines.append(f"  rules out {', '.join(cause.rules_out)}")
    if rest:
        lines.append(f"  seen as well by {'; '.join(_at(each) for each in rest)}")
    return [*lines, f"  known from {'; '.join(cause.sources)}"]


def _no_cause(fatal: Witness | None) -> list[str]:
    if fatal is None:
        return ["nothing bad found"]
    said = click.style("cause not known", fg="red")
    return [f"{said}: no entry of the table knows these lines; the first that looks fatal is", *_quoted(fatal)]


def _quoted(line: Witness) -> list[str]:
    return [f"  at {_at(line)}", f"     {line.text}"]


def _at(line: Witness) -> str:
    """Where a line stands: on which node and rank, where that is known, and in which log."""
    parts = (f"rank {line.rank}" if line.rank else "", line.node, f"{line.log} line {line.line}")
    return ", ".join(part for part in parts if part)


def _value(found: Diagnosis) -> dict[str, Any]:
    return {"bad": found.bad, **asdict(found)}
