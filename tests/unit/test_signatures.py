"""A table of signatures that cannot work is refused, with words that say why; secrets leave no text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.doctor.derived import DERIVED
from orchestrator.doctor.redact import redact
from orchestrator.run.catalog import Catalog
from orchestrator.spec.problems import SpecError
from orchestrator.spec.signatures import Calculation, SignatureTable
from tests.unit.builders import SHIPPED
from tests.unit.logbook import cases

ENTRY = {
    "code": "ODD",
    "tells": "cause",
    "has": ["odd thing"],
    "patterns": [r"odd thing (?P<number>\d+)"],
    "says": "number {number}",
    "remedy": "wait",
    "examples": ["an odd thing 7"],
    "sources": ["a/b issue 1"],
}


def table(*entries: dict[str, Any]) -> SignatureTable:
    return SignatureTable.model_validate({"signatures": list(entries)}, strict=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"patterns": ["odd thing ("]}, "should be a regular expression, found"),
        ({"patterns": ["(odd thing)?"]}, "needs some text"),
        ({"patterns": [r"odd thing (\w+)+x"]}, "should not repeat what repeats already"),
        ({"after": "("}, "should be a regular expression, found"),
        ({"says": "{other}"}, "should fill other in a template"),
        ({"examples": ["an even thing 7"]}, "should have one of its own words"),
        ({"examples": ["an odd thing x"]}, "should match its own example"),
        ({"remedy": ""}, "should have a remedy"),
        ({"rules_out": ["NEVER"]}, "should rule out codes of this table, found NEVER"),
        ({"tells": "loud"}, "cause"),
        ({"sources": []}, "at least 1"),
    ],
)
def test_an_entry_that_cannot_work_is_refused(changes: dict[str, Any], words: str) -> None:
    assert table(ENTRY).signatures
    with pytest.raises(ValueError, match=re.escape(words)):
        table({**ENTRY, **changes})


def test_two_entries_of_one_code_are_refused() -> None:
    with pytest.raises(ValueError, match="one entry a code, found several for ODD"):
        table(ENTRY, ENTRY)


def test_a_table_of_the_operator_comes_first_and_its_mistakes_have_a_line(tmp_path: Path) -> None:
    (tmp_path / "pins").mkdir()
    file = tmp_path / "pins" / "signatures.yaml"
    file.write_text("signatures: []\n", encoding="utf-8")
    assert Catalog((tmp_path,), shipped=SHIPPED.shipped).signatures().signatures == ()
    file.write_text("signatures:\n  - {code: ODD, tells: cause, has: [odd], patterns: ['odd (']}\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"signatures/0/patterns: should be a regular expression.*\(line 2\)"):
        Catalog((tmp_path,)).signatures()
    assert Catalog((tmp_path / "nowhere",)).signatures().signatures == ()


def test_every_calculation_is_there_and_has_no_value_for_nothing() -> None:
    assert set(DERIVED) == set(Calculation.__args__)  # type: ignore[attr-defined]
    for name in set(DERIVED) - {"fit_fraction"}:
        assert DERIVED[name]({}) == ""


def test_every_entry_says_where_it_comes_from_without_a_link_to_follow() -> None:
    for entry in SHIPPED.signatures().signatures:
        assert all(re.search(r"[\w)]$", source) for source in entry.sources), entry.code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'hf_token': 'hf_TESTONLY123', 'port': 8000", "'hf_token': ***, 'port': 8000"),
        ("'api_key': ['sk-TESTONLY456', 'b'], 'seed': 0", "'api_key': ***, 'seed': 0"),
        ("HF_TOKEN=hf_TESTONLY123 vllm --api-key abcdef --port 1", "HF_TOKEN=*** vllm --api-key *** --port 1"),
        ("Authorization: Bearer TESTONLY.456", "Authorization: Bearer ***"),
        ("token hf_TESTONLY123 of nobody", "token *** of nobody"),
        ("'api_key': None, token_ids_len=3, max_tokens=7", "'api_key': None, token_ids_len=3, max_tokens=7"),
        ("Token authentication is disabled", "Token authentication is disabled"),
    ],
)
def test_a_secret_is_hidden_and_nothing_else(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_the_published_line_with_two_secrets_shows_none() -> None:
    (line,) = next(case.lines for case in cases() if case.id == "secret-02")
    assert "TESTONLY" in line
    assert "TESTONLY" not in redact(line)
    assert redact(line).count("***") == 2
