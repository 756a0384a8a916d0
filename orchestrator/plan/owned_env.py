"""What a profile's ``env`` may not name: variables that the plan itself sets, and secrets."""

from __future__ import annotations

import re

from orchestrator.plan import network, serve
from orchestrator.plan.resolved import Resolved
from orchestrator.plan.seat import assumed_facts, seat

# …_TOKENS counts tokens and …_TOKEN_PATH or …_KEY_FILE names a file: neither holds a secret.
_SECRET = re.compile(
    r"(TOKEN|API_?KEY|(ACCESS|SECRET|PRIVATE)_KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
# Where compiled kernels lie is a matter of taste and of disks; the doctor says when a choice is bad.
_MOVABLE = re.compile(r"_CACHE_(DIR|ROOT)$")


def env_problems(resolved: Resolved) -> list[str]:
    """Every ``env/NAME: …`` that the plan cannot take."""
    planned = _planned(resolved)
    found = []
    for name, value in sorted(resolved.profile.env.items()):
        theirs = planned.get(name, {value})
        if _SECRET.search(name) and value and not value.isdigit():  # a number is a limit, as in MAX_TOKEN
            found.append(
                f"env/{name}: should not be a variable that holds a secret, found one; secrets stand in no plan, "
                "because a plan is shown and stored; take it out (the engine reads its model from disk)"
            )
        elif theirs != {value} and not _MOVABLE.search(name):
            should = next(iter(theirs)) if len(theirs) == 1 else "another value on each node"
            found.append(f"env/{name}: should be left to the plan, which sets {should}, found {value}; take it out")
    return found


def _planned(resolved: Resolved) -> dict[str, set[str]]:
    """Variable -> the values that the ranks of this plan get, from the same functions that the plan is built with."""
    values: dict[str, set[str]] = {}
    for rank, node in enumerate(resolved.nodes):
        here = seat(resolved, rank, assumed_facts(node), (0, ""))
        own = serve.environment(resolved, here) | network.environment(resolved.cluster, node)
        for name, value in own.items():
            values.setdefault(name, set()).add(value)
    return values
