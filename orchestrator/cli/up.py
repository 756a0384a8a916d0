"""``sparkctl up PROFILE``."""

from __future__ import annotations

import json
import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, ask, catalog, wish

if TYPE_CHECKING:
    from orchestrator.verbs.up import Finished


@click.command("up", short_help="Start a profile, or bring it up to date, and wait until it answers")
@wish(required=False)
@as_json
@click.option("--plan", "plan_file", type=click.Path(dir_okay=False), help="Carry out this stored plan.")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, plan_file: str | None, **values: Any) -> None:
    """Start PROFILE, or bring what runs up to date, and wait until it really answers. Does nothing if nothing changed.

    Ctrl-C undoes what was begun. The service itself runs on the nodes and needs neither this command nor this machine.
    """
    from orchestrator.cli.progress import shown
    from orchestrator.verbs.up import Request, up

    request = Request(ask(values), Path(plan_file) if plan_file else None)
    with shown(quiet=as_json) as sink:
        finished = up(catalog(ctx), request, sink, threading.Event())
    if as_json:
        click.echo(json.dumps(_value(finished), indent=2))
        return
    plan = finished.plan
    did = f"ready in {finished.took_s:.1f} s" if finished.changed else "no changes"
    click.echo(f"{click.style(plan.deployment, bold=True)}: {did} (generation {plan.generation})")
    click.echo(f"  endpoint  {plan.gateway.endpoint}   model  {plan.served_name}")
    if finished.key_path.is_file():
        click.echo(f"  API key   in {finished.key_path}")
        click.echo(f"  try it    {_curl(finished)}")
    else:
        click.echo("  API key   none of yours: it was started from another machine, whose operator has one")
        click.echo(f"            a start from here gives you your own: sparkctl down {plan.deployment}, then up again")


def _curl(finished: Finished) -> str:
    """A line to paste into a shell. The key is read from its file: it shall not stand on a screen or in a history."""
    plan = finished.plan
    body = json.dumps({"model": plan.served_name, "messages": [{"role": "user", "content": "Hello"}]})
    key = f'"Authorization: Bearer $(cat {shlex.quote(str(finished.key_path))})"'
    url = shlex.quote(f"{plan.gateway.endpoint}/chat/completions")
    return f"curl {url} -H {key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _value(finished: Finished) -> dict[str, Any]:
    plan = finished.plan
    return {
        "deployment": plan.deployment,
        "changed": finished.changed,
        "generation": plan.generation,
        "plan": plan.digest,
        "endpoint": plan.gateway.endpoint,
        "model": plan.served_name,
        "key_file": str(finished.key_path) if finished.key_path.is_file() else None,
        "took_s": round(finished.took_s, 3),
    }
