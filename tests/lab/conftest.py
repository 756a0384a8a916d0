"""What the tests on real nodes share: the nodes, an image to serve from, a model to serve; each made once a session."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import image
from tests.lab.image import Layout
from tests.lab.nodes import Lab
from tests.lab.rootfs import CACHE, locked

_MAKE_MODEL = Path(__file__).parents[2] / "containers/cpu/make_tiny.py"
_TOOLS = ("systemd-nspawn", "mmdebstrap", "nft", "ip", "nsenter", "setpriv", "ssh-keygen", "rsync")


def why_not() -> str:
    """Why this machine cannot run the lab, with the way out; empty when it can."""
    if os.geteuid() != 0:
        return f"the lab needs root, found uid {os.geteuid()}: run the tests with sudo"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"the lab needs {', '.join(missing)}: run tests/lab/setup.sh"
    return ""


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two nodes, up for the whole session. A test that changes one puts it back."""
    if reason := why_not():
        pytest.skip(reason)
    with Lab(CACHE / "session", 2) as running:
        yield running


@pytest.fixture(scope="session")
def lab_image(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The image with vLLM and Ray, as an OCI layout."""
    if reason := why_not():
        pytest.skip(reason)
    return image.build(tmp_path_factory.mktemp("image") / "layout")


@pytest.fixture(scope="session")
def lab_base_image(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A small image with python3, for what needs any container at all."""
    if reason := why_not():
        pytest.skip(reason)
    return image.build_base(tmp_path_factory.mktemp("image") / "layout")


@pytest.fixture(scope="session")
def lab_model() -> Path:
    return made_model()


def made_model() -> Path:
    """The folder of a tiny mixture-of-experts model with a tokenizer; kept for as long as its recipe is the same."""
    recipe = hashlib.sha256(_MAKE_MODEL.read_bytes()).hexdigest()[:12]
    made = CACHE / f"model-{recipe}"
    with locked(made):
        if not made.is_dir():
            half = CACHE / f"model-{recipe}.half"
            shutil.rmtree(half, ignore_errors=True)
            subprocess.run((sys.executable, str(_MAKE_MODEL), str(half)), check=True, capture_output=True)
            half.rename(made)
    return made
