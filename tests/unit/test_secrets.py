"""Client keys over redeploys: each operator has one of his own, and nobody loses his."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.plan.gateway_keys import key_hash
from orchestrator.verbs import secrets
from tests.unit.builders import plan, profile, resolved

PLAN = plan(resolved(profile()))


def start(monkeypatch: pytest.MonkeyPatch, home: Path, known: str) -> str:
    """The gateway's map after a start by the operator of ``home``, whose machine has the same name."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("LOGNAME", home.name)
    return secrets.for_generation(PLAN, known)["client-keys"].decode()


def test_a_redeploy_by_another_operator_revokes_nobodys_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = start(monkeypatch, tmp_path / "ann", "")
    both = start(monkeypatch, tmp_path / "bob", first)
    assert {line.split()[1].partition("@")[0] for line in both.splitlines()} == {"ann", "bob"}
    assert set(first.splitlines()) < set(both.splitlines())
    assert start(monkeypatch, tmp_path / "ann", both) == both


def test_a_key_under_an_older_name_stands_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ann"))
    own = key_hash(secrets.client_key(PLAN.deployment))
    assert start(monkeypatch, tmp_path / "ann", f"{own} operator\n") == start(monkeypatch, tmp_path / "ann", "")


def test_a_name_that_no_log_line_could_carry_is_made_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "@weird user\n")
    assert secrets.key_name().startswith("weird-user-@")
