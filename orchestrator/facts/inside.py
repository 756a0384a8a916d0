"""What is inside an image: versions of distributions and which NCCL it would load. One argv, one pure parser.

The look runs the image's own Python once, without network and without the GPU, in a container that is removed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

LABEL = "sparkctl.look=inside"
# The distributions that rules ask for; a stack may pin more.
PARTS = ("vllm", "ray", "torch", "flashinfer-python")

# torch loads the NCCL of its own wheel and falls back to the system's, so that is the order of looking.
_PROGRAM = r"""
import glob, hashlib, json, sys
from importlib import metadata
found = {"versions": {}, "nccl_version": "", "nccl_sha256": ""}
for name in sys.argv[1:]:
    try:
        found["versions"][name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
paths = []
for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
    try:
        files = metadata.files(name) or []
        found["nccl_version"] = found["nccl_version"] or metadata.version(name)
        paths += [str(each.locate()) for each in files if each.name == "libnccl.so.2"]
    except metadata.PackageNotFoundError:
        pass
for path in (paths or sorted(glob.glob("/usr/lib/*-linux-gnu/libnccl.so.2")))[:1]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    found["nccl_sha256"] = digest.hexdigest()
print("inside " + json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """``versions`` by distribution, only what is there. Empty NCCL fields: the image has none of its own."""

    versions: dict[str, str] = field(default_factory=dict)
    nccl_version: str = ""
    nccl_sha256: str = ""


def question(image: str, python: str, parts: Iterable[str] = ()) -> tuple[str, ...]:
    """The argv that looks into ``image`` (never pulled) for PARTS and ``parts``."""
    names = dict.fromkeys((*PARTS, *parts))
    flags = ("--rm", "--pull", "never", "--network", "none", "--label", LABEL, "--entrypoint", python)
    return ("docker", "run", *flags, image, "-c", _PROGRAM, *names)


def parse(text: str) -> Inside | None:
    """None when the answer is none: the image does not start, or its Python is another program."""
    for line in text.splitlines():
        if line.startswith("inside "):
            try:
                return Inside(**json.loads(line.removeprefix("inside ")))
            except (ValueError, TypeError):
                return None
    return None
