"""How a deployment ends whose record is gone or not believed: by what docker and the processes themselves carry.

Every path is built from the node's own answer. The agent that ends the processes is the one of whoever asks, for
what lies on the node as an agent may be as damaged as the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.facts.node import NodeFacts
from orchestrator.plan.actions import Action, Phase, Put, Run
from orchestrator.plan.seat import scratch, state_root

GRACE_S = 10

# A docker that does not answer holds nothing of ours where processes ran: the two never mix in a deployment.
# Nor does it on a loopback cluster, whose machine may well have a docker that does not run.
_CONTAINERS = r"""
command -v docker >/dev/null 2>&1 || exit 0
mine() { docker ps -aq --filter "label=sparkctl.deployment=$2"; }
ids=$(mine "$@") || {
  [ "$3" = loopback ] && exit 0
  for file in "$1"/g*/*/unit.log "$1"/g*/*/unit.pid; do [ -e "$file" ] && exit 0; done
  exit 1
}
[ -z "$ids" ] || docker rm --force --volumes $ids >/dev/null || exit 1
[ -z "$(mine "$@")" ]
"""

# Also where the pid file is gone: the agent finds what it started by the mark that every one of them carries.
_PROCESSES = r"""
bad=0
for unit in "$1"/g*/*; do
  [ -e "$unit/unit.pid" ] || [ -e "$unit/unit.log" ] || continue
  "$2" "$3" halt --dir "$unit" --name unit --grace "$4" || bad=1
done
exit $bad
"""

_FILES = r'rm -rf -- "$1" "$2"-[0-9]* && [ ! -e "$1" ]'


@dataclass(frozen=True, slots=True)
class Agent:
    """The archive that knows how to end processes, and the hash that names it."""

    content: bytes
    sha256: str


def down(deployment: str, facts: Mapping[str, NodeFacts], agent: Agent, topology: str) -> tuple[Phase, ...]:
    """From whatever is there to bare nodes. Harmless where there is nothing."""
    ends: list[Action] = []
    files: list[Action] = []
    for node, known in facts.items():
        state = state_root(known, deployment)
        archive = f"{state}/agent/{agent.sha256}.pyz"
        words = (_CONTAINERS, state, deployment, topology)
        ends.append(_run(node, words, "remove the containers that carry its label"))
        if any(unit.deployment == deployment for unit in known.units) or _has_files(known, state):
            ends.append(Put(node, archive, agent.content, mode=0o644))
            halts = (_PROCESSES, state, known.python, archive, str(GRACE_S))
            ends.append(_run(node, halts, "end the processes that were started in its directory"))
        temporary = scratch(known, deployment, 0).removesuffix("-0")
        files.append(_run(node, (_FILES, state, temporary), "remove files"))
    return (
        Phase(f"End what runs of {deployment} without a record", tuple(ends)),
        Phase("Remove its files", tuple(files)),
    )


def _has_files(known: NodeFacts, state: str) -> bool:
    return any(path.startswith(f"{state}/") for path in known.generations)


def _run(node: str, script: tuple[str, ...], says: str) -> Run:
    body, *words = script
    return Run(node, ("sh", "-c", body, "sparkctl-down", *words), says, deadline_s=300.0, whole=True)
