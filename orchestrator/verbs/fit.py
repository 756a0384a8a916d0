"""``fit``: will a model, or a profile, fit? Reads cards, and asks nodes only when told to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.facts.node import NodeFacts
from orchestrator.plan import ceilings, known_bad
from orchestrator.plan import fit as fitting
from orchestrator.plan import resolve as resolving
from orchestrator.plan.ceilings import legal_counts, nearest
from orchestrator.plan.fit import Budget, Fit
from orchestrator.plan.kv import Split
from orchestrator.plan.memory import Drafter, Load, weights
from orchestrator.plan.resolved import Resolved
from orchestrator.plan.smallest_change import MOST_NODES
from orchestrator.run.catalog import Catalog
from orchestrator.spec.machine import Machine
from orchestrator.spec.model import Model
from orchestrator.spec.pins import KnownBad, Stack
from orchestrator.spec.problems import SpecError
from orchestrator.spec.profile import Profile, Speculative
from orchestrator.verbs import world
from orchestrator.verbs.errors import DoesNotFitError, UsageError, VerbError
from orchestrator.verbs.silent import told
from orchestrator.verbs.sitting import sitting

MACHINE = "gb10"


@dataclass(frozen=True, slots=True)
class Question:
    """``name`` is of a profile or a model. ``ask`` has the cluster's nodes asked for their real MemTotal."""

    name: str
    nodes: int | None = None
    context_tokens: int | None = None
    concurrency: int | None = None
    ask: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """``fit`` is for one node count, None when no count can be named; ``others`` are the other legal counts.

    ``known_bad`` are combinations that the profile's own stack meets by the versions that it states.
    """

    model: Model
    profile: Profile | None
    machine: Machine
    memory_total_bytes: int
    budgets: tuple[Budget, ...]
    fit: Fit | None
    others: tuple[Fit, ...]
    known_bad: tuple[KnownBad, ...] = ()

    @property
    def code(self) -> int:
        """Exit code: 0 it fits or is at the edge, 3 it does not fit, 1 nobody knows."""
        verdict = self.fit.verdict if self.fit else "unknown"
        return {"fits": 0, "at the edge": 0, "does not fit": 3, "unknown": 1}[verdict]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the card warns of, and what is true of every sum over several nodes."""
        several = self.fit is not None and self.fit.nodes > 1
        return (*self.model.warnings, *(self.machine.warnings if several else ()))

    @property
    def decode_ceiling(self) -> int | None:
        """Whole decode steps per second that memory bandwidth allows; None when the active bytes are not known."""
        active = ceilings.active_bytes(self.model)
        if active is None or self.fit is None:
            return None
        return ceilings.decode_ceiling(self.fit.nodes, active[0], self.machine.memory_bandwidth_bytes_s)

    @property
    def economics(self) -> dict[str, float]:
        """Price and yearly power of the boxes in US dollars, and how many tokens of the owner's API that price buys."""
        nodes, machine, api = (self.fit.nodes if self.fit else 1), self.machine, self.model.api
        found = {"price_usd": nodes * machine.price_usd, "power_usd_year": nodes * ceilings.power_usd_per_year(machine)}
        if api is not None:
            found["api_usd_per_m_output"] = ceilings.api_usd_per_m_output(api)
            found["break_even_output_tokens"] = ceilings.break_even_tokens(found["price_usd"], api)
        return found


def fit(catalog: Catalog, question: Question) -> Answer:
    """Raises ``UsageError`` for a name that is neither profile nor model and for a context that the model has not,
    and ``VerbError`` for a silent node.
    """
    read = _read(catalog, question.name)
    profile, stack, model, machine = read.profile, read.stack, read.models[0], read.machine
    most = model.context_tokens
    if question.context_tokens and most and question.context_tokens > most:
        raise UsageError(f"--context: should be at most {most}, the window of {model.name}")
    load = _load(read, question)
    total = _smallest_memory(catalog) if question.ask else machine.memory_total_bytes
    budgets = fitting.budgets(
        model, machine, expert_parallel=load.split.expert_parallel, tables_on_disk=load.tables_on_disk
    )
    least = max(question.nodes or 1, budgets[1].smallest if budgets else 1)
    legal = _legal(read, load, max(MOST_NODES, 2 * least))
    answers = {count: fitting.fit(model, _on(load, count), machine, total) for count in legal}
    built = answers if model.architecture.heads else {n: each for n, each in answers.items() if n in machine.steps}
    wanted = question.nodes or (profile.nodes.default or profile.nodes.max if profile else _sensible(budgets, built))
    chosen = None if wanted is None else answers.get(wanted)
    if wanted is not None and chosen is None:
        chosen = _illegal(fitting.fit(model, _on(load, wanted), machine, total), read, legal)
    others = tuple(each for count, each in answers.items() if count != wanted and (profile or count in machine.steps))
    met = known_bad.met(catalog.known_bad(), known_bad.of_stack(stack), known_bad.GB10) if stack else ()
    return Answer(model, profile, machine, total, budgets, chosen, others, met)


def refuse_impossible(catalog: Catalog, resolved: Resolved, facts: Mapping[str, NodeFacts]) -> None:
    """Raise ``DoesNotFitError`` for a plan that no setting and no luck can make fit, before anything is copied."""
    profile, model = resolved.profile, resolved.model
    if profile.accelerator != MACHINE:
        return
    machine = catalog.machine(MACHINE)
    load = of_profile(profile, resolved.stack, resolved.models, machine)
    seen = [node.memory_total_bytes for node in facts.values() if node.memory_total_bytes]
    answer = fitting.fit(model, _on(load, len(resolved.nodes)), machine, min(seen, default=None))
    if answer.impossible:
        where = f"profiles/{profile.name}.yaml on {answer.nodes} node{'s' if answer.nodes > 1 else ''}"
        raise DoesNotFitError(
            *(f"{where}: {reason}" for reason in answer.reasons),
            remedy=f"the smallest change: {answer.changes[0]}" if answer.changes else f"sparkctl fit {profile.name}",
        )


def of_profile(profile: Profile, stack: Stack, models: tuple[Model, ...], machine: Machine) -> Load:
    """What the profile has every node hold, for one sequence of its full context; ``models`` as of ``Resolved``."""
    engine, (model, *drafts) = profile.engine, models
    split = Split(
        tensor=1,
        pipeline=engine.pipeline,
        decode_context=engine.decode_context_parallel,
        expert_parallel=engine.expert_parallel,
        stacks=(stack.name, stack.base) if stack.base else (stack.name,),
    )
    return Load(
        split=split,
        context_tokens=engine.context_tokens,
        sequences=1,
        dtype=engine.kv_dtype,
        utilization=engine.memory_utilization or machine.utilization,
        tables_on_disk=profile.tables_on_disk and model.tables is not None,
        draft=_drafter(drafts[0], engine.speculative) if drafts else None,
    )


def _drafter(draft: Model, speculative: Speculative | None) -> Drafter:
    return Drafter(draft.name, weights(draft), speculative is not None and speculative.draft_on_every_rank)


@dataclass(frozen=True, slots=True)
class _Read:
    """The cards of a question; ``models`` are the model and, with a profile that names one, its draft."""

    profile: Profile | None
    stack: Stack | None
    models: tuple[Model, ...]
    machine: Machine


def _read(catalog: Catalog, name: str) -> _Read:
    try:
        profile = catalog.profile(name) if name in catalog.names("profile") else None
        if profile is not None and profile.accelerator != MACHINE:
            raise UsageError(
                f"{name} runs on the processors of any machine and needs no sum; fit answers for models on Sparks",
                remedy=f"name one of {', '.join(catalog.names('model'))}",
            )
        if profile is None and name not in catalog.names("model"):
            raise UsageError(
                f"should be the name of a profile or of a model, found {name}",
                remedy=f"there is {', '.join(sorted({*catalog.names('profile'), *catalog.names('model')}))}",
            )
        machine = catalog.machine(MACHINE)
        if profile is None:
            return _Read(None, None, (_served(catalog.model(name)),), machine)
        pins = world.pins_of(catalog, profile)
        models = (pins.model, *((pins.draft,) if pins.draft else ()))
        return _Read(profile, pins.stacks[profile.stack[profile.executor]], models, machine)
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None


def _served(model: Model) -> Model:
    if model.draft_of:
        raise UsageError(
            f"{model.name} only drafts for {' and '.join(model.draft_of)} and is never served by itself",
            remedy=f"sparkctl fit {model.draft_of[0]}",
        )
    return model


def _load(read: _Read, question: Question) -> Load:
    model, machine = read.models[0], read.machine
    if read.profile is not None and read.stack is not None:
        load = of_profile(read.profile, read.stack, read.models, machine)
    else:
        load = Load(Split(tensor=1), model.context_tokens, 1, None, machine.utilization)
    if question.context_tokens is not None:
        load = replace(load, context_tokens=question.context_tokens)
    if question.concurrency is not None:
        load = replace(load, sequences=question.concurrency)
    return load


def _on(load: Load, nodes: int) -> Load:
    """``load`` over ``nodes``; where the pipeline does not divide them, ``_illegal`` says so."""
    pipeline = load.split.pipeline if nodes % load.split.pipeline == 0 else 1
    return replace(load, split=replace(load.split, tensor=nodes // pipeline, pipeline=pipeline))


def _legal(read: _Read, load: Load, most: int) -> tuple[int, ...]:
    """Node counts that can be: a profile's own, or for a bare model those that divide its heads (and experts)."""
    model = read.models[0]
    if read.profile is not None:
        return resolving.legal_counts(read.profile, model)
    return legal_counts(model.architecture, expert_parallel=load.split.expert_parallel, most=most)


def _sensible(budgets: tuple[Budget, ...], answers: Mapping[int, Fit]) -> int | None:
    """The smallest count from the careful budget on that can work out; that budget's own when none can."""
    if not budgets:
        return None
    least = budgets[1].smallest
    for count, answer in answers.items():
        if count >= least and answer.verdict != "does not fit":
            return count
    return budgets[1].legal or least


def _illegal(answer: Fit, read: _Read, legal: tuple[int, ...]) -> Fit:
    """The sum of a node count that cannot be: it cannot run whatever fits."""
    profile, model = read.profile, read.models[0]
    near = " and ".join(map(str, nearest(legal, answer.nodes))) or "none"
    heads, experts = model.architecture.heads, model.architecture.experts
    if profile is not None and not profile.nodes.min <= answer.nodes <= profile.nodes.max:
        what = f"profile {profile.name} is not for {answer.nodes} nodes"
    else:
        parts = f"{heads} heads" + (f" and {experts} experts" if answer.load.split.expert_parallel else "")
        what = f"{parts} cannot be divided over {answer.nodes} nodes"
    reason = f"{what}; the nearest that can be: {near}"
    return replace(answer, verdict="does not fit", reasons=(reason, *answer.reasons), impossible=True)


def _smallest_memory(catalog: Catalog) -> int:
    try:
        cluster = catalog.cluster()
    except SpecError as error:
        raise UsageError(*(str(problem) for problem in error.problems)) from None
    if cluster is None:
        raise UsageError("should know nodes to ask, found no cluster.yaml", remedy="leave --ask out, or write one")
    with sitting(world.seats(cluster)) as seats:
        answers = world.gather(seats, "fit")
    if answers.silent:
        raise VerbError(*told(answers.silent))
    return min(node.memory_total_bytes or 0 for node in answers.facts.values())
