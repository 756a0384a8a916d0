"""Errors into words and exit codes, in one place: no verb prints a traceback at an operator."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import click


def run(command: click.Command, arguments: list[str]) -> int:
    """Run ``command`` and answer with the exit code of the design's list.

    A polite kill and a closed terminal end it as Ctrl-C does: whatever is open, such as a lock, is let go on the way.
    """
    for one in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(one) is signal.SIG_DFL:  # nohup stays nohup
            signal.signal(one, signal.default_int_handler)
    try:
        code = _run(command, arguments)
        sys.stdout.flush()  # a full disk behind the output shows only here
    except BrokenPipeError:
        # The reader of our output is gone (`| head`). Nothing more can be said, and Python must not try at exit.
        _hush()
        return 0
    except OSError as error:
        _hush()
        where = f" ({error.filename})" if error.filename else ""
        _say(f"this machine: {error.strerror or error}{where}")
        return 1
    return code


def _run(command: click.Command, arguments: list[str]) -> int:
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
    except OSError:
        raise
    except Exception as error:
        return _verb_error(error)


def _placed(error: click.ClickException) -> click.ClickException:
    """Says where --cluster belongs when it stands behind a verb: click would only say that there is no such option."""
    if not isinstance(error, click.NoSuchOption) or error.option_name != "--cluster" or error.ctx is None:
        return error
    verb = error.ctx.command_path.partition(" ")[2]
    return click.UsageError(f"--cluster goes before the verb: sparkctl --cluster FILE {verb} …", error.ctx)


def _verb_error(error: Exception) -> int:
    from orchestrator.run.transport import NodeError
    from orchestrator.verbs.errors import VerbError

    if isinstance(error, NodeError):  # a node's own trouble that no verb has words for
        error = VerbError(str(error), remedy=error.remedy)
    if not isinstance(error, VerbError):
        raise error
    for line in error.lines:
        _say(line)
    if error.remedy:
        _say(f"  -> {error.remedy}")
    return error.code


def _hush() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody to tell it to
        click.echo(f"{click.style('sparkctl:', fg='red')} {line}", err=True)
