"""``sparkctl init HOST…``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json

if TYPE_CHECKING:
    from orchestrator.run.enrol import Shown
    from orchestrator.verbs.init import Outcome


@click.command("init", short_help="Ask your nodes how they are cabled and write cluster.yaml")
@click.argument("hosts", nargs=-1, required=True, metavar="[USER@]HOST[:PORT]...")
@click.option("--out", type=click.Path(dir_okay=False), help="File to write (default: ./cluster.yaml).")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option(
    "--accept-fingerprint",
    "fingerprints",
    multiple=True,
    metavar="SHA256:…",
    help="Enrol a host key with this fingerprint without asking; may be given several times.",
)
@click.option("--ssh-config", default="", type=click.Path(), help="Read this in place of ~/.ssh/config.")
@as_json
@click.pass_context
def command(
    ctx: click.Context, /, as_json: bool, out: str | None, fingerprints: tuple[str, ...], **values: Any
) -> None:
    """Ask each HOST for its netdevs, find out what is cabled to what, and write a commented cluster.yaml.

    Changes nothing on any node. A host key that is not in known_hosts is shown and enrolled only when you say yes.
    With --json the facts go to standard output, and a file is written only where --out names one.
    """
    from orchestrator.verbs.hosts import Trust
    from orchestrator.verbs.init import Wish, init

    target = out or (None if as_json else ctx.find_root().obj or "cluster.yaml")
    ask = _ask if sys.stdin.isatty() and sys.stderr.isatty() else None
    outcome = init(
        Wish(out=Path(target).expanduser() if target else None, **values), Trust(frozenset(fingerprints), ask)
    )
    if as_json:
        click.echo(json.dumps(_value(outcome), default=_plain, indent=2, ensure_ascii=False))
    else:
        _page(outcome, str(target))
    _end(outcome)


def _ask(shown: Shown) -> bool:
    click.echo(f"{shown.node} shows a host key that is in no known_hosts file:", err=True)
    click.echo(f"  {shown.kind} {click.style(shown.fingerprint, bold=True)}", err=True)
    click.echo(f"  {shown.compare}", err=True)
    return click.confirm(f"Add it to {shown.file}?", default=False, err=True)


def _page(outcome: Outcome, target: str) -> None:
    from orchestrator.facts.cabling import seen

    found = outcome.found
    if not found or found.topology is None:
        for line in (line for each in outcome.details.values() for line in seen(each)):
            click.echo(line)
        return
    click.echo(f"{click.style(found.topology, bold=True)}: {', '.join(found.nodes)}")
    click.echo("\n".join(f"  {why}" for why in found.why))
    for name in found.nodes:
        rails = ", ".join(f"{seat.end.netdev.name} {seat.end.address}" for seat in found.seats[name])
        click.echo(f"  {name}: {rails}")
    for remark in outcome.remarks:
        click.echo(f"{click.style('to look at:', fg='yellow')} {remark}")
    click.echo(f"\nwrote {target}; next: sparkctl plan deepseek-v4-flash")


def _end(outcome: Outcome) -> None:
    """Exit code 1, in words, where nothing could be written."""
    from orchestrator.facts.cabling import RULES
    from orchestrator.verbs.errors import VerbError
    from orchestrator.verbs.silent import told

    if outcome.silent:
        raise VerbError(*told(outcome.silent), "nothing was written: every node must answer first")
    if outcome.found and outcome.found.topology is None:
        raise VerbError("nothing was written: the cabling was not recognised", *outcome.found.why, remedy=RULES)


def _value(outcome: Outcome) -> dict[str, Any]:
    found = outcome.found
    return {
        "topology": found.topology if found else None,
        "why": found.why if found else (),
        "order": found.nodes if found else (),
        "remarks": outcome.remarks,
        "nodes": list(outcome.details.values()),
        "silent": {name: {"what": each.what, "remedy": each.remedy} for name, each in outcome.silent.items()},
        "written": outcome.written,
    }


def _plain(value: object) -> object:
    from orchestrator.plan.rankfile import plain

    if isinstance(value, frozenset):
        return sorted(value)
    said = plain(value)
    # Keys of JSON are text; init sends its pings apart, so this is for whoever adds some to the question.
    return {key: {str(k): v for k, v in each.items()} if isinstance(each, dict) else each for key, each in said.items()}
