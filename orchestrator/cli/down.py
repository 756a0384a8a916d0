"""``sparkctl down NAME``."""

from __future__ import annotations

import json
import threading

import click

from orchestrator.cli.options import as_json, catalog, deployment


@click.command("down", short_help="Stop a deployment and leave the nodes bare")
@deployment
@as_json
@click.pass_context
def command(ctx: click.Context, /, name: str | None, as_json: bool) -> None:
    """Stop deployment NAME (default: the only one) and leave bare nodes. Images and models stay for the next start."""
    from orchestrator.cli.progress import shown
    from orchestrator.verbs.down import down
    from orchestrator.verbs.status import only_one

    chosen = only_one(catalog(ctx)) if name is None else name
    with shown(quiet=as_json) as sink:
        plans = down(catalog(ctx), chosen, sink, threading.Event()) if chosen is not None else ()
    if as_json:
        stopped = [plan.generation for plan in plans]
        click.echo(json.dumps({"deployment": chosen, "stopped_generations": stopped}))
    else:
        click.echo(f"{chosen}: stopped; its nodes are bare" if plans else "nothing runs, nothing to do")
