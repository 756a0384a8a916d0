"""``sparkctl status [NAME]``."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, catalog, deployment

if TYPE_CHECKING:
    from orchestrator.plan.fold import DeploymentState
    from orchestrator.plan.rankfile import Gate, RankStatus
    from orchestrator.verbs.status import Status


@click.command("status", short_help="Show every gate of every rank, and where the record and the nodes differ")
@deployment
@as_json
@click.pass_context
def command(ctx: click.Context, /, name: str | None, as_json: bool) -> None:
    """Show every gate of every rank of NAME (default: all deployments). Exit code 1 when something is not ready."""
    from orchestrator.verbs.status import status

    found = status(catalog(ctx), name)
    if as_json:
        click.echo(json.dumps([_value(each) for each in found], indent=2, ensure_ascii=False))
    elif not found:
        click.echo("nothing runs")
    else:
        click.echo("\n\n".join("\n".join(_page(each)) for each in found))
    ctx.exit(0 if all(each.ready for each in found) else 1)


def _page(status: Status) -> list[str]:
    plan = status.running.plan
    word = click.style("ready", fg="green") if status.ready else click.style("not ready", fg="red")
    lines = [f"{click.style(status.deployment, bold=True)}: {word}"]
    if plan is not None:
        lines[0] += (
            f", generation {plan.generation}, {plan.served_name} with {plan.executor} at {plan.gateway.endpoint}"
        )
        lines.append(f"  plan {plan.digest}")
        lines += _recorded(status.running.recorded)
        for rank in plan.ranks:
            lines += _rank(f"rank {rank.rank} on {rank.node}", status.running.statuses.get(rank.rank))
    lines += [
        f"  {click.style('differs:', fg='yellow')} {line}"
        for line in (*status.running.differs, *status.running.unrecorded)
    ]
    lines += [f"  {click.style('silent:', fg='red')} {error}" for error in status.silent.values()]
    others = ", ".join(str(other.generation) for other in status.running.others)
    return [*lines, *([f"  left over: generation {others}; the next `up` or `down` removes it"] if others else [])]


def _recorded(state: DeploymentState) -> list[str]:
    """What the log of events says, in a line; what is observed follows it."""
    if not state.at:
        return []
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.at))
    lines = [f"  recorded {when}: generation {state.generation} {state.stage}"]
    if state.failure is not None:
        where = f" on {state.failure.node}" if state.failure.node else ""
        lines[0] += f" in phase “{state.failure.phase}”{where}: {state.failure.says}"
    return lines + [f"    left behind: {each}" for each in state.left]


def _rank(title: str, status: RankStatus | None) -> list[str]:
    if status is None:
        return [f"  {title}: UNKNOWN, its agent has written no status"]
    lines = [f"  {title}: {status.state}, attempt {status.attempt}{f', {status.doing}' if status.doing else ''}"]
    lines += [f"    {_mark(gate)} {gate.name:<12} {gate.saw}" for gate in status.gates]
    if status.history and status.state != "running":
        last = status.history[-1]
        lines.append(f"    attempt {last.attempt} failed: {last.reason}")
    if status.last_fatal and status.state != "running":
        lines.append(f"    first fatal line: {status.last_fatal}")
    return lines


def _mark(gate: Gate) -> str:
    if gate.open is None:
        return click.style("?", fg="yellow")
    return click.style("✓", fg="green") if gate.open else click.style("✗", fg="red")


def _value(status: Status) -> dict[str, Any]:
    plan = status.running.plan
    return {
        "deployment": status.deployment,
        "ready": status.ready,
        "generation": plan.generation if plan else None,
        "plan": plan.digest if plan else None,
        "endpoint": plan.gateway.endpoint if plan else None,
        "recorded": asdict(status.running.recorded),
        "ranks": [json.loads(each.to_json()) for _, each in sorted(status.running.statuses.items())],
        "differs": [*status.running.differs, *status.running.unrecorded],
        "silent": {name: str(error) for name, error in status.silent.items()},
        "left_over_generations": [other.generation for other in status.running.others],
    }
