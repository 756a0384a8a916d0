"""The look into an image, run here with this Python in place of the image's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.facts.inside import Inside, parse, question


def test_the_program_names_what_is_installed_and_leaves_out_what_is_not() -> None:
    argv = question("img", "python3", ("pydantic", "no-such-thing"))
    program = argv[argv.index("-c") :]
    done = subprocess.run((sys.executable, *program), capture_output=True, text=True, check=True, timeout=60)
    found = parse(done.stdout)
    assert found is not None
    assert "pydantic" in found.versions
    assert "no-such-thing" not in found.versions


def test_the_container_has_no_network_and_leaves_nothing() -> None:
    argv = question("sparkctl.local/x:abc", "/opt/venv/bin/python", ())
    assert argv[:2] == ("docker", "run")
    assert {"--rm", "never", "none"} <= set(argv)
    assert argv[argv.index("--entrypoint") + 1] == "/opt/venv/bin/python"


def test_words_of_the_image_before_the_answer_do_not_matter() -> None:
    text = 'WARNING: banner\ninside {"versions": {"ray": "2.60.0"}, "nccl_version": "2.30.7", "nccl_sha256": "ab"}\n'
    assert parse(text) == Inside({"ray": "2.60.0"}, "2.30.7", "ab")


@pytest.mark.parametrize("text", ["", "exec format error", "inside {", 'inside {"x": 1}', "inside []"])
def test_an_answer_that_is_none(text: str) -> None:
    assert parse(text) is None
