"""The tiny model of the embedded default: the same bytes each time, whole or not there, never over something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "containers" / "cpu" / "make_tiny.py"


def make_tiny(out: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, what it printed as JSON, and what it complained about."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "TMPDIR": scratch}
        argv = [sys.executable, str(PROGRAM), str(out)]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert os.listdir(scratch) == []
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("tiny") / "not-there-yet" / "model"
    code, said, problem = make_tiny(out)
    assert code == 0, problem
    return out, said


@pytest.mark.slow
def test_two_runs_make_the_same_bytes(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    first, said_first = made
    code, said, problem = make_tiny(tmp_path / "again")
    assert code == 0, problem
    assert said["weights_sha256"] == said_first["weights_sha256"]
    for path in first.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_it_is_a_small_mixture_of_experts_with_a_chat_template(made: tuple[Path, dict[str, Any]]) -> None:
    out, said = made
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["Qwen3MoeForCausalLM"]
    assert config["num_local_experts"] % 2 == config["num_key_value_heads"] % 2 == 0  # two ranks can split it
    assert 400_000 < said["parameters"] < 1_000_000
    assert "add_generation_prompt" in (out / "chat_template.jinja").read_text(encoding="utf-8")


def test_its_tokenizer_can_write_every_text(made: tuple[Path, dict[str, Any]]) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(made[0] / "tokenizer.json"))
    text = "Grüße, 世界 🦊\n\t<tag>"
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_model_that_is_there_is_kept(made: tuple[Path, dict[str, Any]]) -> None:
    out, said_first = made
    before = (out / "model.safetensors").stat().st_mtime_ns
    code, said, _ = make_tiny(out)
    assert (code, said) == (0, said_first | {"made": False})
    assert (out / "model.safetensors").stat().st_mtime_ns == before


def test_nothing_is_left_beside_the_model(made: tuple[Path, dict[str, Any]]) -> None:
    out, _ = made
    assert list(out.parent.iterdir()) == [out]


def test_a_directory_of_somebody_else_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    code, said, problem = make_tiny(tmp_path)
    assert (code, said) == (2, {})
    assert str(tmp_path) in problem
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_arguments_are_looked_at_before_anything_heavy_is_imported() -> None:
    look = (
        f"import runpy, sys; sys.argv = ['make_tiny.py', '--help']\n"
        f"try: runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
        f"except SystemExit: print(sorted({{'torch', 'transformers', 'tokenizers'}} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
