"""The registry over an image layout, asked over HTTP as docker asks; and what docker's and rsync's own words mean."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from orchestrator.run import dockersays
from orchestrator.run.layout import BrokenLayoutError, find
from orchestrator.run.models import Listing, digest, lacking, listing, progress
from orchestrator.run.registry import Registry, serving

LAYER = bytes(range(256)) * 4000  # about a megabyte


def blob(layout: Path, data: bytes) -> str:
    value = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / value).write_bytes(data)
    return f"sha256:{value}"


def image(layout: Path, arch: str = "arm64", layer: bytes = LAYER) -> str:
    """An image of one layer in ``layout``; answers its manifest's digest."""
    config = blob(layout, json.dumps({"architecture": arch, "os": "linux"}).encode())
    entry = {"digest": blob(layout, layer), "size": len(layer)}
    size = (layout / "blobs/sha256" / config[7:]).stat().st_size
    manifest = {"schemaVersion": 2, "config": {"digest": config, "size": size}, "layers": [entry]}
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return blob(layout, json.dumps(manifest).encode())


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return tmp_path / "layout"


@pytest.fixture
def registry(layout: Path) -> Iterator[Registry]:
    layout.mkdir()
    with serving(layout) as running:
        yield running


@pytest.fixture
def client(registry: Registry) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{registry.port}", trust_env=False, verify=False) as made:
        yield made


def test_the_version_check(client: httpx.Client) -> None:
    answer = client.get("/v2/")
    assert (answer.status_code, answer.json()) == (200, {})
    assert answer.headers["docker-distribution-api-version"] == "registry/2.0"
    assert client.head("/v2/").status_code == 200


def test_a_manifest_by_digest(client: httpx.Client, layout: Path) -> None:
    name = image(layout)
    answer = client.get(f"/v2/owner/some.image_1/manifests/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.oci.image.manifest.v1+json"
    assert answer.headers["docker-content-digest"] == name
    assert f"sha256:{hashlib.sha256(answer.content).hexdigest()}" == name
    head = client.head(f"/v2/owner/image/manifests/{name}")
    assert (head.headers["content-length"], head.content) == (str(len(answer.content)), b"")


@pytest.mark.parametrize(
    ("manifest", "media_type"),
    [
        ({"manifests": []}, "application/vnd.oci.image.index.v1+json"),
        ({"mediaType": "application/vnd.docker.x"}, "application/vnd.docker.x"),
        ([], "application/octet-stream"),
    ],
)
def test_the_media_type(client: httpx.Client, layout: Path, manifest: object, media_type: str) -> None:
    name = blob(layout, json.dumps(manifest).encode())
    assert client.get(f"/v2/x/manifests/{name}").headers["content-type"] == media_type


def counted(registry: Registry, bodies_bytes: int) -> None:
    """A body is counted once it has gone out, which its reader may know a moment earlier than the counter."""
    end = time.monotonic() + 5
    while registry.served_bytes != bodies_bytes:
        assert time.monotonic() < end, f"counted {registry.served_bytes}, sent {bodies_bytes}"
        time.sleep(0.01)


def test_a_blob_whole_and_in_parts(client: httpx.Client, layout: Path, registry: Registry) -> None:
    name = blob(layout, LAYER)
    whole = client.get(f"/v2/x/blobs/{name}")
    assert (whole.status_code, whole.content) == (200, LAYER)
    assert whole.headers["accept-ranges"] == "bytes"
    counted(registry, len(LAYER))
    assert client.head(f"/v2/x/blobs/{name}").headers["content-length"] == str(len(LAYER))
    counted(registry, len(LAYER))


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=1000-1999", slice(1000, 2000)),
        ("bytes=1023000-", slice(1023000, None)),
        ("bytes=1023999-9999999", slice(1023999, None)),
        ("bytes=-5", slice(-5, None)),
    ],
)
def test_ranges(client: httpx.Client, layout: Path, asked: str, part: slice) -> None:
    name = blob(layout, LAYER)
    answer = client.get(f"/v2/x/blobs/{name}", headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, LAYER[part])
    first = len(LAYER) - len(LAYER[part]) if part.stop is None else part.start
    assert answer.headers["content-range"] == f"bytes {first}-{first + len(answer.content) - 1}/{len(LAYER)}"


@pytest.mark.parametrize("asked", ["bytes=1024000-", "bytes=9-3", "bytes=-0"])
def test_ranges_that_cannot_be(client: httpx.Client, layout: Path, asked: str) -> None:
    answer = client.get(f"/v2/x/blobs/{blob(layout, LAYER)}", headers={"Range": asked})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{len(LAYER)}")


@pytest.mark.parametrize("asked", ["bytes=0-1,5-6", "lines=0-1", "bytes=-", "bytes=a-b", "bytes=" + "9" * 5000 + "-"])
def test_ranges_that_are_not_understood_get_the_whole(client: httpx.Client, layout: Path, asked: str) -> None:
    answer = client.get(f"/v2/x/blobs/{blob(layout, LAYER)}", headers={"Range": asked})
    assert (answer.status_code, answer.content) == (200, LAYER)


NONE = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"/v2/x/blobs/{NONE}", "BLOB_UNKNOWN"),
        (f"/v2/x/manifests/{NONE}", "MANIFEST_UNKNOWN"),
        ("/v2/x/manifests/latest", "UNSUPPORTED"),
        ("/v2/x/tags/list", "UNSUPPORTED"),
        ("/v2/_catalog", "UNSUPPORTED"),
        ("/", "UNSUPPORTED"),
        ("/v2/x/blobs/sha256:../../secret", "UNSUPPORTED"),
        (f"/v2/x/blobs/sha256:{'0' * 63}", "UNSUPPORTED"),
        (f"/v2/x/blobs/sha256:{'A' * 64}", "UNSUPPORTED"),
        (f"/v2/x/blobs/sha512:{'0' * 64}", "UNSUPPORTED"),
        (f"/v2/../blobs/{NONE}", "UNSUPPORTED"),
        (f"/v2/x%2e%2e/blobs/{NONE}", "UNSUPPORTED"),
        (f"/v2/x/blobs/{NONE}/../../../../secret", "UNSUPPORTED"),
    ],
)
def test_nothing_else_is_served(registry: Registry, layout: Path, path: str, code: str) -> None:
    (layout.parent / "secret").write_text("secret")
    # A socket, for an HTTP client would tidy the path up before it asks.
    with socket.create_connection(("127.0.0.1", registry.port), 5.0) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.1 404")
    assert code in answer


def test_it_is_read_only(client: httpx.Client, layout: Path) -> None:
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        assert client.request(method, f"/v2/x/blobs/{blob(layout, LAYER)}", content=b"x").status_code == 501
    assert client.get(f"/v2/x/blobs/{blob(layout, LAYER)}").content == LAYER


def test_it_speaks_http_to_who_tries_https_first(registry: Registry) -> None:
    """As docker does; it goes on only after an answer that begins so, and waits long for none."""
    with socket.create_connection(("127.0.0.1", registry.port), 5.0) as line:
        line.sendall(b"\x16\x03\x01\x00\x05hello")
        assert b"".join(iter(lambda: line.recv(4096), b"")).startswith(b"HTTP/1.0 400 ")


def test_when_it_ends_nothing_stays_open(layout: Path) -> None:
    layout.mkdir()
    name = blob(layout, bytes(64 * 1024 * 1024))
    with serving(layout) as registry:
        line = socket.create_connection(("127.0.0.1", registry.port), 5.0)
        line.sendall(f"GET /v2/x/blobs/{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert line.recv(4096).startswith(b"HTTP/1.1 200")
    with line:  # the client never reads on, yet the block has ended
        received = sum(len(part) for part in iter(lambda: line.recv(1 << 20), b""))
    assert received < 64 * 1024 * 1024
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", registry.port), 1.0)


# Layouts.


def test_a_layout_is_found_by_digest(tmp_path: Path) -> None:
    made = tmp_path / "made"
    name = image(made)
    made.rename(tmp_path / name.replace(":", "-"))
    layout = find(tmp_path, name, "arm64")
    assert layout.architectures == {"arm64"}
    assert len(LAYER) < layout.total_bytes < len(LAYER) + 1000


def test_an_index_of_several_architectures(tmp_path: Path) -> None:
    made = tmp_path / "made"
    digests = {arch: image(made, arch, arch.encode()) for arch in ("arm64", "amd64")}
    entries = [{"digest": value, "platform": {"architecture": arch, "os": "linux"}} for arch, value in digests.items()]
    absent = {"digest": NONE, "platform": {"architecture": "s390x", "os": "linux"}}
    name = blob(made, json.dumps({"manifests": [*entries, absent]}).encode())
    made.rename(tmp_path / name.replace(":", "-"))
    assert find(tmp_path, name, "arm64").architectures == {"arm64", "amd64"}
    assert find(tmp_path, name, "riscv64").total_bytes == 0


def test_layouts_that_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(BrokenLayoutError, match=r"no image layout at .*sha256-0000"):
        find(tmp_path, NONE, "arm64")
    made = tmp_path / "made"
    name = image(made)
    layout = made.rename(tmp_path / name.replace(":", "-"))
    layer = layout / "blobs/sha256" / hashlib.sha256(LAYER).hexdigest()
    layer.write_bytes(LAYER[:-1])
    with pytest.raises(BrokenLayoutError, match="should be 1024000 bytes, found 1023999 bytes"):
        find(tmp_path, name, "arm64")
    layer.unlink()
    with pytest.raises(BrokenLayoutError, match="should be 1024000 bytes, found nothing"):
        find(tmp_path, name, "arm64")
    (layout / "blobs/sha256" / name[7:]).write_text("[]")
    with pytest.raises(BrokenLayoutError, match="should be a manifest"):
        find(tmp_path, name, "arm64")
    (layout / "blobs/sha256" / name[7:]).write_text('{"config": {"digest": "sha256:../../x"}}')
    with pytest.raises(BrokenLayoutError, match="by sha256 digests, found sha256:"):
        find(tmp_path, name, "arm64")


# What docker says. The outputs are docker's own (28.2), shortened.

DIGEST = "sha256:" + "ab" * 32
INSPECTED = json.dumps(
    {
        "Id": "sha256:" + "12" * 32,
        "RepoTags": ["sparkctl.local/ghcr.io/owner/image:abababab"],
        "RepoDigests": [f"127.0.0.1:43211/owner/image@{DIGEST}"],
        "Architecture": "arm64",
        "Os": "linux",
    }
)


def test_an_inspected_image() -> None:
    found = dockersays.present(INSPECTED)
    assert found is not None
    assert found.architecture == "arm64"
    assert found.is_of(DIGEST)
    assert not found.is_of(NONE)
    assert dockersays.present(f"[{INSPECTED}]") == found


@pytest.mark.parametrize("said", ["", "[]", "null", "Error: No such image", "[1]"])
def test_no_image(said: str) -> None:
    assert dockersays.present(said) is None


def test_an_image_without_digests() -> None:
    found = dockersays.present('{"RepoDigests": null}')
    assert found is not None
    assert not found.is_of(DIGEST)


def test_the_image_with_a_digest_in_a_list() -> None:
    listed = f"<none> sha256:{'1' * 64}\n{DIGEST} sha256:{'2' * 64}\n{NONE} sha256:{'3' * 64}\n"
    assert dockersays.image_of(listed, DIGEST) == f"sha256:{'2' * 64}"
    assert dockersays.image_of(listed, "sha256:" + "c" * 64) is None
    assert dockersays.image_of("", DIGEST) is None


SOCKET = "unix:///var/run/docker.sock"


@pytest.mark.parametrize(
    ("code", "said", "what"),
    [
        (127, "bash: line 1: docker: command not found", "docker should be installed, found none"),
        (127, "sh: 1: docker: not found", "docker should be installed, found none"),
        (126, "bash: line 1: /usr/bin/docker: Permission denied", "this user may not run the docker program"),
        (127, "zsh:1: command not found: docker", "docker should be installed, found none"),
        (
            1,
            f"permission denied while trying to connect to the Docker daemon socket at {SOCKET}: Get ...",
            "this user may not use docker: not in group docker",
        ),
        (
            1,
            f"Cannot connect to the Docker daemon at {SOCKET}. Is the docker daemon running?",
            "docker is installed, but its daemon does not run",
        ),
        (
            1,
            f"failed to connect to the docker API at {SOCKET}; check if the path is correct and …",
            "docker is installed, but its daemon does not run",
        ),
    ],
)
def test_docker_that_cannot_be_used(code: int, said: str, what: str) -> None:
    trouble = dockersays.unusable("spark-1", code, said)
    assert trouble is not None
    assert (trouble.node, trouble.what) == ("spark-1", what)
    assert trouble.remedy


@pytest.mark.parametrize(
    ("code", "said"), [(0, "docker: not found"), (1, "Error response from daemon: No such image: x"), (1, "")]
)
def test_docker_that_works(code: int, said: str) -> None:
    assert dockersays.unusable("spark-1", code, said) is None


def test_why_a_pull_failed() -> None:
    assert (
        dockersays.why(f"x@{DIGEST}: Pulling from x\nError response from daemon: manifest unknown: manifest unknown\n")
        == "manifest unknown: manifest unknown"
    )
    full = "failed to register layer: write /usr/lib/x: no space left on device"
    assert dockersays.is_disk_full(full)
    assert not dockersays.is_disk_full("manifest unknown")
    assert dockersays.is_wrong_architecture("no matching manifest for linux/arm64/v8 in the manifest list entries")
    assert dockersays.why("") == "it said nothing"


def test_layers_are_counted() -> None:
    pull = dockersays.Pull()
    assert str(pull) == "asking for the manifest"
    for line in (
        f"127.0.0.1:1/x@{DIGEST}: Pulling from x",
        "aaaaaaaaaaaa: Already exists",
        "bbbbbbbbbbbb: Pulling fs layer",
        "cccccccccccc: Pulling fs layer",
        "bbbbbbbbbbbb: Verifying Checksum",
        "bbbbbbbbbbbb: Pull complete",
        f"Digest: {DIGEST}",
    ):
        pull.line(line)
    assert str(pull) == "2 of 3 layers"


# What a node says of its models, and what rsync says.


def test_what_a_model_directory_holds() -> None:
    answer = "present\0abc\n\x005 a b.json\x007 sub/c\n.bin\x003 .sparkctl-complete\x009 sub/.sparkctl-partial/c\0"
    assert listing(answer) == Listing("abc", {"a b.json": 5, "sub/c\n.bin": 7})
    assert listing("absent\0") == Listing("", {})
    assert listing("present\0\0") == Listing("", {})


def test_what_is_lacking() -> None:
    assert lacking({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 1}) == ("b", "c")
    assert lacking({}, {"a": 1}) == ()


def test_the_stamp_depends_on_names_and_sizes_alone() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert len({digest({"a": 1}), digest({"a": 2}), digest({"b": 1}), digest({})}) == 4


def test_progress_of_rsync() -> None:
    line = "  3,221,225,472  40%  112.34MB/s    0:00:41 (xfr#5, to-chk=43/48)"
    assert progress(line) == "3.2 GB, 40 %, 112.34MB/s, 0:00:41 left"
    assert progress("rsync error: some files could not be transferred (code 23)") is None
