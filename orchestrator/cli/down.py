"""``sparkctl down NAME``."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import as_json, catalog, deployment

if TYPE_CHECKING:
    from orchestrator.verbs.down import Stopped


@click.command("down", short_help="Stop a deployment and leave the nodes bare")
@deployment
@as_json
@click.pass_context
def command(ctx: click.Context, /, name: str | None, as_json: bool) -> None:
    """Stop deployment NAME (default: the only one) and leave bare nodes. Images and models stay for the next start.

    Answers that run are cut off, after at most ten seconds; `up` with another plan lets them finish.
    """
    from orchestrator.cli.progress import shown
    from orchestrator.verbs.down import Stopped, down
    from orchestrator.verbs.status import only_one

    chosen = only_one(catalog(ctx), "down") if name is None else name
    with shown(quiet=as_json) as sink:
        stopped = down(catalog(ctx), chosen, sink, threading.Event()) if chosen is not None else Stopped(())
    if as_json:
        generations = [plan.generation for plan in stopped.plans]
        value = {
            "deployment": chosen,
            "stopped_generations": generations,
            "unrecorded": stopped.unrecorded,
            "others": stopped.others,
        }
        click.echo(json.dumps(value))
    else:
        click.echo(_words(chosen, stopped))


def _words(name: str | None, stopped: Stopped) -> str:
    if stopped.plans:
        return f"{name}: stopped; its nodes are bare"
    if stopped.unrecorded:
        return f"{name}: ended what ran without a record that can be believed; its nodes are bare"
    if name is None:
        return "nothing runs, nothing to do"
    others = f"; there is {', '.join(stopped.others)}" if stopped.others else ""
    return f"no deployment {name} is recorded on any node, nothing to do{others}"
