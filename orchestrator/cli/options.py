"""Options that several verbs share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def wish(command: Command) -> Command:
    """PROFILE, --nodes, --executor and --name: what is to be served, and how widely."""
    for option in (
        click.option("--name", help="Name of the deployment (default: the profile's name)."),
        click.option("--executor", type=click.Choice(["ray", "mp"]), help="Distributed executor (default: profile's)."),
        click.option("--nodes", type=click.IntRange(min=1), help="How many nodes (default: the profile's)."),
        click.argument("profile", shell_complete=_profiles),
    ):
        command = option(command)
    return command


as_json = click.option("--json", "as_json", is_flag=True, help="For scripts: JSON on standard output.")


def _profiles(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in catalog(ctx).names() if name.startswith(incomplete)]
    except Exception:
        return []


def catalog(ctx: click.Context) -> Any:
    """The catalogue for this call, with ``--cluster`` where it was given."""
    from orchestrator.run.catalog import open_catalog

    return open_catalog(ctx.find_root().obj)


def ask(values: dict[str, Any]) -> Any:
    """What ``wish`` collected, as an ``Ask``."""
    from orchestrator.verbs.world import Ask

    return Ask(values["profile"], values["nodes"], values["executor"], values["name"])


def deployment(command: Command) -> Command:
    """An optional NAME: the verb takes the only deployment there is, or all of them."""
    return click.argument("name", required=False)(command)
