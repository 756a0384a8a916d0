"""``sparkctl status [NAME]``."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, catalog, deployment

if TYPE_CHECKING:
    from orchestrator.doctor.incident import Incident
    from orchestrator.plan.fold import DeploymentState
    from orchestrator.plan.rankfile import Gate, RankStatus
    from orchestrator.run.transport import NodeError
    from orchestrator.verbs.status import Overview, Status


@click.command("status", short_help="Show every gate of every rank, and where the record and the nodes differ")
@deployment
@as_json
@click.pass_context
def command(ctx: click.Context, /, name: str | None, as_json: bool) -> None:
    """Show every gate of every rank of NAME (default: all deployments).

    Exit code 1 when something is not ready, or is UNKNOWN because a node is silent. With --json: a list with an entry
    per deployment, and one whose deployment is null for silent nodes that no other entry names.
    """
    from orchestrator.verbs.status import status

    seen = status(catalog(ctx), name)
    if as_json:
        values = [_value(each) for each in seen.deployments] + ([_unknown(seen.untold)] if seen.untold else [])
        click.echo(json.dumps(values, indent=2, ensure_ascii=False))
    else:
        click.echo("\n\n".join("\n".join(page) for page in _pages(seen)))
    ctx.exit(0 if seen.ready else 1)


def _pages(seen: Overview) -> list[list[str]]:
    pages = [_page(each) for each in seen.deployments]
    if seen.untold:
        word = click.style("UNKNOWN", fg="red")
        pages.append([f"{word}: what runs on {', '.join(seen.untold)}", *_silent(seen.untold)])
    return pages or [["nothing runs"]]


def _silent(silent: Mapping[str, NodeError]) -> list[str]:
    lines = []
    for error in silent.values():
        lines.append(f"  {click.style('silent:', fg='red')} {error}")
        lines += [f"    -> {error.remedy}"] if error.remedy else []
    return lines


def _page(status: Status) -> list[str]:
    plan = status.running.plan
    unready = "not ready" if plan is not None else "UNKNOWN, no node that answered has a record of it"
    if status.running.lost:
        unready = "not ready, no record of it can be believed"
    word = click.style("ready", fg="green") if status.ready else click.style(unready, fg="red")
    lines = [f"{click.style(status.deployment, bold=True)}: {word}"]
    if plan is not None:
        lines[0] += (
            f", generation {plan.generation}, {plan.served_name} with {plan.executor} at {plan.gateway.endpoint}"
        )
        lines.append(f"  plan {plan.digest}")
        lines += [f"  under way: {status.running.changing}"] if status.running.changing else []
        lines += _recorded(status.running.recorded)
        for rank in plan.ranks:
            title = f"rank {rank.rank} on {rank.node}"
            last_s = status.running.last_words.get(rank.rank)
            lines += _rank(title, status.running.statuses.get(rank.rank), last_s)
            lines += _meaning(status.explained.get(rank.rank))
    lines += [f"  {click.style('unreadable:', fg='yellow')} {line}" for line in status.running.unreadable]
    lines += [f"  {click.style('there is:', fg='yellow')} {line}" for line in status.running.remains]
    lines += [
        f"  {click.style('differs:', fg='yellow')} {line}"
        for line in (*status.running.differs, *status.running.unrecorded)
    ]
    lines += [f"  -> {status.next_step}"] if status.next_step else []
    lines += _silent(status.silent)
    left = () if status.running.changing else status.running.others  # what is being made is no leftover
    others = ", ".join(str(other.generation) for other in left)
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


def _rank(title: str, status: RankStatus | None, last_s: float | None) -> list[str]:
    """``last_s`` is how long ago a rank said its last word; what it did then says nothing of now, why it ended does."""
    if status is None:
        return [f"  {title}: UNKNOWN, its agent has written no status"]
    if last_s is not None:
        lines = [f"  {title}: does not run or hangs; its last word was {_ago(last_s)}, in attempt {status.attempt}"]
    else:
        lines = [f"  {title}: {status.state}, attempt {status.attempt}{f', {status.doing}' if status.doing else ''}"]
        lines += [f"    {_mark(gate)} {gate.name:<12} {gate.saw}" for gate in status.gates]
    if status.history and status.state != "running":
        last = status.history[-1]
        lines.append(f"    attempt {last.attempt} failed: {last.reason}")
    if status.last_fatal and status.state != "running":
        lines.append(f"    first fatal line: {status.last_fatal}")
    return lines


def _meaning(incident: Incident | None) -> list[str]:
    return [f"    {incident.code}: {incident.says}", f"    -> {incident.remedy}"] if incident else []


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds >= 0 else "in the future by its own clock"


def _mark(gate: Gate) -> str:
    if gate.open is None:
        return click.style("?", fg="yellow")
    return click.style("✓", fg="green") if gate.open else click.style("✗", fg="red")


def _unknown(silent: Mapping[str, NodeError]) -> dict[str, Any]:
    """The keys of a deployment's entry, for nodes of which nobody knows what they run."""
    nothing: dict[str, Any] = dict.fromkeys(("deployment", "generation", "plan", "endpoint", "recorded"))
    nothing["explained"] = {}
    names = ("ranks", "differs", "unreadable", "remains", "left_over_generations")
    lists: dict[str, list[str]] = {name: [] for name in names}
    said = {name: str(error) for name, error in silent.items()}
    return {**nothing, **lists, "ready": False, "under_way": "", "next_step": "", "silent": said}


def _value(status: Status) -> dict[str, Any]:
    plan = status.running.plan
    return {
        "deployment": status.deployment,
        "ready": status.ready,
        "generation": plan.generation if plan else None,
        "plan": plan.digest if plan else None,
        "endpoint": plan.gateway.endpoint if plan else None,
        "recorded": asdict(status.running.recorded),
        "ranks": [_rank_value(status, each) for _, each in sorted(status.running.statuses.items())],
        "explained": {str(rank): each.code for rank, each in status.explained.items()},
        "differs": [*status.running.differs, *status.running.unrecorded],
        "unreadable": status.running.unreadable,
        "remains": status.running.remains,
        "under_way": status.running.changing,
        "next_step": status.next_step,
        "silent": {name: str(error) for name, error in status.silent.items()},
        "left_over_generations": [other.generation for other in status.running.others],
    }


def _rank_value(status: Status, rank: RankStatus) -> dict[str, Any]:
    """A rank that does not speak any more is not ready, whatever its last word was."""
    value: dict[str, Any] = json.loads(rank.to_json())
    last_s = status.running.last_words.get(rank.rank)
    return {**value, "ready": value["ready"] and last_s is None, "last_word_s_ago": last_s}
