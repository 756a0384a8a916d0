"""``sparkctl profiles list|show``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, catalog

if TYPE_CHECKING:
    from orchestrator.verbs.profiles import Shown


def _names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in catalog(ctx).names("profile") if name.startswith(incomplete)]
    except Exception:
        return []


@click.group("profiles", short_help="List what can be served, or show one profile")
def command() -> None:
    """What can be served: the profiles here, in ~/.config/sparkctl, and those that came with sparkctl."""


@command.command("list")
@as_json
@click.pass_context
def listing(ctx: click.Context, /, as_json: bool) -> None:
    """One line per profile: node counts, model, and what it is."""
    from orchestrator.verbs.profiles import every

    found = every(catalog(ctx))
    if as_json:
        click.echo(json.dumps([_value(each) for each in found], indent=2, ensure_ascii=False))
        return
    width = max((len(each.profile.name) for each in found), default=0)
    for each in found:
        counts = ", ".join(map(str, each.legal)) or "none"
        click.echo(f"{each.profile.name:<{width}}  nodes {counts:<8}  {each.profile.about}")


@command.command("show")
@click.argument("name", shell_complete=_names)
@as_json
@click.pass_context
def show(ctx: click.Context, /, name: str, as_json: bool) -> None:
    """The settings of NAME with the evidence for each, its bits, and its limits."""
    from orchestrator.verbs.profiles import one

    shown = one(catalog(ctx), name)
    if as_json:
        click.echo(json.dumps(_value(shown), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(_page(shown)))


def _page(shown: Shown) -> list[str]:
    profile, model = shown.profile, shown.model
    counts = ", ".join(map(str, shown.legal)) or "none"
    revision = model.revision or ("made on the spot" if model.made_by else "revision not known: `up` asks for it")
    lines = [
        f"{click.style(profile.name, bold=True)}: {profile.about}",
        f"  model     {model.name}, {model.repository or model.made_by} at {revision}",
        f"  licence   {model.licence}{f': {model.licence_note}' if model.licence_note else ''}",
        f"  nodes     {counts} (default {profile.nodes.default or profile.nodes.max})",
        f"  executor  {profile.executor}",
    ]
    for executor, stack in shown.stacks.items():
        image = stack.image
        where = f"{image.repository}@{image.digest or 'digest not known: `up` asks for it'}" if image else "no image"
        lines.append(f"  stack     {executor}: {stack.name}, {where}")
    for title, values in (("engine", shown.settings), ("engine_args", profile.engine_args), ("env", profile.env)):
        lines += ["", f"  {title}", *(f"    {key}: {value}" for key, value in values.items())] if values else []
    lines += ["", "  evidence", *(f"    [{each.kind}] {each.what}\n      {each.source}" for each in profile.evidence)]
    return [*lines, "", "  notes", *(f"    {note}" for note in profile.notes)] if profile.notes else lines


def _value(shown: Shown) -> dict[str, Any]:
    return {
        **shown.profile.model_dump(mode="json", exclude_defaults=True),
        "legal_nodes": list(shown.legal),
        "revision": shown.model.revision,
        "licence": shown.model.licence,
        "images": {name: stack.image and stack.image.digest for name, stack in shown.stacks.items()},
    }
