"""Builds the agent: one archive that a bare Python >= 3.10 runs, whatever image it is in.

Equal inputs give equal bytes, so that the archive can be named by its hash: sorted names, one fixed time, and
no compression, whose output differs between zlib builds.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

DEPENDENCIES = ("certifi", "h11", "httpcore", "httpx", "idna", "prometheus_client")
"""Pure Python, and all that a synchronous httpx client needs. Certifi comes without its certificates: the
agent speaks plain http on loopback and fabric only, but httpcore imports the module."""

OWN = ("__init__", "plan/__init__", "plan/rankfile")
LEFT_OUT = (
    "httpx/_main.py",
    "prometheus_client/bridge/",
    "prometheus_client/twisted/",
    "prometheus_client/aiohttp/",
)
MAIN = "import sys\n\nfrom orchestrator.agent.__main__ import main\n\nsys.exit(main())\n"
FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class AgentZip:
    """The archive and the hash that names it."""

    content: bytes = field(repr=False)
    sha256: str


@lru_cache(maxsize=1)
def build() -> AgentZip:
    """The agent as this installation has it. Raises ``RuntimeError`` when a dependency is not installed."""
    members = {"__main__.py": MAIN.encode()}
    members.update(_own())
    for name in DEPENDENCIES:
        members.update(_package(name))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, FIXED_TIME)
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, members[name])
    content = b"#!/usr/bin/env python3\n" + buffer.getvalue()
    return AgentZip(content, hashlib.sha256(content).hexdigest())


def _own() -> Iterator[tuple[str, bytes]]:
    root = _root("orchestrator")
    for name in OWN:
        yield f"orchestrator/{name}.py", (root / f"{name}.py").read_bytes()
    for path in (root / "agent").glob("*.py"):
        yield f"orchestrator/agent/{path.name}", path.read_bytes()


def _package(name: str) -> Iterator[tuple[str, bytes]]:
    root = str(_root(name))
    for folder, _, files in os.walk(root):  # every plan needs the hash, and pathlib walks three times as long
        below = name + folder.removeprefix(root)
        for file in files:
            if file.endswith(".py") and not (member := f"{below}/{file}").startswith(LEFT_OUT):
                yield member, Path(folder, file).read_bytes()


def _root(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the agent needs {name}, which is not installed: install sparkctl's dependencies")
    return Path(spec.origin).parent
