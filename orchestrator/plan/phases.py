"""The system on one screen: what ``up`` and ``down`` do, as sentences, and how each sentence is taken back.

``up`` keeps the old generation stopped but whole until the new one is ready, so that undoing means starting it
again. Forgetting it comes last and is never taken back, only finished. Images, models and compiled kernels stay: they
are named by digest or hash, and the next start wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from orchestrator.plan import runtime
from orchestrator.plan.actions import Action, Await, Phase, Put, Run, SendImage, SendModel
from orchestrator.plan.launch import STOP_GRACE_S, Gateway, LaunchPlan, Rank, Unit


@dataclass(frozen=True, slots=True)
class Baggage:
    """What ``up`` carries and a plan never holds: the agent itself, secrets by name, and where model makers lie."""

    agent: bytes
    secrets: Mapping[str, bytes]
    made_by: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Before:
    """What is on the nodes already: the generation that may have to come back, and what an interrupted start left."""

    serving: LaunchPlan | None = None
    leftovers: tuple[LaunchPlan, ...] = ()

    @property
    def all(self) -> tuple[LaunchPlan, ...]:
        return (*self.leftovers, *((self.serving,) if self.serving else ()))


def up(plan: LaunchPlan, before: Before, baggage: Baggage) -> tuple[Phase, ...]:
    """From any state to a ready generation."""
    old = before.serving
    return tuple(
        phase
        for phase in (
            Phase("Bring the images to the nodes", _images(plan)),
            Phase("Bring the model to the nodes", _models(plan, baggage)),
            Phase("Write the agent, the rank files and the keys", _files(plan, baggage), _forget(plan)),
            *(Phase(f"Remove leftover generation {each.generation}", _remove(each)) for each in before.leftovers),
            *(_hand_over(old, plan) if old else ()),
            Phase(f"Start generation {plan.generation}", _start(plan, old), _take_away(plan)),
            Phase("Wait until every gate of every rank is open", _ready(plan)),
            Phase("Open the gateway", _open(plan)),
            *_forget_all(before),
        )
        if phase.actions
    )


def wait(plan: LaunchPlan) -> tuple[Phase, ...]:
    """For a generation that is already starting: only the waiting part of ``up``."""
    return (Phase("Wait until every gate of every rank is open", _ready(plan)), Phase("Open the gateway", _open(plan)))


def down(plan: LaunchPlan, reachable: frozenset[str]) -> tuple[Phase, ...]:
    """From any state to bare nodes: the gateway stops taking requests, then the ranks end, then the files go.

    With a node out of reach the others keep the plan: it is the only record of what may still run there.
    """
    gateway = plan.gateway.unit
    whole = reachable.issuperset((*plan.nodes, plan.gateway.node))
    found = (
        Phase("Close the gateway", (_run(plan, gateway, runtime.remove(plan, gateway), "close the gateway"),)),
        Phase(f"Stop generation {plan.generation}", _remove(plan)),
        Phase("Remove its files", _forget(plan) if whole else _forget_all_but_plan(plan)),
    )
    return tuple(Phase(each.title, tuple(a for a in each.actions if a.node in reachable)) for each in found)


def _images(plan: LaunchPlan) -> tuple[Action, ...]:
    return tuple(
        SendImage(node, bits.repository, bits.digest, bits.local_tag, says=f"image {bits.repository}")
        for bits in plan.images
        for node in bits.nodes
    )


def _models(plan: LaunchPlan, baggage: Baggage) -> tuple[Action, ...]:
    found: list[Action] = []
    for bits in plan.models:
        for node in bits.nodes:
            target, says = bits.target[node], f"model {bits.model}"
            if bits.made_by and plan.runtime == "process":
                python = plan.ranks[0].unit.argv[0]
                found.append(Run(node, (python, baggage.made_by[bits.made_by], target), says, deadline_s=300.0))
            else:
                found.append(SendModel(node, bits.model, bits.source, target, says, bits.manifest, bits.hashes))
    return tuple(found)


def _files(plan: LaunchPlan, baggage: Baggage) -> tuple[Action, ...]:
    found: list[Action] = []
    for node in dict.fromkeys((*plan.nodes, plan.gateway.node)):
        stored = f"{plan.state[node]}/g{plan.generation}/plan.json"
        found.append(Put(node, stored, plan.canonical().encode()))
    for rank in plan.ranks:
        path = f"{plan.state[rank.node]}/agent/{plan.agent_sha256}.pyz"
        found.append(Put(rank.node, path, baggage.agent, mode=0o644))
        rank_file = rank.rank_file.to_json().encode()
        found.append(Put(rank.node, f"{rank.unit.directory}/rank.json", rank_file, says=f"files of rank {rank.rank}"))
    owners: tuple[Rank | Gateway, ...] = (*plan.ranks, plan.gateway)
    for owner in owners:
        found += [Put(owner.node, file.path, file.text.encode(), mode=file.mode) for file in owner.files]
        for file in owner.secrets:
            found.append(Put(owner.node, file.path, baggage.secrets[file.name], secret=True))
    return tuple(found)


def let_finish(old: LaunchPlan) -> str:
    """The title of the first phase that touches the generation that serves."""
    return f"Let generation {old.generation} finish what it answers"


def _hand_over(old: LaunchPlan, new: LaunchPlan) -> tuple[Phase, ...]:
    """The old gateway stays while its ranks end, then the new one takes its port: clients see 503, no closed door.

    The head ends first and alone: it lets running answers finish, and needs the other ranks for that.
    """
    head, *others = (rank.unit for rank in old.ranks)
    gateways = (old.gateway.unit, new.gateway.unit)
    stop, start = _each(old, gateways[:1], runtime.stop, "stop"), _each(new, gateways[1:], runtime.start, "start")
    undo = (*_each(new, gateways[1:], runtime.remove, "remove"), *_start_again(old, gateways[:1]))
    return (
        Phase(
            let_finish(old),
            _each(old, (head,), runtime.stop, "stop"),
            _start_again(old, (head,)),
        ),
        Phase(
            f"Stop generation {old.generation}",
            _each(old, tuple(others), runtime.stop, "stop"),
            _start_again(old, tuple(others)),
        ),
        Phase(f"Hand the gateway to generation {new.generation}", (*stop, *start), undo),
    )


def _start(plan: LaunchPlan, old: LaunchPlan | None) -> tuple[Action, ...]:
    """Agents wait for one another, so no order is needed; the gateway is closed until the prober opens it."""
    units = plan.units if old is None else tuple(rank.unit for rank in plan.ranks)
    return _each(plan, units, runtime.start, "start")


def _ready(plan: LaunchPlan) -> tuple[Action, ...]:
    status = f"{plan.ranks[0].unit.directory}/status.json"
    says = f"{plan.served_name} on {len(plan.ranks)} ranks"
    # The node's own clock comes first: a status that nobody renews any more must not be believed.
    ask = ("sh", "-c", 'date +%s; cat "$1"', "status", status)
    return (Await(plan.head, ask, "ready", says, deadline_s=plan.ready_deadline_s + 60.0),)


def _open(plan: LaunchPlan) -> tuple[Action, ...]:
    gateway = plan.gateway
    host = "127.0.0.1" if gateway.bind == "0.0.0.0" else gateway.bind  # noqa: S104
    python = "python3" if gateway.unit.container is not None else plan.ranks[0].unit.argv[0]
    ask = "import sys,urllib.request as u; print(u.urlopen(sys.argv[1], timeout=2).status)"
    argv = (python, "-c", ask, f"http://{host}:{gateway.port}/health")
    return (Await(gateway.node, argv, "gateway", f"gateway at {gateway.endpoint}", deadline_s=30.0, every_s=0.3),)


def _start_again(plan: LaunchPlan, units: tuple[Unit, ...]) -> tuple[Action, ...]:
    """An interrupted stop may still be under way, and what is stopping cannot be started: so it is stopped first."""
    again = tuple(_run(plan, unit, runtime.start_again(plan, unit), f"start {unit.name} again") for unit in units)
    return (*_each(plan, units, runtime.stop, "stop"), *again)


def _remove(plan: LaunchPlan) -> tuple[Action, ...]:
    units = (plan.gateway.unit, *(rank.unit for rank in plan.ranks))
    return _each(plan, units, runtime.remove, "remove")


def _take_away(plan: LaunchPlan) -> tuple[Action, ...]:
    """Undo a start: no answers are to be let finish, and what has only just begun may not hear that it should end."""
    units = (plan.gateway.unit, *(rank.unit for rank in plan.ranks))
    hurried = tuple(replace(unit, stop_grace_s=min(unit.stop_grace_s, STOP_GRACE_S)) for unit in units)
    return _each(plan, hurried, runtime.remove, "remove")


def _forget(plan: LaunchPlan) -> tuple[Action, ...]:
    """Remove the generation's directory on every node, and the deployment's own when nothing else is in it."""
    script = 'rm -rf -- "$1/g$2" && { ls -d "$1"/g* >/dev/null 2>&1 || rm -rf -- "$1"; }'
    nodes = dict.fromkeys((*plan.nodes, plan.gateway.node))
    return tuple(
        Run(node, ("sh", "-c", script, "forget", plan.state[node], str(plan.generation)), "remove files")
        for node in nodes
    )


def _forget_all(before: Before) -> tuple[Phase, ...]:
    """The new generation serves by now and the old one cannot come back once a part of it is gone: no way back."""
    ends = [(*_remove(each), *_forget(each)) for each in before.all]
    return tuple(
        Phase(
            f"Forget generation {each.generation}",
            ends[at],
            undo=tuple(action for end in ends[at:] for action in end),
            settles=True,
        )
        for at, each in enumerate(before.all)
    )


def _forget_all_but_plan(plan: LaunchPlan) -> tuple[Action, ...]:
    script = 'find "$1/g$2" -mindepth 1 ! -path "$1/g$2/plan.json" -delete'
    return tuple(
        Run(node, ("sh", "-c", script, "forget", plan.state[node], str(plan.generation)), "remove files, keep the plan")
        for node in dict.fromkeys((*plan.nodes, plan.gateway.node))
    )


def _each(
    plan: LaunchPlan, units: tuple[Unit, ...], how: Callable[[LaunchPlan, Unit], tuple[str, ...]], word: str
) -> tuple[Action, ...]:
    return tuple(_run(plan, unit, how(plan, unit), f"{word} {unit.name}") for unit in units)


def _run(plan: LaunchPlan, unit: Unit, argv: tuple[str, ...], says: str) -> Run:
    return Run(unit.node, argv, says, deadline_s=float(unit.stop_grace_s) + 60.0, whole=True)
