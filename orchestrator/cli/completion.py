"""``sparkctl completion SHELL``: prints the script that a shell sources."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion", short_help="Print shell completion for bash, zsh or fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print shell completion. For bash: `sparkctl completion bash >> ~/.bashrc`."""
    from orchestrator.cli.group import cli

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(made(cli, {}, "sparkctl", "_SPARKCTL_COMPLETE").source())
