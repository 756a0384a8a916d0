"""The console script. ``--version`` is answered before anything else is imported: scripts ask it often."""

from __future__ import annotations

import gc
import os
import sys

# What a command imports lives as long as the command: the default of 700 has the collector walk it dozens of times.
_COLLECT_AFTER = 200_000

# Plugins of pydantic that happen to be installed have no business in an operator's files, and to look for them pydantic
# reads the metadata of every installed distribution: 15 of 250 ms beside vLLM. Loopback nodes inherit it.
_NO_PLUGINS = ("PYDANTIC_DISABLE_PLUGINS", "__all__")


def main(argv: list[str] | None = None) -> None:
    """Exit codes: 0 done, 1 failed, 2 usage, 3 does not fit, 4 locked or moved, 5 refused, 130 Ctrl-C."""
    arguments: list[str] = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        from orchestrator import __version__

        print(f"sparkctl {__version__}")
        return
    _open_streams()
    gc.set_threshold(_COLLECT_AFTER)
    os.environ.setdefault(*_NO_PLUGINS)
    from orchestrator.cli.exits import run
    from orchestrator.cli.group import cli

    code = run(cli, arguments)
    gc.freeze()  # nor is there anything to look for at the end of the process
    sys.exit(code)


def _open_streams() -> None:
    """A stream that was closed (``<&-``) becomes /dev/null: otherwise the next file that is opened takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115, PTH123 -- as long as the process
