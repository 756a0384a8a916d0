"""The gates of readiness, each with a name and what was seen. Pure.

Every rank has ``attempt``, ``processes`` and ``pins``, and ``transport`` where the plan names RDMA devices. Rank 0 adds
``ranks``, ``health``, ``model``, ``completion`` and ``tokens``, and its ``pins`` speaks for all ranks. Ready is every
gate of every rank open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.agent.memory import Gang
from orchestrator.agent.probe import Probe, hangs, hung
from orchestrator.agent.views import FRESH_S, LIVE, Own, PeerView, Verdict, in_words, who
from orchestrator.plan.rankfile import Gate, Peer, RankFile

STALE_LOOK_S = 45.0
"""A look takes three requests of at most ten seconds each; one older than this says nothing any more."""
COUNTER = "vllm:generation_tokens_total"


@dataclass(frozen=True, slots=True)
class Sight:
    """What the gates of one rank are judged by. ``now`` is monotonic seconds."""

    now: float
    own: Own = field(default_factory=Own)
    versions: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[int, PeerView] = field(default_factory=dict)
    probe: Probe = field(default_factory=Probe)
    transport: tuple[Gate, ...] = ()


def all_gates(plan: RankFile, gang: Gang, sight: Sight) -> tuple[Gate, ...]:
    """The gates of this rank, in the order in which they open."""
    if plan.rank != 0:
        return (_attempt(plan, gang, sight), _processes(sight.own), _pins(plan, sight), *sight.transport)
    probe = sight.probe if sight.probe.attempt == gang.attempt else Probe()
    return (
        _attempt(plan, gang, sight),
        _processes(sight.own),
        _ranks(plan, gang, sight),
        _pins_everywhere(plan, sight),
        *sight.transport,
        *_looks(plan, gang, probe, sight.now),
        *_canaries(plan, probe, sight.now),
    )


def judge(plan: RankFile, gang: Gang, sight: Sight, gates: tuple[Gate, ...]) -> Verdict:
    """Rank 0's word on the service, from its gates: wrong pins and a hung engine do not heal by waiting."""
    shut = [f"{gate.name}: {gate.saw}" for gate in gates if not gate.open]
    pins = next((gate for gate in gates if gate.name == "pins"), Gate("pins", None, ""))
    hopeless = f"pins: {pins.saw}" if pins.open is False else ""
    if sight.probe.attempt == gang.attempt:
        hopeless = hopeless or hung(sight.probe, plan.service, sight.now)
    return Verdict(ready=gang.state == "running" and not shut, hopeless=hopeless, closed="; ".join(shut))


# ---- every rank


def _attempt(plan: RankFile, gang: Gang, sight: Sight) -> Gate:
    if gang.state not in LIVE:
        return Gate("attempt", None, f"rank {plan.rank} {in_words(gang.state, gang.attempt)}")
    if plan.rank == 0:
        return Gate("attempt", True, f"attempt {gang.attempt}")
    leader = sight.peers.get(0, PeerView())
    silent_s = sight.now - leader.heard_at
    if leader.status is None or silent_s > FRESH_S:
        return Gate("attempt", False, f"rank 0 silent for {silent_s:.0f} s: {leader.saw}")
    same = leader.status.attempt == gang.attempt and leader.status.state in LIVE
    theirs = f"rank 0 {in_words(leader.status.state, leader.status.attempt)}"
    return Gate("attempt", same, f"attempt {gang.attempt}" if same else f"attempt {gang.attempt}, but {theirs}")


def _processes(own: Own) -> Gate:
    if own.phase == "up":
        return Gate("processes", True, "all alive")
    if own.phase == "failed":
        return Gate("processes", False, own.reason)
    return Gate("processes", None, {"steps": "starting", "idle": "none"}.get(own.phase, own.phase))


def _pins(plan: RankFile, sight: Sight) -> Gate:
    pins = _used(plan, plan.pins)
    wrong = _wrong_pins(pins, sight.versions)
    return Gate("pins", not wrong, "; ".join(wrong) or _pinned(pins))


def _used(plan: RankFile, versions: Mapping[str, str]) -> dict[str, str]:
    """The versions of what this executor uses: a stack may bring Ray along for another one."""
    return {name: version for name, version in versions.items() if name != "ray" or plan.executor == "ray"}


def _wrong_pins(pins: Mapping[str, str], versions: Mapping[str, str]) -> list[str]:
    return [
        f"{name} should be {wanted}, found {versions.get(name, 'none')}"
        for name, wanted in sorted(pins.items())
        if versions.get(name) != wanted
    ]


def _pinned(pins: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(pins.items())) or "nothing is pinned"


# ---- rank 0


def _others(plan: RankFile, sight: Sight) -> list[tuple[Peer, PeerView]]:
    return [(peer, sight.peers.get(peer.rank, PeerView())) for peer in plan.peers if peer.rank != plan.rank]


def _ranks(plan: RankFile, gang: Gang, sight: Sight) -> Gate:
    if gang.state != "running":
        return Gate("ranks", None, f"rank 0 {in_words(gang.state, gang.attempt)}")
    shut = []
    for peer, view in _others(plan, sight):
        silent_s = sight.now - view.heard_at
        if view.status is None or silent_s > FRESH_S:
            shut.append(f"{who(peer)} silent for {silent_s:.0f} s: {view.saw}")
        elif view.status.state != "running" or view.status.attempt != gang.attempt:
            shut.append(f"{who(peer)} {in_words(view.status.state, view.status.attempt)}")
        else:
            shut.extend(f"{who(peer)} {gate.name}: {gate.saw}" for gate in view.status.gates if not gate.open)
    return Gate("ranks", not shut, "; ".join(shut) or f"{len(plan.peers)} ranks in attempt {gang.attempt}")


def _pins_everywhere(plan: RankFile, sight: Sight) -> Gate:
    pins, ours = _used(plan, plan.pins), _used(plan, sight.versions)
    wrong = [f"rank {plan.rank} ({plan.node}): {text}" for text in _wrong_pins(pins, ours)]
    unknown = []
    for peer, view in _others(plan, sight):
        if view.status is None:
            unknown.append(f"{who(peer)} has not answered yet")
            continue
        theirs = _used(plan, view.status.versions)
        wrong += [f"{who(peer)}: {text}" for text in _wrong_pins(pins, theirs)]
        wrong += [
            f"{who(peer)}: {name} {theirs.get(name, 'none')}, but rank 0 has {ours.get(name, 'none')}"
            for name in sorted({*theirs, *ours} - {*pins})
            if theirs.get(name) != ours.get(name)
        ]
    if wrong:
        return Gate("pins", False, "; ".join(wrong))
    return Gate("pins", None if unknown else True, "; ".join(unknown) or _pinned(pins))


def _looks(plan: RankFile, gang: Gang, probe: Probe, now: float) -> tuple[Gate, Gate]:
    look = probe.look
    if look is not None and look.shut and not probe.listened:
        loading = f"vLLM has been loading for {now - gang.since:.0f} s; its port does not answer yet"
        return Gate("health", None, loading), Gate("model", None, "not asked yet")
    if look is None:
        return Gate("health", None, "not asked yet"), Gate("model", None, "not asked yet")
    if now - look.at > STALE_LOOK_S:
        stale = f"no look for {now - look.at:.0f} s"
        return Gate("health", False, stale), Gate("model", False, stale)
    silent = hangs(probe, plan.service, now) if look.slow else ""
    served = f"{plan.service.served_name}, {plan.service.context_tokens} tokens"
    return (
        Gate("health", not look.health, "; ".join(filter(None, (look.health, silent))) or "200"),
        Gate("model", not look.model, look.model or served),
    )


def _canaries(plan: RankFile, probe: Probe, now: float) -> tuple[Gate, Gate]:
    proof, failed = probe.proof, probe.failed
    if proof is None:
        saw = failed.error if failed else "not asked yet"
        return Gate("completion", False if failed else None, saw), Gate("tokens", None, "no completion yet")
    before, after = proof.before.generated, proof.after.generated
    rose = after is not None and after > (before or 0)
    saw = f"{COUNTER} went from {before or 0:g} to {after:g}" if after is not None else f"no {COUNTER}"
    tokens = Gate("tokens", rose, saw)
    if failed is None:
        seconds = proof.ended_at - proof.began_at
        return Gate("completion", True, f"{proof.tokens} tokens in {seconds:.1f} s"), tokens
    missed = f"{probe.missed} of {plan.service.canaries_missed_max} canaries missed"
    missed = f"{hangs(probe, plan.service, now) or missed}: {failed.error}"
    tolerated = failed.slow and probe.missed < plan.service.canaries_missed_max
    return Gate("completion", tolerated, missed), tokens
