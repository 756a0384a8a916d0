"""Which known-bad combinations a set of versions meets. Pure; ``fit``, ``plan`` and the doctor read one table."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from itertools import takewhile

from orchestrator.spec.pins import KnownBad, KnownBadTable, Stack

Key = tuple[tuple[int, int, str], ...]

# What is true of every Spark before anybody has asked one.
GB10 = {"arch": "aarch64", "accelerator": "gb10"}

_HOLDS: dict[str, Callable[[Key, Key], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def key(version: str) -> Key:
    """Orders versions part by part, numbers as numbers: 2.9 before 2.29, and 7.0.0-12 from 7.0 on.

    A local part (``+cu130``) does not count. A pre-release word orders before the release it leads to.
    """
    words = re.findall(r"\d+|[a-zA-Z]+", version.partition("+")[0])
    release = list(takewhile(str.isdigit, words))
    rest = words[len(release) :]
    while release and int(release[-1]) == 0:
        release.pop()
    found = [(1, int(word), "") if word.isdigit() else (-1, 0, word.lower()) for word in (*release, *rest)]
    return (*found, (0, 0, ""))


def holds(bound: str, version: str) -> bool:
    """Whether ``version`` is within ``bound``, such as ``<2.29.3``."""
    match = re.match(r"(<=|>=|==|!=|<|>)(.*)$", bound)
    if match is None:
        raise ValueError(f"a bound should be such as <2.29.3, found {bound}")
    return _HOLDS[match[1]](key(version), key(match[2]))


Where = Mapping[str, str | frozenset[str]]


def met(table: KnownBadTable, versions: Mapping[str, str], where: Where) -> tuple[KnownBad, ...]:
    """The entries whose part is among ``versions``, within all bounds, and whose conditions ``where`` meets.

    A condition that ``where`` does not know is not met: nothing is reported that was not seen. Of a set of words one
    must meet it. A condition may end in ``*``; of several with ``|`` between them one must hold.
    """
    return tuple(
        each
        for each in table.combinations
        if each.part in versions
        and all(holds(bound, versions[each.part]) for bound in each.versions)
        and all(_meets(where.get(name), wanted) for name, wanted in each.where.items())
    )


def _meets(known: str | frozenset[str] | None, wanted: str) -> bool:
    words = (known,) if isinstance(known, str) else known or ()
    return any(
        word.startswith(each[:-1]) if each.endswith("*") else word == each
        for each in wanted.split("|")
        for word in words
    )


def of_stack(stack: Stack) -> dict[str, str]:
    """Every version that a stack states, by part: what ranks check, and what is only written down of the inside."""
    inside = {part: match[0] for part, text in stack.inside.items() if (match := re.match(r"\d[\w.+-]*", text))}
    return {**inside, **stack.versions}
