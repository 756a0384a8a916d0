"""The agent's command line, for ``python agent.pyz`` and ``python -m orchestrator.agent``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sparkctl-agent", description="The first process of a rank.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the agent of one rank until SIGTERM")
    run.add_argument("rankfile", help="the rank file that the plan wrote")
    nodes = commands.add_parser("ray-nodes", help="exit 0 when Ray has exactly the planned nodes")
    nodes.add_argument("--address", required=True, help="ADDRESS:PORT of the Ray head")
    nodes.add_argument("--expect", required=True, help="the planned nodes as NAME=ADDRESS, separated by commas")
    nodes.add_argument("--or-more", action="store_true", help="other nodes may be there too")
    nodes.add_argument("--gpus-each", type=float, default=1.0, help="accelerators of each node")
    spawn = commands.add_parser("spawn", help="start a process that outlives this one")
    halt = commands.add_parser("halt", help="end a spawned process and all that came of it")
    alive = commands.add_parser("alive", help="exit 0 and print the pid when the process runs")
    for command in (spawn, halt, alive):
        command.add_argument("--dir", required=True, type=Path, help="where its pid file and log are")
        command.add_argument("--name", required=True, help="its name there")
    spawn.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="no secrets here")
    spawn.add_argument("argv", nargs="+", help="the command, after --")
    halt.add_argument("--scratch", type=Path, help="a directory of its own, removed with it")
    halt.add_argument("--grace", type=float, default=10.0, help="seconds between SIGTERM and SIGKILL")
    return parser


def main(args: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns its exit code. Imports only what that one needs: some run very often."""
    parser = _parser()
    given = parser.parse_args(args)
    os.umask(0o077)  # logs are the owner's alone, as everything else here is
    if given.command == "run":
        from orchestrator.agent.loop import run

        return run(given.rankfile)
    if given.command == "ray-nodes":
        from orchestrator.agent.raynodes import ray_nodes

        pairs = [pair.rpartition("=") for pair in filter(None, given.expect.split(","))]
        expected = {address: name or address for name, _, address in pairs}
        return ray_nodes(given.address, expected, given.gpus_each, or_more=given.or_more)
    from orchestrator.agent import spawn

    if given.command == "spawn":
        wrong = [pair for pair in given.env if "=" not in pair]
        if wrong:
            parser.error(f"--env should be NAME=VALUE, found {wrong[0]}")
        env = dict(pair.split("=", 1) for pair in given.env)
        return spawn.spawn(given.dir, given.name, given.argv, env)
    if given.command == "halt":
        return spawn.halt(given.dir, given.name, given.grace, given.scratch)
    return spawn.alive(given.dir, given.name)


if __name__ == "__main__":
    sys.exit(main())
