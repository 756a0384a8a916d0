"""All rules, by family. ``fast`` is what ``up`` asks before it touches anything; ``everything`` is ``doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from orchestrator.doctor import (
    clock,
    frames,
    image,
    known,
    login,
    memory,
    node,
    parity,
    paths,
    planned,
    preflight,
    rails,
    rendered,
    wires,
)
from orchestrator.doctor.catalogue import BEFORE_A_START
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight
from orchestrator.doctor.waive import waived
from orchestrator.plan.launch import LaunchPlan

Rule = Callable[[Sight], Iterator[Finding]]


def before_a_start(sight: Sight) -> Iterator[Finding]:
    """Docker, ports, leftovers and pins; with a pass for each of them that nothing was found of."""
    if sight.plan is None:
        return
    found = preflight.findings(sight.plan, sight.facts, sight.ours)
    yield from found
    met = {(each.code, name.strip()) for each in found for name in each.node.split(",")}
    for name in sight.facts:
        for code in BEFORE_A_START:
            if (code.code, name) not in met and _concerns(sight.plan, code.code):
                yield code.passed(name, "nothing found")


def _concerns(plan: LaunchPlan, code: str) -> bool:
    docker = code.startswith(("DOCKER", "IMAGE"))
    return plan.runtime == ("docker" if docker else "process") if docker or code == "PROGRAM_ABSENT" else True


_FAST: tuple[Rule, ...] = (login.findings, before_a_start, planned.findings, rendered.findings, known.findings)
_NODES: tuple[Rule, ...] = (
    node.findings,
    image.findings,
    parity.findings,
    memory.findings,
    wires.findings,
    rails.findings,
    frames.findings,
    paths.findings,
    clock.findings,
)


def fast(sight: Sight) -> tuple[Finding, ...]:
    """Findings that need no more than the plan and the nodes' first answers, waivers applied."""
    return _run(_FAST, sight)


def everything(sight: Sight) -> tuple[Finding, ...]:
    """All findings, waivers applied. Without a plan only the families of nodes and fabric have anything to say."""
    return _run((*_FAST, *_NODES), sight)


def _run(rules: tuple[Rule, ...], sight: Sight) -> tuple[Finding, ...]:
    found = tuple(finding for rule in rules for finding in rule(sight))
    if sight.resolved is None:
        return found
    profile = sight.resolved.profile
    named = (replace(each, remedy=each.remedy.replace("PROFILE", profile.name)) for each in found)
    return waived(named, profile.waivers)
