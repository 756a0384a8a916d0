"""Several ranks in one question: the first cause and who saw it, and nothing where all is well.

``tests/cases/ranks.jsonl`` holds the lines as `sparkctl logs` shows them, rank after rank. An ``expected`` begins with
diag=CODE, fatal=WORDS or silent, then whose line it is; others=, beside= and witnesses= say more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

import pytest

from orchestrator.doctor.diagnose import diagnose
from orchestrator.doctor.incident import Diagnosis, Log
from tests.unit.builders import SHIPPED
from tests.unit.logbook import CASES

TABLE = SHIPPED.signatures()


@dataclass(frozen=True, slots=True)
class Case:
    id: str
    ranks: dict[str, tuple[str, ...]]
    expected: str

    def said(self, name: str) -> str:
        found = re.search(rf"(?:^|; ){name}=([^;]+)", self.expected)
        return found[1] if found else ""


def cases() -> tuple[Case, ...]:
    found = []
    for text in (CASES / "ranks.jsonl").read_text(encoding="utf-8").splitlines():
        value = json.loads(text)
        ranks: dict[str, list[str]] = {}
        for line in value["input"].split("\n"):
            whose, _, rest = line.partition(" | ")
            ranks.setdefault(whose, []).append(rest)
        found.append(Case(value["id"], {whose: tuple(rows) for whose, rows in ranks.items()}, value["expected"]))
    return tuple(found)


ALL = cases()


def merged(case: Case) -> tuple[Log, ...]:
    return (Log("-", tuple(f"{whose} | {line}" for whose, rows in case.ranks.items() for line in rows)),)


def interleaved(case: Case) -> tuple[Log, ...]:
    named = [[f"{whose} | {line}" for line in rows] for whose, rows in case.ranks.items()]
    return (Log("-", tuple(line for row in zip_longest(*named) for line in row if line is not None)),)


def apart(case: Case) -> tuple[Log, ...]:
    logs = []
    for whose, rows in case.ranks.items():
        node, _, rank = whose.partition(" ")
        logs.append(Log(f"{node}.log", rows, node, rank))
    return tuple(logs)


def turned(case: Case) -> tuple[Log, ...]:
    return apart(case)[::-1]


@pytest.mark.parametrize("given", [merged, interleaved, apart, turned])
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_the_first_cause_of_several_ranks(case: Case, given: Callable[[Case], tuple[Log, ...]]) -> None:
    found = diagnose(given(case), TABLE)
    assert _answer(case, found) == case.expected.partition(";")[0]
    assert case.said("beside") in (found.first_fatal.text if found.cause and found.first_fatal else "")
    if found.cause:
        assert bool(case.said("beside")) == (found.first_fatal is not None)
        assert sorted(case.said("others").split()) == sorted(each.code for each in found.others)
        assert len(found.cause.witnesses) == int(case.said("witnesses") or len(found.cause.witnesses))


def _answer(case: Case, found: Diagnosis) -> str:
    """In the words of an ``expected``."""
    where = found.cause.witnesses[0] if found.cause else found.first_fatal
    if where is None:
        return "silent" if not found.warnings else "warned"
    whose = f"{where.node} {where.rank}".strip()
    if found.cause:
        return f"diag={found.cause.code} {whose}"
    wanted = case.said("fatal").removesuffix(f" {whose}")
    return f"fatal={wanted if wanted and wanted in where.text else where.text} {whose}"


def test_no_cause_of_several_ranks_is_missed_and_no_alarm_is_false() -> None:
    wrong = [case for case in ALL if _answer(case, diagnose(merged(case), TABLE)) != case.expected.partition(";")[0]]
    alarms = [case.id for case in wrong if case.expected.startswith("silent")]
    print(f"{len(ALL)} cases: {len(wrong) - len(alarms)} misses, {len(alarms)} false alarms")
    assert len(ALL) >= 25
    assert sum(case.expected.startswith("silent") for case in ALL) >= 10
    assert wrong == []
