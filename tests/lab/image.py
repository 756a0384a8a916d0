"""The test images, as OCI image layouts made without any docker: a small Debian with Python, and one with vLLM and Ray.

Both are made once and kept; a caller's layout shares their bytes by hard links. Equal inputs give the same digest.
"""

import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import python_layer
from tests.lab.rootfs import CACHE, locked, mmdebstrap, recipe_hash

REPOSITORY = "sparkctl.test/vllm-cpu"
BASE_REPOSITORY = "sparkctl.test/base"
# Debian's own python3 must be the running interpreter's minor version, or the compiled modules do not load.
_SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
_PACKAGES = ("python3", "libnuma1", "libgomp1", "haproxy", "iproute2", "procps")
_COMPILE = "python3 -m compileall -q --invalidation-mode unchecked-hash"
_HOOKS = (
    'rm -rf "$1"/var/log/* "$1"/var/cache/* "$1"/var/lib/apt/lists/* "$1"/etc/machine-id "$1"/etc/hostname',
    # Bytecode as Debian's packages make it goes by file times, which are all 0 in a layer.
    'find "$1"/usr -depth -name __pycache__ -exec rm -rf {} +',
    f"chroot \"$1\" sh -c 'PYTHONHASHSEED=0 {_COMPILE} /usr/lib/python3*'",
    'rm -f "$1"/etc/resolv.conf',
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Even an eager vLLM compiles a few functions on its first request, for which the image would need a C++ compiler.
_ENVIRONMENT = [f"PATH={_PATH}", "LANG=C.UTF-8", "TORCHDYNAMO_DISABLE=1"]
_MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True)
class ImageRef:
    """An image by its content: the manifest's digest (`sha256:…`) and the size of all its blobs together."""

    repository: str
    digest: str
    bytes: int


@dataclass(frozen=True)
class Layout:
    """An image and the folder of its OCI layout."""

    path: Path
    ref: ImageRef


def build(layout_dir: Path) -> Layout:
    """The image that serves: python3, vLLM, Ray and HAProxy, at `layout_dir`. First time about 100 s, later under 1 s.

    Raises RuntimeError when no Debian has this interpreter's Python, or it lacks vLLM or Ray.
    """
    found = python_layer.needed()
    recipe = Path(python_layer.__file__).read_text()
    python = recipe_hash(_suite(), python_layer.fingerprint(found), python_layer.unused_kernels(), recipe)

    def layers() -> list[Path]:
        return [_base_layer(), _layer(python, lambda half: python_layer.write(found, half))]

    return _cached(f"{_base_hash()}-{python}", REPOSITORY, layers, layout_dir)


def build_base(layout_dir: Path) -> Layout:
    """The same image without vLLM and Ray, for what needs any container at all. First time about 20 s."""
    return _cached(_base_hash(), BASE_REPOSITORY, lambda: [_base_layer()], layout_dir)


def _suite() -> str:
    suite = _SUITES.get((sys.version_info.major, sys.version_info.minor))
    if suite is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in _SUITES)
        raise RuntimeError(f"the test image needs Python {known}, found {platform.python_version()}")
    return suite


def _base_hash() -> str:
    return recipe_hash(_suite(), _PACKAGES, _HOOKS)


def _base_layer() -> Path:
    options = ("--format=tar", "--skip=output/dev")
    return _layer(_base_hash(), lambda half: mmdebstrap(_suite(), _PACKAGES, _HOOKS, half, *options))


def _layer(name: str, make: Callable[[Path], None]) -> Path:
    made = CACHE / f"layer-{name}.tar"
    with locked(made):
        if not made.exists():
            half = CACHE / f"layer-{name}.half.tar"
            make(half)
            half.rename(made)
    return made


def _cached(name: str, repository: str, layers: Callable[[], list[Path]], layout_dir: Path) -> Layout:
    kept = CACHE / f"image-{name}-{recipe_hash(_config([]))}"
    with locked(kept):
        if not kept.is_dir():
            half = kept.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            _write_layout(half, repository, layers())
            half.rename(kept)
    shutil.rmtree(layout_dir, ignore_errors=True)
    shutil.copytree(kept, layout_dir, copy_function=_link)
    digest = json.loads((layout_dir / "index.json").read_bytes())["manifests"][0]["digest"]
    size = sum(blob.stat().st_size for blob in (layout_dir / "blobs/sha256").iterdir())
    return Layout(layout_dir, ImageRef(repository, digest, size))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _write_layout(folder: Path, repository: str, layers: list[Path]) -> None:
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def descriptor(kind: str, digest: str) -> dict[str, Any]:
        return {"mediaType": f"{_MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": (blobs / digest).stat().st_size}

    def add_json(value: object) -> str:
        content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return digest

    digests = [_add_layer(blobs, layer) for layer in layers]
    config = add_json(_config(digests))
    manifest = add_json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": descriptor("config.v1+json", config),
            "layers": [descriptor("layer.v1.tar", digest) for digest in digests],
        }
    )
    entry = {**descriptor("manifest.v1+json", manifest), "platform": _platform()}
    entry["annotations"] = {"org.opencontainers.image.ref.name": repository}
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [entry]}
    (folder / "index.json").write_text(json.dumps(index, sort_keys=True))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _add_layer(blobs: Path, layer: Path) -> str:
    """Puts a layer among the blobs under its digest. A layer is uncompressed, so its digest is its content's too."""
    with layer.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    _link(str(layer), str(blobs / digest))
    return digest


def _platform() -> dict[str, str]:
    return {"os": "linux", "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]}


def _config(digests: list[str]) -> dict[str, Any]:
    return {
        **_platform(),
        "config": {"Env": _ENVIRONMENT, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "tests/lab/image.py"} for _ in digests],
    }
