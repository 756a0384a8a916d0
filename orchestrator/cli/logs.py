"""``sparkctl logs NAME``."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, catalog, deployment

if TYPE_CHECKING:
    from orchestrator.verbs.logs import Line

COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "bright_red")


@click.command("logs", short_help="Show the output of all ranks, merged")
@deployment
@as_json
@click.option("-f", "--follow", is_flag=True, help="Stay and show new lines; Ctrl-C only detaches.")
@click.option("-n", "--lines", default=100, show_default=True, type=click.IntRange(min=0), help="Lines per rank.")
@click.option("--rank", help="Only this rank (a number, or gateway).")
@click.option("--all", is_flag=True, help="Also the engine's answers to the health probe, and the like.")
@click.pass_context
def command(ctx: click.Context, /, name: str | None, as_json: bool, **asked: Any) -> None:
    """Show the output of every rank of NAME (default: the only deployment), each line with its node."""
    from orchestrator.verbs.logs import Which, logs
    from orchestrator.verbs.status import only_one

    chosen = only_one(catalog(ctx), "logs") if name is None else name
    if chosen is None:
        click.echo("nothing runs", err=as_json)
        return
    guard = threading.Lock()

    def show(line: Line) -> None:
        with guard:
            click.echo(_json(line) if as_json else _text(line))

    try:
        logs(catalog(ctx), Which(chosen, **asked), show)
    except KeyboardInterrupt:
        click.echo("detached; the service goes on", err=True)
        ctx.exit(130)


def _text(line: Line) -> str:
    colour = COLOURS[int(line.rank) % len(COLOURS)] if line.rank.isdigit() else "white"
    return f"{click.style(f'{line.node} {line.rank}', fg=colour)} | {line.text}"


def _json(line: Line) -> str:
    return json.dumps({"node": line.node, "rank": line.rank, "text": line.text}, ensure_ascii=False)
