"""``up``: walk the chain to the end. On an unchanged world it does nothing and says so."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag

from orchestrator.doctor.finding import Finding
from orchestrator.facts.node import NodeFacts
from orchestrator.plan import phases
from orchestrator.plan.actions import Phase
from orchestrator.plan.events import Event
from orchestrator.plan.judges import ALL
from orchestrator.plan.launch import LaunchPlan
from orchestrator.run import agentzip
from orchestrator.run.bits import Bits
from orchestrator.run.catalog import Catalog
from orchestrator.run.executor import Hands, Outcome, execute
from orchestrator.run.lock import Locked, held
from orchestrator.run.store import StatePaths, append
from orchestrator.run.transport import NodeError, Transport
from orchestrator.verbs import checks, names, secrets, stored, world
from orchestrator.verbs.diagnose import first_cause
from orchestrator.verbs.errors import BlockedError, InterruptedVerbError, RefusedError, UsageError, VerbError
from orchestrator.verbs.evidence import Evidence
from orchestrator.verbs.fabric import missing
from orchestrator.verbs.fit import refuse_impossible
from orchestrator.verbs.plan import anew, built
from orchestrator.verbs.running import Running, running
from orchestrator.verbs.silent import told, unlisted
from orchestrator.verbs.sitting import sitting
from orchestrator.verbs.world import Ask, Chosen


@dataclass(frozen=True, slots=True)
class Request:
    """``plan_file`` is a plan stored by ``plan --out``: it says by itself what to plan, ``ask`` may only repeat it."""

    ask: Ask
    plan_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """What ``up`` left behind. ``changed`` is False when there was nothing to do."""

    plan: LaunchPlan
    changed: bool
    took_s: float
    key_path: Path


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that the doing part needs, once the thinking part is over."""

    catalog: Catalog
    chosen: Chosen
    seats: Mapping[str, Transport]
    sink: Callable[[Event], None]
    cancel: Flag


def up(catalog: Catalog, request: Request, sink: Callable[[Event], None], cancel: Flag) -> Finished:
    """Bring the deployment to the plan and wait until it answers. Raises a ``VerbError`` otherwise."""
    names.check(request.ask.name, "--name")
    began = time.monotonic()
    old, ask = _wanted(request)
    chosen = world.choose(catalog, ask, may_assume=False)
    with sitting(world.seats(chosen.resolved.cluster)) as seats:
        stage = Stage(catalog, chosen, seats, sink, cancel)
        view = _look(stage)
        plan = view.plan
        stored.refuse_moved(old, plan)
        _refuse_impossible(view)
        changed = not view.nothing_to_do
        if changed:
            with locked(stage.seats[plan.head], plan.state[plan.head], "up", cancel) as note:
                if note:
                    sink(Event("note", time.time(), says=note))
                view = _look(stage)
                stored.refuse_moved(old, view.plan)
                _refuse_impossible(view)
                changed = not view.nothing_to_do
                _tell_waived(stage, view)
                plan = _carry_out(stage, view) if changed else view.plan
    return Finished(plan, changed, time.monotonic() - began, secrets.client_key_path(plan.deployment))


@dataclass(frozen=True, slots=True)
class View:
    """What one look at the world told: the plan for it, what runs, the nodes' facts, and what the rules say."""

    plan: LaunchPlan
    now: Running
    facts: Mapping[str, NodeFacts]
    findings: tuple[Finding, ...] = ()

    @property
    def nothing_to_do(self) -> bool:
        return self.now.plan is not None and self.now.plan.digest == self.plan.digest and self.now.ready


def _look(stage: Stage) -> View:
    resolved = stage.chosen.resolved
    answers = world.gather({node.name: stage.seats[node.name] for node in resolved.nodes}, resolved.deployment)
    if answers.silent:
        raise VerbError(*told(answers.silent))
    refuse_impossible(stage.catalog, resolved, answers.facts)
    now = running(answers.facts, resolved.deployment, resolved.cluster.topology)
    refuse_lost(now, resolved.deployment)
    gone = unlisted(now, resolved.cluster)
    if gone:
        raise RefusedError(*told(gone))
    plan = built(stage.chosen, answers.facts, now)
    seen = checks.sight(stage.catalog, resolved, plan, answers.facts, now)
    return View(plan, now, answers.facts, checks.fast(seen, missing(resolved, time.time())))


def refuse_lost(now: Running, deployment: str) -> None:
    """Nothing is started over what is another's or nobody can tell the meaning of. Raises ``RefusedError``."""
    if now.elsewhere:
        says = (
            f"{deployment}: should be a name of its own, found a deployment of that name on {', '.join(now.elsewhere)}"
        )
        raise RefusedError(says, remedy=f"give this one another name: --name {deployment}-2")
    if now.lost:
        says = f"{deployment}: should have a record of what is there, found none that can be believed"
        raise RefusedError(says, *now.unreadable, *now.remains, remedy=f"sparkctl down {deployment}")


def _refuse_impossible(view: View) -> None:
    found = () if view.nothing_to_do else checks.fails(view.findings)
    if found:
        raise RefusedError(*(f"{finding}\n  -> {finding.remedy}" for finding in found))


def _tell_waived(stage: Stage, view: View) -> None:
    """A waived finding is passed over, but not in silence."""
    waivers = stage.chosen.resolved.profile.waivers
    for each in view.findings:
        if each.verdict == "warn" and each.code in waivers:
            stage.sink(Event("note", time.time(), says=f"waived: {each}"))


def _wanted(request: Request) -> tuple[LaunchPlan | None, Ask]:
    """The stored plan, if one was named, and what to plan."""
    if request.plan_file is not None:
        old = stored.read(request.plan_file)
        return old, stored.ask_for(old, request.ask, request.plan_file)
    if not request.ask.profile:
        raise UsageError("should name a PROFILE or a stored plan, found neither", remedy="sparkctl profiles list")
    return None, request.ask


@contextlib.contextmanager
def locked(head: Transport, state: str, why: str, cancel: Flag) -> Iterator[str]:
    """Hold the deploy lock on the head node, or say who does. Losing it ends the work, as Ctrl-C would."""
    try:
        with held(head, state, why, on_lost=cancel.set) as lock:
            yield lock.note
            if lock.lost.is_set():
                raise BlockedError(f"the deploy lock was lost: {lock.why_lost}", remedy="sparkctl status")
    except Locked as error:
        raise BlockedError(str(error), remedy=error.remedy) from None


def _carry_out(stage: Stage, view: View) -> LaunchPlan:
    plan, now = view.plan, view.now
    same = now.plan is not None and now.plan.digest == plan.digest
    if same and not now.broken and not now.differs:
        finish(stage, plan, phases.wait(plan), now, view.findings)
        return plan
    if same:
        plan = anew(stage.chosen, view.facts, now)
    known = secrets.known_keys(now.plan, stage.seats)
    baggage = phases.Baggage(
        agent=agentzip.build().content,
        secrets=secrets.for_generation(plan, known),
        made_by=stage.catalog.makers(),
    )
    finish(stage, plan, phases.up(plan, phases.Before(now.plan, now.others), baggage), now, view.findings)
    return plan


def finish(
    stage: Stage, plan: LaunchPlan, todo: tuple[Phase, ...], before: Running, findings: tuple[Finding, ...] = ()
) -> None:
    """Execute, write the events to the head's log, and turn the outcome into nothing or the right ``VerbError``.

    A first ``up`` that failed leaves nothing behind, its log neither; one that failed over a deployment is recorded.
    """
    events: list[Event] = []
    kept: list[str] = []

    def sink(event: Event) -> None:
        events.append(event)
        stage.sink(event)

    resolved = stage.chosen.resolved
    models = {model.name: model for model in resolved.models}
    bits = Bits(resolved.cluster, models, world.ssh_files(resolved.cluster))
    evidence = Evidence(plan, stage.seats, events, findings)
    hands = Hands(stage.seats, bits, ALL, sink, plan.generation, on_failure=lambda: kept.extend(evidence.keep()))
    outcome = execute(todo, hands, stage.cancel)
    if outcome.ok or outcome.settled:
        events.append(Event("generation-ready", time.time(), generation=plan.generation))
    unless_told_already = contextlib.nullcontext() if outcome.ok else contextlib.suppress(NodeError)
    if outcome.ok or before.plan is not None:
        log = StatePaths(plan.state[plan.head].partition("/.local/")[0], plan.deployment).events
        with unless_told_already:
            append(stage.seats[plan.head], log, [event for event in events if event.kind != "action-progress"])
    otherwise = "sparkctl diagnose --last" if kept else f"sparkctl doctor {plan.profile}"
    if kept:
        kept += first_cause(stage.catalog, evidence.folder)
    came_back = () if outcome.settled else _comes_back(before, events)
    raise_unless_ok(outcome, otherwise, (*came_back, *kept))


def _comes_back(before: Running, events: list[Event]) -> tuple[str, ...]:
    """Undone is not yet serving: a generation that was stopped was started again and needs its time."""
    if before.plan is None or not any(event.phase == phases.let_finish(before.plan) for event in events):
        return ()
    return (f"generation {before.plan.generation} is starting again and serves when its gates open: sparkctl status",)


def raise_unless_ok(outcome: Outcome, otherwise: str, kept: tuple[str, ...] = ()) -> None:
    """``otherwise`` is the next step where the failure names none; ``kept`` are lines on where evidence lies."""
    if outcome.ok:
        return
    what = "finished" if outcome.settled else "undone"
    left = tuple(f"could not be {what}: {failure}" for failure in outcome.undo_failures)
    if outcome.settled:
        kept = ("the new generation serves", *kept)
    if outcome.kind == "interrupted":
        said = f"interrupted; what was begun is {what}" if not left else f"interrupted; not everything could be {what}"
        raise InterruptedVerbError(said, *left, *kept)
    raise VerbError(
        f"{outcome.node}: {outcome.says} ({outcome.phase})", *left, *kept, remedy=outcome.remedy or otherwise
    )
