"""Options that several verbs share, written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def wish(*, required: bool = True) -> Callable[[Command], Command]:
    """PROFILE, --nodes, --executor and --name: what is to be served, and how widely."""
    options = (
        click.option("--name", help="Name of the deployment (default: the profile's name)."),
        click.option("--executor", type=click.Choice(["ray", "mp"]), help="Distributed executor (default: profile's)."),
        click.option("--nodes", type=click.IntRange(min=1), help="How many nodes (default: the profile's)."),
        click.argument("profile", required=required, shell_complete=_profiles),
    )

    def with_all(command: Command) -> Command:
        return reduce(lambda made, option: option(made), options, command)

    return with_all


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

    return Ask(values["profile"] or "", values["nodes"], values["executor"], values["name"])


def deployment(command: Command) -> Command:
    """An optional NAME: the verb takes the only deployment there is, or all of them."""
    return click.argument("name", required=False, shell_complete=_deployments)(command)


def _deployments(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Deployments that this machine has started; a Tab key must not wait for nodes."""
    from orchestrator.verbs.secrets import started_here

    return [name for name in started_here() if name.startswith(incomplete)]
