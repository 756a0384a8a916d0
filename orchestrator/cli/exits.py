"""Errors into words and exit codes, in one place: no verb prints a traceback at an operator."""

from __future__ import annotations

import os
import sys

import click


def run(command: click.Command, arguments: list[str]) -> int:
    """Run ``command`` and answer with the exit code of the design's list."""
    try:
        code = command.main(args=arguments, prog_name="sparkctl", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        _placed(error).show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return 130
    except BrokenPipeError:
        # The reader of our output is gone (`| head`). Nothing more can be said, and Python must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _verb_error(error)


def _placed(error: click.ClickException) -> click.ClickException:
    """Says where --cluster belongs when it stands behind a verb: click would only say that there is no such option."""
    if not isinstance(error, click.NoSuchOption) or error.option_name != "--cluster" or error.ctx is None:
        return error
    verb = error.ctx.command_path.partition(" ")[2]
    return click.UsageError(f"--cluster goes before the verb: sparkctl --cluster FILE {verb} …", error.ctx)


def _verb_error(error: Exception) -> int:
    from orchestrator.verbs.errors import VerbError

    if not isinstance(error, VerbError):
        raise error
    for line in error.lines:
        _say(line)
    if error.remedy:
        _say(f"  -> {error.remedy}")
    return error.code


def _say(line: str) -> None:
    click.echo(f"{click.style('sparkctl:', fg='red')} {line}", err=True)
