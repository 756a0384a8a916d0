"""A node's host key is shown before any login, enrolled only when told to, and refused when it differs."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from orchestrator.run.enrol import enrol, look
from orchestrator.run.ssh import SshTransport
from orchestrator.run.sshsettings import Files
from orchestrator.run.transport import HostKeyChanged, NodeError, Unreachable
from tests.wire.server import Sshd, free_port, keygen

NO_CONFIG = Path("/dev/null")


def test_a_key_is_shown_without_a_login_and_once_enrolled_it_is_known_to_ssh_too(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "new" / "known_hosts"
    stranger = sshd.ssh(identity=tmp_path / "no-such-key")
    shown = look("spark-1", stranger, Files(known, NO_CONFIG))
    said = subprocess.run(
        ["ssh-keygen", "-lf", str(sshd.folder / "host_ed25519.pub")], capture_output=True, text=True, check=True
    ).stdout
    assert (shown.known, shown.kind, shown.fingerprint) == (False, "ssh-ed25519", said.split()[1])
    assert not known.exists()
    enrol(shown)
    assert look("spark-1", stranger, Files(known, NO_CONFIG)).known
    assert known.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(SshTransport("spark-1", sshd.ssh(), known, NO_CONFIG)) as transport:
        assert transport.run(("echo", "in"), deadline_s=10).stdout == "in\n"
    argv = ["ssh", "-F", "/dev/null", "-i", str(sshd.key), "-p", str(sshd.port), "-o", "BatchMode=yes"]
    argv += ["-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={known}", "127.0.0.1", "true"]
    assert subprocess.run(argv, check=False).returncode == 0


def test_a_last_line_without_an_end_is_not_glued_to_the_new_one(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("other.example ssh-ed25519 AAAA")
    enrol(look("spark-1", sshd.ssh(), Files(known, NO_CONFIG)))
    assert known.read_text().splitlines()[0] == "other.example ssh-ed25519 AAAA"
    assert look("spark-1", sshd.ssh(), Files(known, NO_CONFIG)).known


def test_another_key_than_the_one_on_record_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    known, other = tmp_path / "known_hosts", keygen(tmp_path / "other")
    known.write_text(f"[127.0.0.1]:{sshd.port} {other.with_suffix('.pub').read_text()}")
    with pytest.raises(HostKeyChanged, match="has changed"):
        look("spark-1", sshd.ssh(), Files(known, NO_CONFIG))


def test_the_type_on_record_is_asked_for(sshd: Sshd) -> None:
    shown = look("spark-1", sshd.ssh(), Files(sshd.known_hosts(kind="rsa"), NO_CONFIG))
    assert (shown.known, shown.kind) == (True, "ssh-rsa")


def test_a_closed_port_and_a_mute_one(sshd: Sshd, tmp_path: Path, mute: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.run.sshlink.CONNECT_DEADLINE_S", 0.5)
    files = Files(tmp_path / "known_hosts", NO_CONFIG)
    with pytest.raises(Unreachable, match="connection refused"):
        look("spark-1", sshd.ssh(port=free_port()), files)
    with pytest.raises(Unreachable):
        look("spark-1", sshd.ssh(port=mute), files)


def test_a_file_that_cannot_be_written(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shown = look("spark-1", sshd.ssh(), Files(tmp_path / "file" / "known_hosts", NO_CONFIG))
    with pytest.raises(NodeError, match="the host key cannot be recorded"):
        enrol(shown)
