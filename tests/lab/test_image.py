"""The test image's Python layer is the same bytes each time, and holds what it says."""

import marshal
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lab import python_layer


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    made = tmp_path / "layer.tar"
    python_layer.write({"httpx": distribution("httpx")}, made)
    return made


def test_equal_inputs_give_equal_bytes(layer: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    # Another process has other string hashes and other things in memory.
    program = (
        "from importlib.metadata import distribution; from pathlib import Path; from tests.lab import python_layer; "
        f"python_layer.write({{'httpx': distribution('httpx')}}, Path({str(again)!r}))"
    )
    subprocess.run((sys.executable, "-c", program), check=True, cwd=Path(__file__).parents[2])
    assert layer.read_bytes() == again.read_bytes()


def test_modules_are_compiled_under_the_path_they_will_have(layer: Path) -> None:
    library = f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/dist-packages"
    with tarfile.open(layer) as tar:
        member = tar.extractfile(f"{library}/httpx/__pycache__/_client.{sys.implementation.cache_tag}.pyc")
        assert member is not None
        code = marshal.loads(member.read()[16:])
        assert code.co_filename == f"/{library}/httpx/_client.py"


def test_console_scripts_start_with_the_images_own_python(layer: Path) -> None:
    with tarfile.open(layer) as tar:
        member = tar.getmember("usr/local/bin/httpx")
        script = tar.extractfile(member)
        assert script is not None
        assert script.read().splitlines()[::4] == [b"#!/usr/bin/python3", b"    sys.exit(main())"]
        assert (member.mode, member.mtime, member.uid) == (0o755, 0, 0)


def test_what_serving_needs_is_found_and_what_testing_needs_is_not() -> None:
    if find_spec("vllm") is None:
        pytest.skip("the test image is made from an environment with vLLM: run `make setup`")
    found = python_layer.needed()
    assert {"vllm", "ray", "torch", "vllm-cpu-ray", "transformers"} <= set(found)
    assert not {"pytest", "mypy", "ruff", "dgx-sparkctl"} & set(found)
