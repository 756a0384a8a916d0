"""Bits over a real sshd: rsync, ``ssh -R`` and the registry behind it. Docker itself is proved in the lab.

Where docker is needed, ``STAND_IN`` takes its place: a program that pulls manifest and blobs by digest over HTTP from
the address that it is given, as docker does, and answers the few questions that are asked. It is told what to do wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.plan.actions import SendImage, SendModel
from orchestrator.run.bits import Bits
from orchestrator.run.dockersays import DiskFullError, DockerUnusableError
from orchestrator.run.images import ImageMissingError, WrongArchitectureError
from orchestrator.run.local import LocalTransport
from orchestrator.run.modelproof import WrongContentError
from orchestrator.run.models import PARTIAL, STAMP, ModelMissingError, digest
from orchestrator.run.openssh import Child, TunnelRefused, Way, tunnel
from orchestrator.run.registry import serving
from orchestrator.run.ssh import SshTransport
from orchestrator.run.sshsettings import Files
from orchestrator.run.transport import Cancelled, DeadlineExceeded, NodeError, Transport, Unreachable
from orchestrator.spec.cluster import Bits as Places
from orchestrator.spec.cluster import Cluster, Node, Rail, Ssh
from orchestrator.spec.model import Model
from tests.wire.server import Sshd, keygen, wait_for

MODEL = Model(name="m", about="", repository="owner/m", revision="a" * 40, licence="MIT", context_tokens=1)

STAND_IN = r"""
import json, os, pathlib, sys, time, urllib.request
here = pathlib.Path(sys.argv[0]).parent
order = json.loads((here / "order.json").read_text())
images = here / "images.json"
known = json.loads(images.read_text()) if images.exists() else {}
words = sys.argv[1:]
with (here / "log").open("a") as log:
    log.write(" ".join(words) + "\n")
if words[0] in order.get("fail", {}):
    code, said = order["fail"][words[0]]
    sys.exit(print(said, file=sys.stderr) or code)
if words[0] == "version":
    print(order.get("arch", "arm64"))
elif words[0] == "info":
    print(here)
elif words[:2] == ["image", "ls"]:
    for name, one in known.items():
        print(one["digest"], name)
elif words[:2] == ["image", "inspect"]:
    one = next((one for one in known.values() if words[-1] in one["tags"]), None)
    if one is None:
        sys.exit(print("Error: No such image: " + words[-1], file=sys.stderr) or 1)
    print(json.dumps({"RepoDigests": [one["name"]], "Architecture": one["arch"]}))
elif words[0] == "tag":
    one = known.get(words[1]) or next(one for one in known.values() if one["name"] == words[1])
    one["tags"].append(words[2])
elif words[0] == "pull":
    host, _, rest = words[1].partition("/")
    path, _, digest = rest.partition("@")
    if not host.startswith("127.0.0.1:"):
        sys.exit(print("Error response from daemon: manifest unknown: manifest unknown", file=sys.stderr) or 1)
    ask = lambda what, name: urllib.request.urlopen(f"http://{host}/v2/{path}/{what}/{name}").read()
    manifest = json.loads(ask("manifests", digest))
    for layer in manifest["layers"]:
        print(layer["digest"][7:19] + ": Pulling fs layer", flush=True)
        while order.get("hang"):  # as long as the registry is there; docker gives up without one, too
            ask("manifests", digest)
            time.sleep(0.2)
        ask("blobs", layer["digest"])
        print(layer["digest"][7:19] + ": Pull complete", flush=True)
    arch = json.loads(ask("blobs", manifest["config"]["digest"]))["architecture"]
    known["sha256:" + str(len(known)) * 64] = {"digest": digest, "name": words[1], "arch": arch, "tags": []}
images.write_text(json.dumps(known))
"""


@dataclass
class Docker:
    """The stand-in in a folder of its own: its orders, and what it was asked."""

    folder: Path
    words: tuple[str, ...] = ()

    def order(self, **orders: object) -> None:
        (self.folder / "order.json").write_text(json.dumps(orders))

    def asked(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


class LocalWithStandIn(LocalTransport):
    """This machine, where ``docker`` is the stand-in."""

    docker: Docker

    def _command(self, argv: tuple[str, ...], talk: object) -> int:
        argv = (*self.docker.words, *argv[1:]) if argv[0] == "docker" else argv
        return super()._command(argv, talk)  # type: ignore[arg-type]


class SshWithStandIn(SshTransport):
    """The node behind the test's sshd, where ``docker`` is the stand-in."""

    docker: Docker

    def _command(self, argv: tuple[str, ...], talk: object) -> int:
        argv = (*self.docker.words, *argv[1:]) if argv[0] == "docker" else argv
        return super()._command(argv, talk)  # type: ignore[arg-type]


@dataclass
class Desk:
    """The operator's side: a cluster of one node, hands, and a transport to it."""

    bits: Bits
    transport: Transport
    docker: Docker
    images: Path
    key: str
    told: list[str] = field(default_factory=list)

    def image(self, name: str, **extra: Any) -> str:
        action = SendImage("spark-1", "ghcr.io/owner/image", name, "sparkctl.local/x:1", "image", **extra)
        return self.bits.send_image(action, self.transport, self.told.append)

    def model(self, source: Path, target: Path, manifest: dict[str, int] | None = None, **extra: Any) -> str:
        action = SendModel("spark-1", "m", str(source), str(target), "model", tuple((manifest or {}).items()), **extra)
        return self.bits.send_model(action, self.transport, self.told.append)


def way(sshd: Sshd, identity: Path | None = None) -> Way:
    return Way("spark-1", sshd.ssh(identity=identity), Files(sshd.known_hosts(), Path("/dev/null")))


@pytest.fixture(params=["local", "ssh"])
def desk(request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path) -> Iterator[Desk]:
    folder = tmp_path / "docker"
    folder.mkdir()
    (folder / "docker.py").write_text(STAND_IN)
    docker = Docker(folder, (sys.executable, "-S", str(folder / "docker.py")))
    docker.order()
    files = Files(sshd.known_hosts(), Path("/dev/null"))
    ssh: Ssh | None = sshd.ssh() if request.param == "ssh" else None
    made: LocalWithStandIn | SshWithStandIn
    if ssh is None:
        made = LocalWithStandIn("spark-1")
    else:
        made = SshWithStandIn("spark-1", ssh, files.known_hosts, files.config)
    made.docker = docker
    node = Node(name="spark-1", ssh=ssh, rails=(Rail(netdev="lo", address="127.0.0.1"),))
    places = Places(images_from=str(tmp_path / "images"))
    bits = Bits(Cluster(nodes=(node,), bits=places), {"m": MODEL}, files)
    with contextlib.closing(made):
        yield Desk(bits, made, docker, tmp_path / "images", str(sshd.key))
    shutil.rmtree(tmp_path / "m", ignore_errors=True)  # gigabytes, in some tests


def store(images: Path, arch: str = "arm64", layer: bytes = b"layer" * 200_000) -> str:
    """A layout of one image under ``images``; answers its digest."""
    blobs = images / "made" / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes) -> dict[str, object]:
        value = hashlib.sha256(data).hexdigest()
        (blobs / value).write_bytes(data)
        return {"digest": f"sha256:{value}", "size": len(data)}

    config = add(json.dumps({"architecture": arch}).encode())
    name = str(add(json.dumps({"config": config, "layers": [add(layer)]}).encode())["digest"])
    (images / "made/oci-layout").write_text("{}")
    (images / "made").rename(images / name.replace(":", "-"))
    return name


def running(*words: str) -> list[int]:
    """Process ids of programs whose command line holds all of ``words``."""
    listed = subprocess.run(["ps", "-wweo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 1) for line in listed.splitlines()]
    return [int(row[0]) for row in rows if len(row) == 2 and all(word in row[1] for word in words)]


def nothing_runs_with(*words: str) -> None:
    wait_for(lambda: not running(*words), f"no process with {words}")


@contextlib.contextmanager
def in_a_thread(call: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Runs ``call`` beside the block; what it raises is in the list once the block has ended."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield raised
    thread.join(10)
    assert not thread.is_alive()


# The tunnel.


def test_a_blob_through_ssh(sshd: Sshd, tmp_path: Path) -> None:
    name = store(tmp_path, layer=b"x" * 3_000_000)
    layer = hashlib.sha256(b"x" * 3_000_000).hexdigest()
    with (
        serving(tmp_path / name.replace(":", "-")) as registry,
        tunnel(way(sshd), registry.port, lambda: False) as port,
    ):
        assert port != registry.port
        url = f"http://127.0.0.1:{port}/v2/x/blobs/sha256:{layer}"
        assert httpx.get(url, trust_env=False).content == b"x" * 3_000_000
        part = httpx.get(url, trust_env=False, headers={"Range": "bytes=2999999-"})
        assert (part.status_code, part.content) == (206, b"x")
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    nothing_runs_with("ssh -F", f":127.0.0.1:{registry.port}")


def test_a_tunnel_that_sshd_refuses(sshd: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "limited")
    with (sshd.folder / "authorized_keys").open("a") as keys:
        keys.write("no-port-forwarding " + (tmp_path / "limited.pub").read_text())
    with (
        pytest.raises(TunnelRefused, match="refuses remote forwarding") as caught,
        tunnel(way(sshd, key), 1, lambda: False),
    ):
        pass
    assert "AllowTcpForwarding" in caught.value.remedy


def test_a_tunnel_to_nobody(sshd: Sshd, tmp_path: Path) -> None:
    with (
        pytest.raises(Unreachable, match="Permission denied"),
        tunnel(way(sshd, keygen(tmp_path / "stranger")), 1, lambda: False),
    ):
        pass
    strange = Way("spark-1", sshd.ssh(), Files(tmp_path / "empty", Path("/dev/null")))
    with pytest.raises(Unreachable, match="Host key verification failed"), tunnel(strange, 1, lambda: False):
        pass


def test_a_local_forward_of_the_operator_that_is_taken_does_not_matter(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n LocalForward 127.0.0.1:{sshd.port} 127.0.0.1:1\n RemoteCommand false\n LogLevel QUIET\n"
    )
    own = Way("spark-1", sshd.ssh(), Files(sshd.known_hosts(), config))
    with tunnel(own, sshd.port, lambda: False) as port:
        assert port > 0


# Images.


def test_an_image_is_sent_once(desk: Desk) -> None:
    name = store(desk.images)
    assert desk.image(name) == "sent 1.0 MB"
    assert desk.told
    pulls = [line for line in desk.docker.asked() if line.startswith("pull ")]
    assert len(pulls) == 1
    assert pulls[0].startswith("pull 127.0.0.1:")
    assert pulls[0].endswith(f"/owner/image@{name}")
    assert desk.image(name) == "already there"
    assert [line.split()[0:2] for line in desk.docker.asked()][-1] == ["image", "inspect"]
    nothing_runs_with("ssh -F", " -R ", desk.key)


def test_an_image_under_another_name_is_only_tagged(desk: Desk) -> None:
    name = store(desk.images)
    known = {"sha256:aa": {"digest": name, "name": f"other/name@{name}", "arch": "arm64", "tags": []}}
    (desk.docker.folder / "images.json").write_text(json.dumps(known))
    assert desk.image(name) == "already there, now tagged"
    assert not any(line.startswith("pull") for line in desk.docker.asked())


def test_an_image_that_is_nowhere(desk: Desk) -> None:
    name = "sha256:" + "0" * 64
    with pytest.raises(ImageMissingError) as caught:
        desk.image(name)
    assert caught.value.what == (
        f"image ghcr.io/owner/image@{name} is not to be had. Tried: "
        f"from this machine: no image layout at {desk.images}/sha256-{'0' * 64}; "
        f"docker pull ghcr.io/owner/image@{name} on the node: manifest unknown: manifest unknown"
    )
    assert caught.value.remedy.startswith("crane pull --format oci ghcr.io/owner/image@sha256:")


def test_an_image_without_a_digest(desk: Desk) -> None:
    with pytest.raises(ImageMissingError, match="should have a digest in its pins, found none"):
        desk.image("")


def test_an_image_for_another_processor_is_not_sent(desk: Desk) -> None:
    name = store(desk.images, arch="amd64")
    with pytest.raises(WrongArchitectureError, match="should be for arm64, found amd64"):
        desk.image(name)
    assert not any(line.startswith("pull") for line in desk.docker.asked())


@pytest.mark.parametrize(
    ("fail", "kind", "says"),
    [
        ({"image": (127, "sh: docker: not found")}, DockerUnusableError, "docker should be installed"),
        ({"image": (1, "permission denied while trying to connect to")}, DockerUnusableError, "not in group docker"),
        ({"image": (1, "Cannot connect to the Docker daemon at")}, DockerUnusableError, "daemon does not run"),
        (
            {"pull": (1, "write /x: no space left on device")},
            DiskFullError,
            r"image, 1.0 MB to send, was unpacked; .* free now",
        ),
        ({"pull": (1, "no matching manifest for linux/arm64")}, WrongArchitectureError, "no matching manifest"),
        (
            {"pull": (1, "unauthorized: log in")},
            ImageMissingError,
            r"Tried: from this machine: unauth.*; docker pull gh",
        ),
    ],
)
def test_a_docker_that_fails(desk: Desk, fail: object, kind: type[NodeError], says: str) -> None:
    name = store(desk.images)
    desk.docker.order(fail=fail)
    with pytest.raises(kind, match=says) as caught:
        desk.image(name)
    assert caught.value.remedy


def test_a_pull_that_is_cancelled_leaves_nothing(desk: Desk) -> None:
    name = store(desk.images)
    desk.docker.order(hang=True)
    began = time.monotonic()
    with in_a_thread(lambda: desk.image(name)) as raised:
        wait_for(lambda: any(line.startswith("pull") for line in desk.docker.asked()), "the pull")
        assert running(str(desk.docker.folder))
        assert len(running("ssh -F", " -R ", desk.key)) == (0 if isinstance(desk.transport, LocalTransport) else 1)
        desk.transport.cancel()
    assert time.monotonic() - began < 8
    assert [type(error) for error in raised] == [Cancelled]
    nothing_runs_with(str(desk.docker.folder))
    nothing_runs_with("ssh -F", " -R ", desk.key)


def test_a_pull_that_takes_too_long(desk: Desk) -> None:
    name = store(desk.images)
    desk.docker.order(hang=True)
    with pytest.raises(DeadlineExceeded, match="did not end within 2 s"):
        desk.image(name, deadline_s=2.0)
    nothing_runs_with(str(desk.docker.folder))


# Models.

FILES = {"config.json": b"{}", "a b/model-00001 ü.safetensors": b"w" * 700_000, "$(touch never)": b"x"}
MANIFEST = {path: len(data) for path, data in FILES.items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "own copy"
    for path, data in FILES.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(data)
    (made / ".cache").mkdir()
    (made / ".cache/lock").write_text("x")
    return made


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_model_is_copied_once(desk: Desk, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "on node" / "m"
    assert desk.model(source, target, MANIFEST) == "sent 3 files, 700.0 kB"
    assert held(target) == {**FILES, STAMP: digest(MANIFEST).encode()}
    assert any("%" in line for line in desk.told)
    shutil.rmtree(source)
    assert desk.model(source, target, MANIFEST) == "already there"
    assert desk.model(source, target) == "already there"


def test_without_a_manifest_the_source_is_the_measure(desk: Desk, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "m"
    assert desk.model(source, target).startswith("sent 3 files")
    (source / "config.json").write_text('{"new": 1}')
    assert desk.model(source, target) == "sent 1 file, 10 bytes"
    assert desk.model(source, target) == "already there"


def test_only_what_is_lacking_is_sent(desk: Desk, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "m"
    target.mkdir()
    (target / "config.json").write_text("{}")
    os.utime(target / "config.json", (1, 1))
    (target / "other").write_text("stays")
    assert desk.model(source, target, MANIFEST) == "sent 2 files, 700.0 kB"
    assert (target / "config.json").stat().st_mtime == 1
    assert (target / "other").read_text() == "stays"


def test_a_copy_made_by_other_means_is_taken_as_it_is(desk: Desk, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "m"
    shutil.copytree(source, target)
    shutil.rmtree(source)
    assert desk.model(source, target, MANIFEST) == "already there"
    assert (target / STAMP).read_text() == digest(MANIFEST)


def hashes_of(folder: Path, *names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, hashlib.sha256((folder / name).read_bytes()).hexdigest()) for name in names)


def test_content_that_is_pinned_is_read_once_and_then_known(desk: Desk, source: Path, tmp_path: Path) -> None:
    target, hashes = tmp_path / "m", hashes_of(source, "config.json", "a b/model-00001 ü.safetensors")
    said = desk.model(source, target, MANIFEST, hashes=hashes)
    assert said == "sent 3 files, 700.0 kB; sha256 of 2 of 3 files is as pinned"
    assert desk.model(source, target, MANIFEST, hashes=hashes) == "already there"
    (target / STAMP).unlink()
    assert desk.model(source, target, MANIFEST, hashes=hashes).startswith("already there; sha256 of 2 of 3")


def test_a_twin_of_the_same_names_and_sizes_is_refused(desk: Desk, source: Path, tmp_path: Path) -> None:
    target, hashes = tmp_path / "m", hashes_of(source, "config.json", "a b/model-00001 ü.safetensors")
    shutil.copytree(source, target)
    (target / "config.json").write_text("[]")
    with pytest.raises(WrongContentError) as caught:
        desk.model(source, target, MANIFEST, hashes=hashes)
    ours, theirs = hashes[0][1], hashes_of(target, "config.json")[0][1]
    assert f"{target}/config.json should have sha256 {ours}, found {theirs}: " in caught.value.what
    assert caught.value.remedy.endswith(f"on spark-1: rm -- {target}/config.json, then up again")
    assert (target / "config.json").read_text() == "[]"
    assert not (target / STAMP).exists()


def test_a_file_that_cannot_be_read_is_no_proof(desk: Desk, source: Path, tmp_path: Path) -> None:
    hashes = (*hashes_of(source, "config.json"), ("gone.safetensors", "0" * 64))
    with pytest.raises(NodeError, match=r"cannot read model m: .*gone\.safetensors"):
        desk.model(source, tmp_path / "m", MANIFEST, hashes=hashes)
    assert not (tmp_path / "m" / STAMP).exists()


def test_links_of_a_download_cache_become_files(desk: Desk, source: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "config.json").symlink_to(source / "config.json")
    target = tmp_path / "m"
    assert desk.model(snapshot, target, {"config.json": 2}) == "sent 1 file, 2 bytes"
    assert not (target / "config.json").is_symlink()


def test_a_model_that_nobody_has(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError) as caught:
        desk.model(tmp_path / "no where", tmp_path / "m", MANIFEST)
    assert caught.value.what == (
        f"model m: {tmp_path}/m on the node lacks {', '.join(MANIFEST)}, "
        f"and {tmp_path}/no where on this machine is not there"
    )
    assert caught.value.remedy == (f"hf download owner/m --revision {'a' * 40} --local-dir '{tmp_path}/no where'")
    assert not (tmp_path / "m").exists()


def test_a_source_that_is_not_whole(desk: Desk, source: Path, tmp_path: Path) -> None:
    (source / "config.json").write_text("{")
    with pytest.raises(ModelMissingError, match=r"own copy on this machine lacks config\.json"):
        desk.model(source, tmp_path / "m", MANIFEST)


def test_too_large_for_the_disk(desk: Desk, source: Path, tmp_path: Path) -> None:
    with (source / "huge").open("wb") as file:
        file.truncate(1 << 43)  # a hole
    with pytest.raises(DiskFullError, match=r"is too full: needs 8\.8 TB more, .* free"):
        desk.model(source, tmp_path / "m", {"huge": 1 << 43})


def test_an_interrupted_copy_resumes_and_never_stands_under_its_name(desk: Desk, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "m"
    with (source / "big").open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.truncate(2 << 30)
    manifest = {"big": 2 << 30}
    with in_a_thread(lambda: desk.model(source, target, manifest)) as raised:
        wait_for(
            lambda: any(path.stat().st_size > 1 << 24 for path in target.rglob("*big*")), "the copy to be under way"
        )
        desk.transport.cancel()
    assert [type(error) for error in raised] == [Cancelled]
    nothing_runs_with("rsync", str(target))
    wait_for((target / PARTIAL / "big").exists, "what came over, kept apart")
    assert not (target / "big").exists()
    assert not (target / STAMP).exists()
    (source / "big").write_bytes(b"")
    with (source / "big").open("wb") as file:
        file.truncate(1 << 20)
    assert desk.model(source, target, {"big": 1 << 20}).startswith("sent 1 file")
    assert not (target / PARTIAL).exists()


def test_a_copy_that_takes_too_long(desk: Desk, source: Path, tmp_path: Path) -> None:
    with (source / "big").open("wb") as file:
        file.truncate(4 << 30)
    with pytest.raises(DeadlineExceeded, match="did not end within 1 s"):
        desk.model(source, tmp_path / "m", {"big": 4 << 30}, deadline_s=1.0)
    nothing_runs_with("rsync", str(tmp_path))


def test_cancel_of_the_hands_ends_a_copy(desk: Desk, source: Path, tmp_path: Path) -> None:
    with (source / "big").open("wb") as file:
        file.truncate(4 << 30)
    with in_a_thread(lambda: desk.model(source, tmp_path / "m", {"big": 4 << 30})) as raised:
        wait_for(lambda: any((tmp_path / "m").rglob("*big*")), "the copy")
        desk.bits.cancel()
    assert [type(error) for error in raised] == [Cancelled]
    nothing_runs_with("rsync", str(tmp_path))


def test_the_model_is_where_it_belongs(source: Path) -> None:
    """The operator stands on the node and its own copy is the node's: nothing is copied, and nothing is needed."""
    cluster = Cluster(nodes=(Node(name="spark-1", rails=(Rail(netdev="lo", address="127.0.0.1"),)),))
    desk = Desk(Bits(cluster), LocalTransport("spark-1"), Docker(source), source, "")
    assert desk.model(source, source, MANIFEST) == "already there"
    (source / "config.json").unlink()
    with pytest.raises(ModelMissingError, match=r"own copy on the node lacks config\.json$"):
        desk.model(source, source, MANIFEST)


@pytest.mark.parametrize("desk", ["ssh"], indirect=True)
def test_a_connection_that_breaks_in_the_middle(sshd: Sshd, desk: Desk, source: Path, tmp_path: Path) -> None:
    with (source / "big").open("wb") as file:
        file.truncate(4 << 30)
    with in_a_thread(lambda: desk.model(source, tmp_path / "m", {"big": 4 << 30})) as raised:
        wait_for(lambda: any((tmp_path / "m").rglob("*big*")), "the copy")
        for pid in running("rsync --server", str(tmp_path)):
            if pid not in running("ssh -F", str(tmp_path)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert len(raised) == 1
    assert "broke off" in str(raised[0])


def test_a_program_that_is_not_installed() -> None:
    with pytest.raises(NodeError, match="no-such-program should be installed on this machine, found none"):
        Child("spark-1", ("no-such-program",))
