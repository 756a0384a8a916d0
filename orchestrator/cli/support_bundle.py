"""``sparkctl support-bundle [NAME]``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from orchestrator.cli.options import as_json, catalog, deployment


@click.command(
    "support-bundle", short_help="Collect facts, plan, events, findings and logs in one file, without secrets"
)
@deployment
@click.option(
    "--out", type=click.Path(dir_okay=False), help="The file (default: sparkctl-support-NAME-TIME.tar.gz here)."
)
@as_json
@click.pass_context
def command(ctx: click.Context, /, name: str | None, out: str | None, as_json: bool) -> None:
    """Collect what is known of NAME in one file to send to somebody: facts, plan, events, findings and logs.

    Keys, tokens, serial numbers and hardware addresses are taken out; addresses and names of nodes stay.
    """
    import time

    from orchestrator.verbs.errors import UsageError
    from orchestrator.verbs.status import only_one
    from orchestrator.verbs.support_bundle import support_bundle

    known = catalog(ctx)
    chosen = name or only_one(known, "support-bundle")
    if chosen is None:
        raise UsageError("NAME: should be given, found no deployment", remedy="sparkctl support-bundle NAME")
    path = Path(out or f"sparkctl-support-{chosen}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    made = support_bundle(known, chosen, path)
    if as_json:
        click.echo(
            json.dumps({"path": str(made.path), "members": made.members, "silent": sorted(made.silent)}, indent=2)
        )
        return
    click.echo(f"{made.path}: {len(made.members)} files; look through it before you send it")
    for error in made.silent.values():
        click.echo(f"  UNKNOWN: {error}")
