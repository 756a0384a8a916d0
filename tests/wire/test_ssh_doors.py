"""Every way in which a node cannot be reached over SSH: the error, its words and the way out."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.run.ssh import SshTransport
from orchestrator.run.transport import (
    AuthRefused,
    Cancelled,
    ConnectionLost,
    HostKeyChanged,
    HostKeyUnknown,
    NodeError,
    PutFailed,
    Unreachable,
)
from orchestrator.spec.cluster import Ssh
from tests.wire.server import Relay, Sshd, free_port, keygen, wait_for

NO_CONFIG = Path("/dev/null")


def failing(transport: SshTransport) -> NodeError:
    with contextlib.closing(transport), pytest.raises(NodeError) as caught:
        transport.run(("true",), deadline_s=10)
    assert str(caught.value).startswith("spark-1: ")
    return caught.value


def print_of(public: Path) -> str:
    said = subprocess.run(["ssh-keygen", "-lf", str(public)], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


def test_unknown_host_key_shows_its_fingerprint_and_how_to_enrol_it(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    problem = failing(SshTransport("spark-1", sshd.ssh(), known, NO_CONFIG))
    assert isinstance(problem, HostKeyUnknown)
    assert print_of(sshd.folder / "host_ed25519.pub") in problem.what
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in problem.remedy
    command = problem.remedy.rpartition("then: ")[2]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)  # the remedy, pasted
    with contextlib.closing(SshTransport("spark-1", sshd.ssh(), known, NO_CONFIG)) as healed:
        assert healed.run(("echo", "in"), deadline_s=10).stdout == "in\n"


def test_changed_host_key_shows_both_fingerprints_and_the_line(sshd: Sshd, tmp_path: Path) -> None:
    known, other = tmp_path / "known_hosts", keygen(tmp_path / "other")
    public = other.with_suffix(".pub").read_text()
    known.write_text(f"# a comment\n[127.0.0.1]:{sshd.port} {public}")
    problem = failing(SshTransport("spark-1", sshd.ssh(), known, NO_CONFIG))
    assert isinstance(problem, HostKeyChanged)
    for expected in (
        print_of(sshd.folder / "host_ed25519.pub"),
        print_of(other.with_suffix(".pub")),
        f"{known} line 2",
    ):
        assert expected in problem.what
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {known}" in problem.remedy
    assert "somebody may stand in between" in problem.remedy


def test_a_revoked_host_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    known, name = tmp_path / "known_hosts", f"[127.0.0.1]:{sshd.port}"
    public = (sshd.folder / "host_ed25519.pub").read_text()
    known.write_text(f"{name} {public}@revoked {name} {public}")
    problem = failing(SshTransport("spark-1", sshd.ssh(), known, NO_CONFIG))
    assert isinstance(problem, HostKeyChanged)
    assert f"revoked in {known} line 2" in problem.what
    assert "sudo rm /etc/ssh/ssh_host_ed25519_key && sudo ssh-keygen -A" in problem.remedy


def test_the_key_type_on_record_is_the_one_asked_for(sshd: Sshd) -> None:
    transport = SshTransport("spark-1", sshd.ssh(), sshd.known_hosts(kind="rsa"), NO_CONFIG)
    with contextlib.closing(transport):
        assert transport.run(("true",), deadline_s=10).code == 0


def test_hashed_names_are_understood(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_hosts().read_text())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    with contextlib.closing(SshTransport("spark-1", sshd.ssh(), known, NO_CONFIG)) as transport:
        assert transport.run(("true",), deadline_s=10).code == 0


def test_a_refused_key_is_named_and_the_remedy_says_how_to_install_one(sshd: Sshd, tmp_path: Path) -> None:
    wrong = keygen(tmp_path / "wrong")
    problem = failing(SshTransport("spark-1", sshd.ssh(identity=wrong), sshd.known_hosts(), NO_CONFIG))
    assert isinstance(problem, AuthRefused)
    assert f"tried {print_of(wrong.with_suffix('.pub'))} ({wrong})" in problem.what
    assert problem.remedy == f"ssh-copy-id -F /dev/null -i {wrong} -p {sshd.port} {sshd.ssh().user}@127.0.0.1"


def test_a_key_with_a_passphrase_is_never_asked_for_one(sshd: Sshd, tmp_path: Path) -> None:
    """On a real terminal as well: nothing may be written there, and nobody may wait for an answer."""
    locked = keygen(tmp_path / "locked", passphrase="secret words")
    problem = failing(SshTransport("spark-1", sshd.ssh(identity=locked), sshd.known_hosts(), NO_CONFIG))
    assert isinstance(problem, AuthRefused)
    assert f"{locked} (needs a passphrase and no agent holds it)" in problem.what
    assert problem.remedy.startswith(f"ssh-add {locked}\nor: ssh-copy-id ")
    script = (
        "import sys; from pathlib import Path; from orchestrator.run.ssh import SshTransport, Ssh\n"
        "from orchestrator.run.transport import AuthRefused\n"
        "ssh = Ssh(host='127.0.0.1', port=int(sys.argv[1]), identity=sys.argv[2])\n"
        "try: SshTransport('n', ssh, Path(sys.argv[3]), Path('/dev/null')).run(('true',), deadline_s=10)\n"
        "except AuthRefused: sys.exit(42)\n"
    )
    python = [sys.executable, "-c", script, str(sshd.port), str(locked), str(sshd.known_hosts())]
    code, shown = on_a_terminal(python)
    assert (code, shown) == (42, b"")


def on_a_terminal(argv: list[str]) -> tuple[int, bytes]:
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(argv[0], argv)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end of a terminal is closed
        while data := os.read(terminal, 1024):
            shown += data
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as child:
        try:
            wait_for(path.exists, "the SSH agent")
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            yield path
        finally:
            child.terminate()


def test_a_key_with_a_passphrase_works_from_the_agent(sshd: Sshd, agent: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.write_bytes(sshd.key.read_bytes())
    locked.chmod(0o600)
    (tmp_path / "locked.pub").write_bytes(sshd.key.with_suffix(".pub").read_bytes())
    subprocess.run(["ssh-add", "-q", str(locked)], check=True)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(locked)], check=True)
    with contextlib.closing(SshTransport("n", sshd.ssh(identity=locked), sshd.known_hosts(), NO_CONFIG)) as transport:
        assert transport.run(("echo", "in"), deadline_s=10).stdout == "in\n"


def test_the_operators_ssh_config_is_honoured(sshd: Sshd, tmp_path: Path) -> None:
    """Include, alias, Port, User, IdentityFile, UserKnownHostsFile and HostKeyAlias; but not a waiver of host keys."""
    known = tmp_path / "kh"
    config, included = tmp_path / "config", tmp_path / "included"
    config.write_text(f"Include {included}\n")
    lines = {"HostName": "127.0.0.1", "Port": sshd.port, "User": sshd.ssh().user, "IdentityFile": sshd.key}
    lines |= {"UserKnownHostsFile": known, "HostKeyAlias": "my-spark", "StrictHostKeyChecking": "no"}
    included.write_text("Host desk\n" + "".join(f"  {key} {value}\n" for key, value in lines.items()))
    assert isinstance(failing(SshTransport("spark-1", Ssh(host="desk"), config=config)), HostKeyUnknown)
    known.write_text("my-spark " + (sshd.folder / "host_ed25519.pub").read_text())
    with contextlib.closing(SshTransport("spark-1", Ssh(host="desk"), config=config)) as transport:
        assert transport.run(("echo", "in"), deadline_s=10).stdout == "in\n"


@pytest.mark.parametrize("way", ["ProxyJump gate", "ProxyCommand exec sh -c 'exec ssh -F {config} gate -W %h:%p'"])
def test_a_node_behind_a_gate(sshd: Sshd, tmp_path: Path, way: str) -> None:
    config = tmp_path / "config"
    common = f"  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.key}\n"
    common += f"  UserKnownHostsFile {sshd.known_hosts()}\n"
    config.write_text(f"Host gate\n{common}Host inner\n{common}  {way.format(config=config)}\n")
    with contextlib.closing(SshTransport("spark-1", Ssh(host="inner"), config=config)) as transport:
        assert transport.run(("echo", "in"), deadline_s=10).stdout == "in\n"


def test_the_gates_host_key_is_verified_too(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    common = f"  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.key}\n"
    inner = f"{common}  UserKnownHostsFile {sshd.known_hosts()}\n  ProxyJump gate\n"
    config.write_text(f"Host gate\n{common}  UserKnownHostsFile {tmp_path / 'none'}\nHost inner\n{inner}")
    assert isinstance(failing(SshTransport("spark-1", Ssh(host="inner"), config=config)), HostKeyUnknown)


def test_a_broken_ssh_config_is_told_in_openssh_s_words(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("NoSuchKeyword yes\n")
    problem = failing(SshTransport("spark-1", Ssh(host="127.0.0.1"), config=config))
    assert isinstance(problem, Unreachable)
    assert "nosuchkeyword" in problem.what


def test_a_closed_port(sshd: Sshd) -> None:
    ssh = Ssh(host="127.0.0.1", port=free_port(), user="me")
    problem = failing(SshTransport("spark-1", ssh, sshd.known_hosts(), NO_CONFIG))
    assert isinstance(problem, Unreachable)
    assert "connection refused" in problem.what
    assert problem.remedy == f"ssh -v -F /dev/null -p {ssh.port} me@127.0.0.1 true"


def test_an_unknown_name() -> None:
    problem = failing(SshTransport("spark-1", Ssh(host="no-such-host.invalid"), config=NO_CONFIG))
    assert isinstance(problem, Unreachable)
    assert "the name no-such-host.invalid is not known" in problem.what


def test_cancel_ends_a_connect_that_hangs(sshd: Sshd, mute: int) -> None:
    transport = SshTransport("spark-1", sshd.ssh(port=mute), sshd.known_hosts(), NO_CONFIG)
    over = threading.Event()

    def press() -> None:
        while not over.wait(0.1):
            transport.cancel()

    threading.Thread(target=press, daemon=True).start()
    try:
        with contextlib.closing(transport), pytest.raises(Cancelled):
            transport.run(("true",), deadline_s=60)
    finally:
        over.set()


def test_a_connection_cut_in_mid_command_is_lost_and_the_next_call_opens_another(sshd: Sshd, relay: Relay) -> None:
    with contextlib.closing(sshd.transport(port=relay.port)) as transport:
        assert transport.run(("true",), deadline_s=10).code == 0
        threading.Timer(0.3, relay.cut).start()
        with pytest.raises(ConnectionLost, match="the connection was lost during: sleep 20"):
            transport.run(("sleep", "20"), deadline_s=60)
        assert transport.run(("echo", "again"), deadline_s=10).stdout == "again\n"


def test_a_server_that_dies_in_mid_file_leaves_nothing(over_ssh: SshTransport, tmp_path: Path) -> None:
    """Needs no root: a file-size limit on this connection's processes ends the SFTP server in the middle."""
    server = int(over_ssh.run(("sh", "-c", "echo $PPID"), deadline_s=10).stdout)
    resource.prlimit(server, resource.RLIMIT_FSIZE, (100_000, 100_000))
    with pytest.raises(PutFailed, match=r"cannot write .*/big"):
        over_ssh.put(str(tmp_path / "big"), b"x" * 5_000_000, 0o600)
    assert list(tmp_path.iterdir()) == []


def test_cancel_in_mid_put_leaves_nothing(sshd: Sshd, relay: Relay, tmp_path: Path) -> None:
    with contextlib.closing(sshd.transport(port=relay.port)) as transport:
        transport.put(str(tmp_path / "d" / "warm"), b"", 0o600)

        def press() -> None:
            wait_for(lambda: any(one.name.startswith(".file.") for one in (tmp_path / "d").iterdir()), "the upload")
            transport.cancel()

        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(Cancelled):
            transport.put(str(tmp_path / "d" / "file"), b"x" * 400_000_000, 0o600)
        presser.join()
        assert [one.name for one in (tmp_path / "d").iterdir()] == ["warm"]


def test_four_nodes_work_at_once(sshd: Sshd, tmp_path: Path) -> None:
    """Each node's command waits for the files of all four, so none ends unless all run at once."""
    script = 'touch "$1/$2"; while [ $(ls "$1" | wc -l) -lt 4 ]; do sleep 0.02; done; echo met'
    said = list[str]()

    def one(name: str) -> None:
        with contextlib.closing(sshd.transport(name)) as transport:
            said.append(transport.run(("sh", "-c", script, "sh", str(tmp_path), name), deadline_s=20).stdout)

    threads = [threading.Thread(target=one, args=(f"spark-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["met\n"] * 4


def test_the_server_of_a_live_connection_killed(sshd: Sshd) -> None:
    with contextlib.closing(sshd.transport()) as transport:
        server = int(transport.run(("sh", "-c", "echo $PPID"), deadline_s=10).stdout)
        threading.Timer(0.3, os.kill, (server, signal.SIGKILL)).start()
        with pytest.raises(ConnectionLost):
            transport.run(("sleep", "5"), deadline_s=60)


def test_importing_the_transports_loads_neither_fabric_nor_paramiko() -> None:
    look = "import sys, orchestrator.run.ssh, orchestrator.run.local; print({'fabric', 'paramiko'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "set()\n"
