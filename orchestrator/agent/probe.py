"""What is known of the service, folded from looks and canaries. Pure.

A look is cheap and frequent: ``/health``, ``/v1/models``, the counters. A canary is a real chat completion.
Once the service has been proven, traffic that moves the counters is proof enough, and canaries are sent only
in its absence. A canary that is late while the counters move means a busy engine, not a hung one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.plan.rankfile import Service

SLOW_LOOKS_MAX = 3
"""So many looks in a row may time out before they count: a busy engine answers late."""
UNPROVEN_RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class Counters:
    """``generated`` counts generated tokens; ``work`` moves with any step of the engine, prefill included.

    ``unfinished`` is how many requests the engine has now, running or waiting.
    """

    generated: float | None = None
    work: float | None = None
    unfinished: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One cheap look; an empty text is a good answer, any other says what was seen instead.

    ``shut``: nothing listens at the engine's port, which is how a loading engine looks.
    """

    at: float
    health: str
    model: str
    counters: Counters = Counters()
    slow: bool = False
    shut: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One canary: how many tokens it brought, or the error; ``slow`` when it only ran out of time.

    ``moved`` is what each RDMA device of this rank sent meanwhile, None where there are none or they do not tell.
    """

    began_at: float
    ended_at: float
    tokens: int = 0
    error: str = ""
    slow: bool = False
    before: Counters = Counters()
    after: Counters = Counters()
    moved: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Everything known of the service in one attempt; 0 is no attempt. ``proof`` is the last good canary.

    ``listened``: something has answered at the engine's port in this attempt.
    """

    attempt: int = 0
    look: Look | None = None
    listened: bool = False
    slow_looks: int = 0
    work: float | None = None
    moved_at: float = 0.0
    checked_at: float = 0.0
    proof: Answer | None = None
    failed: Answer | None = None
    missed: int = 0


def looked(probe: Probe, look: Look) -> Probe:
    """The probe after one more look."""
    probe = replace(probe, listened=probe.listened or not look.shut)
    slow_looks = probe.slow_looks + 1 if look.slow else 0
    if 0 < slow_looks < SLOW_LOOKS_MAX and probe.look is not None:
        return replace(probe, slow_looks=slow_looks)
    work = look.counters.work
    if work is not None and probe.work is not None and work != probe.work:
        probe = replace(probe, moved_at=look.at, missed=0)
    return replace(probe, look=look, slow_looks=slow_looks, work=probe.work if work is None else work)


def next_canary(probe: Probe, service: Service, now: float) -> tuple[Probe, bool]:
    """Whether a canary is due. Where traffic moved the counters since the last check, that was the check."""
    if probe.proof is None:
        good = probe.look is not None and not probe.look.health and not probe.look.model
        return probe, good and now - probe.checked_at >= UNPROVEN_RETRY_S
    if now - probe.checked_at < service.canary_every_s:
        return probe, False
    if probe.failed is None and probe.moved_at > probe.checked_at:
        return replace(probe, checked_at=now), False
    return probe, True


def answered(probe: Probe, answer: Answer) -> Probe:
    """The probe after a canary."""
    if not answer.error:
        work = probe.work if answer.after.work is None else answer.after.work
        return replace(
            probe,
            checked_at=answer.ended_at,
            work=work,
            proof=answer,
            failed=None,
            missed=0,
            moved_at=answer.ended_at,
        )
    # Late canaries follow one another by their beginnings: waiting for an answer and the pause are not added up.
    next_from = answer.began_at if probe.proof is not None else answer.ended_at
    moved = answer.before.work is not None and answer.before.work != (answer.after.work or answer.before.work)
    if probe.proof is not None and (moved or probe.moved_at >= answer.began_at):
        return replace(probe, checked_at=answer.ended_at, failed=None, missed=0)
    return replace(probe, checked_at=next_from, failed=answer, missed=probe.missed + 1)


def hangs(probe: Probe, service: Service, now: float) -> str:
    """What a service that once answered and now is silent has come to, and when it is given up; or nothing."""
    late = probe.failed is not None and probe.failed.slow
    silent = probe.look is not None and probe.look.slow
    if probe.proof is None or not (late or silent):
        return ""
    most, each_s = service.canaries_missed_max, max(service.canary_every_s, service.completion_deadline_s)
    last_ended_at = probe.failed.ended_at if probe.failed is not None else 0.0
    next_at = max(probe.checked_at + service.canary_every_s, last_ended_at)
    left = most - probe.missed
    in_s = next_at + (left - 1) * each_s + service.completion_deadline_s - now if left > 0 else 0.0
    return f"hangs: {probe.missed} of {most} canaries missed; starts again in about {max(in_s, 0.0):.0f} s"


def hung(probe: Probe, service: Service, now: float) -> str:
    """Why the service counts as hung, or nothing. One never proven is not hung: it is not ready yet."""
    if probe.proof is None or probe.failed is None or probe.missed < service.canaries_missed_max:
        return ""
    still_s = now - probe.moved_at
    return f"hung: {probe.missed} canaries missed, no token for {still_s:.0f} s; the last: {probe.failed.error}"
