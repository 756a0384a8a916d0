"""Every shipped profile renders as it did when somebody last read the diff. Rewrite with ``make golden``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.render import HERE, rendered

RENDERED = rendered()


@pytest.mark.parametrize("path", sorted(RENDERED))
def test_plan_is_the_reviewed_one(path: str) -> None:
    assert (HERE / path).read_text(encoding="utf-8") == RENDERED[path], (
        f"{path} differs: run `make golden`, read the diff"
    )


def test_no_golden_file_is_left_over() -> None:
    kept = {str(path.relative_to(HERE)) for path in HERE.glob("*/*") if path.suffix in {".json", ".commands"}}
    assert kept == set(RENDERED)


def test_rendering_twice_gives_the_same_bytes() -> None:
    assert rendered() == RENDERED


def test_no_secret_and_no_path_of_this_machine_is_in_a_plan() -> None:
    text = "\n".join(RENDERED.values())
    for word in (str(Path.home()) + "/", str(Path.cwd()), "sk-sparkctl-"):
        assert word not in text.replace("/root/.cache", "")
