"""``sparkctl fabric test PROFILE`` and ``sparkctl fabric list``."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, ask, catalog, wish

if TYPE_CHECKING:
    from orchestrator.plan.rdma import RailTest
    from orchestrator.verbs.fabric import Report

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red", "unknown": "yellow"}
MIB = 2**20


@click.group("fabric", short_help="Measure the bandwidth between the nodes, in the pinned image")
def command() -> None:
    """Measure the bandwidth between the nodes, in the image that will serve, and keep the result with its date."""


@command.command("test")
@wish()
@click.option(
    "--size-mib", type=click.IntRange(1, 1024), default=512, show_default=True, help="Bytes gathered, in MiB."
)
@click.option("--rounds", type=click.IntRange(1, 200), default=10, show_default=True, help="The median of so many.")
@as_json
@click.pass_context
def measure(ctx: click.Context, /, size_mib: int, rounds: int, as_json: bool, **values: Any) -> None:
    """Measure between the ranks that PROFILE would have. Exit code 1 when something is slower than it should be.

    ib_write_bw writes over each rail by itself, where image or nodes have it; then all ranks gather together. Nothing
    may run on the nodes meanwhile: memory is unified, so at most 1 GiB is gathered.
    """
    from orchestrator.verbs.fabric import test

    def tell(words: str) -> None:
        if not as_json:
            click.echo(words, err=True)

    report = test(catalog(ctx), ask(values), size_mib * MIB, rounds, tell)
    click.echo(json.dumps(asdict(report), indent=2) if as_json else _line(report))
    ctx.exit(0 if report.verdict in {"pass", "unknown"} else 1)


@command.command("list")
@click.argument("cluster", required=False)
@as_json
def listing(cluster: str | None, as_json: bool) -> None:
    """What was measured from here, on all clusters or only on CLUSTER (its name in cluster.yaml)."""
    from orchestrator.verbs.fabric import clusters, reports

    found = [each for name in clusters() if cluster in (None, name) for each in reports(name)]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    else:
        where = f" on cluster {cluster}" if cluster else ""
        click.echo("\n".join(map(_line, found)) or f"nothing was measured{where} from here")


def _line(report: Report) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.at))
    word = click.style(report.verdict, fg=COLOURS[report.verdict])
    first = f"{when}  {', '.join(report.nodes)}: {word}; all-gather of {report.size_bytes // MIB} MiB: {report.says}"
    return "\n".join([first, *(f"  {_rail(each)}" for each in report.rails)])


def _rail(test: RailTest) -> str:
    word = click.style(test.verdict, fg=COLOURS[test.verdict])
    return f"{test.node} {test.device} -> {test.peer} {test.peer_device}: {word}, {test.says}"
