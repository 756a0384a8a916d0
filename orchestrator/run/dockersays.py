"""What docker's words mean. Pure: output in, answers out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from orchestrator.run.transport import NodeError


class DockerUnusableError(NodeError):
    """There is no docker on the node that this user may use."""


class DiskFullError(NodeError):
    """The node's disk ran full."""


_TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"docker: (command )?not found|docker.*no such file or directory$",
        "docker should be installed, found none",
        "sudo apt-get install docker.io   (DGX OS brings its own)",
    ),
    (
        r"docker: permission denied|docker: may not be run",
        "this user may not run the docker program",
        "ls -l $(command -v docker)   on the node",
    ),
    (
        r"permission denied while trying to connect",
        "this user may not use docker: not in group docker",
        "sudo usermod -aG docker $USER   on the node, then log in again",
    ),
    (
        r"connect to the docker (daemon|api)",
        "docker is installed, but its daemon does not run",
        "sudo systemctl enable --now docker   on the node",
    ),
)
_NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_WRONG_ARCH = re.compile(
    r"no matching manifest for|does not match the (specified|detected) host platform", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Present:
    """An image as ``docker image inspect`` shows it."""

    digests: tuple[str, ...]
    architecture: str

    def is_of(self, digest: str) -> bool:
        return any(name.endswith(f"@{digest}") for name in self.digests)


def present(inspected: str) -> Present | None:
    """The first image of ``docker image inspect``, in either output form; ``None`` when it shows none."""
    try:
        value = json.loads(inspected)
    except ValueError:
        return None
    first = (value or [None])[0] if isinstance(value, list) else value
    if not isinstance(first, dict):
        return None
    return Present(tuple(first.get("RepoDigests") or ()), str(first.get("Architecture") or ""))


def image_of(listed: str, digest: str) -> str | None:
    """The id of an image with ``digest`` in ``docker image ls --digests --format '{{.Digest}} {{.ID}}'``."""
    for line in listed.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == digest:
            return words[1]
    return None


def unusable(node: str, code: int, said: str) -> DockerUnusableError | None:
    """Why docker itself cannot be used, or ``None`` when the trouble is something else."""
    if code == 0:
        return None
    for pattern, what, remedy in _TROUBLES:
        if re.search(pattern, said, re.IGNORECASE | re.MULTILINE):
            return DockerUnusableError(node, what, remedy)
    return DockerUnusableError(node, *_TROUBLES[0][1:]) if code == 127 else None


def is_disk_full(said: str) -> bool:
    return bool(_NO_SPACE.search(said))


def is_wrong_architecture(said: str) -> bool:
    return bool(_WRONG_ARCH.search(said))


def why(said: str) -> str:
    """The line of a failed ``docker pull`` that says why, without docker's own preamble."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [
        line for line in lines if re.search(r"error|denied|unauthorized|unknown|refused|failed", line, re.IGNORECASE)
    ]
    line = (telling or lines or ["it said nothing"])[-1]
    return re.sub(r"^(Error response from daemon|docker|Error): *", "", line)[:300]


class Pull:
    """Counts the layers in the output of a ``docker pull`` without a terminal, line by line."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._layers: set[str] = set()
        self._done: set[str] = set()

    def line(self, line: str) -> None:
        self.said = [*self.said[-30:], line]
        layer, _, state = line.partition(": ")
        if re.fullmatch(r"[0-9a-f]{12}", layer):
            self._layers.add(layer)
            if state.startswith(("Pull complete", "Already exists")):
                self._done.add(layer)

    def __str__(self) -> str:
        return f"{len(self._done)} of {len(self._layers)} layers" if self._layers else "asking for the manifest"


def gigabytes(count: int) -> str:
    """Bytes for a person, in the decimal units that disks are sold in."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
