"""``sparkctl``: the group of verbs. Every verb lives in a file of its own and is imported only when it is called."""

from __future__ import annotations

import importlib

import click

from orchestrator import __version__

VERBS = {
    "init": "Ask your nodes how they are cabled and write cluster.yaml",
    "up": "Start a profile, or bring it up to date, and wait until it answers",
    "plan": "Show what each node will be and run; changes nothing",
    "fit": "Will it fit? The memory sum per node, without any cluster",
    "profiles": "List what can be served, or show one profile",
    "doctor": "Look at nodes, fabric and plan for what would go wrong; changes nothing",
    "status": "Show every gate of every rank, and where the record and the nodes differ",
    "logs": "Show the output of all ranks, merged",
    "diagnose": "Find the first cause of a failure in logs",
    "down": "Stop a deployment and leave the nodes bare",
    "fabric": "Measure the bandwidth between the nodes, in the pinned image",
    "support-bundle": "Collect facts, plan, events, findings and logs in one file, without secrets",
    "completion": "Print shell completion for bash, zsh or fish",
}


class Verbs(click.Group):
    """Verbs by name, imported late: ``--version`` must not pay for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"orchestrator.cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = _nearest(args[0])
            raise click.UsageError(f"no verb {args[0]!r}" + (f"; did you mean {near}?" if near else ""), ctx) from error


def _nearest(word: str) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, VERBS, n=1)), "")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="sparkctl %(version)s")
@click.option("--cluster", envvar="SPARKCTL_CLUSTER", type=click.Path(), help="Cluster file (default: ./cluster.yaml).")
@click.pass_context
def cli(ctx: click.Context, cluster: str | None) -> None:
    """Turn a desk full of DGX Sparks into one dependable OpenAI-compatible endpoint.

    Start with `sparkctl up tiny` on any Linux machine, or with `sparkctl init HOST HOST` where you have two Sparks.
    """
    ctx.obj = cluster
