"""``sparkctl completion SHELL``: prints the script that a shell sources."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion", short_help="Print shell completion for bash, zsh or fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what SHELL needs to complete verbs, profiles and deployments with the Tab key.

    \b
    For this shell and, as a line of its start-up file, for every other one:
      bash, zsh   eval "$(sparkctl completion bash)"     (or zsh; in ~/.bashrc or ~/.zshrc)
      fish        sparkctl completion fish | source      (in ~/.config/fish/config.fish)
    """
    from orchestrator.cli.group import cli

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"SHELL: should be bash, zsh or fish, found {shell}")
    click.echo(made(cli, {}, "sparkctl", "_SPARKCTL_COMPLETE").source())
