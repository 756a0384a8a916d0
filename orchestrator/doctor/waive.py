"""Waivers: an operator who knows better says so with a reason, and the finding stays visible as a warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches

from orchestrator.doctor.catalogue import NEVER_WAIVED, names
from orchestrator.doctor.finding import Finding
from orchestrator.spec.pins import KnownBadTable
from orchestrator.spec.profile import Profile


def waived(findings: Iterable[Finding], waivers: Mapping[str, str]) -> tuple[Finding, ...]:
    """``findings`` with every fail that is waived turned into a warning that names the reason."""
    return tuple(
        replace(each, verdict="warn", observed=f"{each.observed} (waived: {waivers[each.code]})")
        if each.verdict == "fail" and each.code in waivers and each.code not in NEVER_WAIVED
        else each
        for each in findings
    )


def problems(profile: Profile, table: KnownBadTable) -> tuple[str, ...]:
    """What is wrong with the profile's waivers: a code that does not exist, or one that cannot be waived."""
    known = names(table)
    found = []
    for code in profile.waivers:
        where = f"profiles/{profile.name}.yaml waivers/{code}"
        if code not in known:
            near = next(iter(get_close_matches(code, known, n=1, cutoff=0.0)), "")
            found.append(f"{where}: should be a code of the doctor, found another word; did you mean {near}?")
        elif code in NEVER_WAIVED:
            found.append(f"{where}: should be a code that can be waived; nothing can be started with this one")
    return tuple(found)
