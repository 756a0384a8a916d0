"""``sparkctl plan PROFILE``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, ask, catalog, wish

if TYPE_CHECKING:
    from orchestrator.plan.launch import LaunchPlan, Rank, Unit
    from orchestrator.verbs.plan import Planned


@click.command("plan", short_help="Show what each node will be and run; changes nothing")
@wish()
@as_json
@click.option("--out", type=click.Path(dir_okay=False), help="Store the plan here, for `up --plan FILE`.")
@click.option("--offline", is_flag=True, help="Ask no node: show the plan only.")
@click.option("--diff", is_flag=True, help="Show every value that differs from what runs, not a line per rank.")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, out: str | None, offline: bool, diff: bool, **values: Any) -> None:
    """Show what PROFILE would run on each node, and how that differs from what runs now. Changes nothing."""
    from orchestrator.verbs import stored
    from orchestrator.verbs.plan import plan

    planned = plan(catalog(ctx), ask(values), offline=offline)
    if out:
        stored.write(Path(out), planned.plan)
    if as_json:
        click.echo(planned.plan.canonical())
        return
    click.echo("\n".join(_page(planned, every=diff)))
    if out:
        click.echo(f"\nstored in {out}; {_next(planned, out, ctx.find_root().obj)}")


def _next(planned: Planned, out: str, cluster: str | None) -> str:
    """What a stored plan is good for: one for example nodes can only be read."""
    if planned.chosen.example:
        return "it is for example nodes: write cluster.yaml (docs/cluster.md) and plan again before `sparkctl up`"
    words = ["sparkctl", *(["--cluster", cluster] if cluster else []), "up", "--plan", out]
    return f"carry it out with: {shlex.join(words)}"


def _page(planned: Planned, *, every: bool) -> list[str]:
    plan = planned.plan
    lines = [
        f"{click.style(plan.deployment, bold=True)}: {plan.served_name} with {plan.executor} on "
        f"{len(plan.ranks)} node{'s' if len(plan.ranks) > 1 else ''} of {planned.chosen.origin}",
        f"  profile {plan.profile}, model {plan.model}, stack {plan.stack}, generation {plan.generation}",
        f"  plan {plan.digest}",
        *(f"  {click.style('warning:', fg='yellow')} {warning}" for warning in _warnings(planned)),
        *(f"  {click.style('up would refuse:', fg='red')} {each}\n    -> {each.remedy}" for each in planned.obstacles),
    ]
    for image in plan.images:
        lines.append(f"  image {image.repository}@{image.digest or 'digest not known yet'} on {', '.join(image.nodes)}")
    for model in plan.models:
        where = f"made by {model.made_by}" if model.made_by else f"from {model.source}"
        lines.append(f"  model {model.model} {model.revision} {where}")
    for rank in plan.ranks:
        lines += ["", *_rank(plan, rank)]
    lines += ["", f"gateway on {plan.gateway.node}: {plan.gateway.endpoint}", *_unit(plan, plan.gateway.unit)]
    return [*lines, "", *_changes(planned, every=every)]


def _warnings(planned: Planned) -> list[str]:
    return [*planned.plan.warnings, *(f"{each.what} -> {each.remedy} [{each.code}]" for each in planned.known_bad)]


def _rank(plan: LaunchPlan, rank: Rank) -> list[str]:
    lines = [click.style(f"rank {rank.rank} on {rank.node} at {rank.address}", bold=True), *_unit(plan, rank.unit)]
    for step in rank.rank_file.steps:
        what = shlex.join(step.argv) if step.argv else f"wait for {step.host}:{step.port}" if step.host else "wait"
        lines.append(f"  {step.name}: {what}")
    return lines


def _unit(plan: LaunchPlan, unit: Unit) -> list[str]:
    from orchestrator.plan.runtime import start

    lines = [f"  {key}={shlex.quote(value)}" for key, value in sorted(unit.env.items())]
    argv = start(plan, unit) if unit.container is not None else unit.argv
    without_env = [word for index, word in enumerate(argv) if not _is_env(argv, index)]
    return [f"  run: {shlex.join(without_env)}", *lines]


def _is_env(argv: tuple[str, ...], index: int) -> bool:
    """The environment is shown on lines of its own; here it would only hide the rest."""
    return argv[index] == "--env" or (index > 0 and argv[index - 1] == "--env")


def _changes(planned: Planned, *, every: bool) -> list[str]:
    if planned.now is None:
        return ["not compared with what runs: no node was asked"]
    lines = []
    for node, error in planned.silent.items():
        lines += [f"{node}: not compared, {error.what}", *([f"  -> {error.remedy}"] if error.remedy else [])]
    if not planned.changes and not planned.silent and not planned.now.differs:
        return ["no changes"]
    lines += [str(change) for change in planned.changes] if every else planned.summary
    return [*lines, *(f"! {line}" for line in planned.now.differs)]
