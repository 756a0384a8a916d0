"""Client keys over redeploys: each operator has one of his own, and nobody loses his."""

from __future__ import annotations

import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.plan.gateway_keys import key_hash
from orchestrator.plan.launch import SecretFile
from orchestrator.run.local import LocalTransport
from orchestrator.run.transport import NodeError
from orchestrator.verbs import secrets
from orchestrator.verbs.errors import UsageError
from orchestrator.verbs.support_bundle import _known_secrets
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


@pytest.mark.parametrize("left", [b"", b"short\n", b"two words of a sentence\n", b"\xa3\xff" * 20])
def test_a_file_that_holds_no_key_is_refused_by_its_path(
    left: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "sparkctl" / "keys" / PLAN.deployment
    path.parent.mkdir(parents=True)
    path.write_bytes(left)
    with pytest.raises(UsageError, match="should hold a key") as caught:
        start(monkeypatch, tmp_path, "")
    assert str(path) in str(caught.value)
    assert str(path) in caught.value.remedy
    assert left.decode(errors="replace").strip() in _known_secrets(PLAN.deployment)


def test_a_key_that_could_not_be_written_whole_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that may have three bytes is a disk that is full
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            secrets.client_key(PLAN.deployment)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert secrets.started_here() == ()


def test_damaged_lines_of_the_map_before_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = f"{'a' * 64} ann@desk\n"
    damaged = f"{'b' * 63} bob@desk\n{'c' * 64} $(id)\n\0\0\n{'d' * 64}\n"
    made = start(monkeypatch, tmp_path / "eva", whole + damaged)
    assert made == start(monkeypatch, tmp_path / "eva", whole)
    assert whole in made


def test_two_operators_of_one_name_have_a_key_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = start(monkeypatch, tmp_path / "one/ann", "")
    both = start(monkeypatch, tmp_path / "two/ann", first)
    assert set(first.splitlines()) < set(both.splitlines())
    assert len(both.splitlines()) == 2
    assert start(monkeypatch, tmp_path / "two/ann", both).splitlines() == both.splitlines()


def test_keys_that_cannot_be_read_are_not_forgotten(tmp_path: Path) -> None:
    map_file = tmp_path / "keys.map"
    old = replace(PLAN.gateway, secrets=(SecretFile(str(map_file), "client-keys"),))
    seats = {PLAN.gateway.node: LocalTransport(PLAN.gateway.node)}
    assert secrets.known_keys(replace(PLAN, gateway=old), seats) == ""
    map_file.mkdir()
    with pytest.raises(NodeError, match="the gateway's keys cannot be read: "):
        secrets.known_keys(replace(PLAN, gateway=old), seats)
