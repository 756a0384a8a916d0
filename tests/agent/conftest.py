"""Shared by the agent's tests: the archive, built once, and gangs that are gone after their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.run.agentzip import build
from tests.agent.rig import LocalGang


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(build().content)
    return path


@pytest.fixture
def gang_of(archive: Path, tmp_path: Path) -> Iterator[Callable[..., LocalGang]]:
    made: list[LocalGang] = []

    def make(ranks: int = 2) -> LocalGang:
        made.append(LocalGang(archive, tmp_path, ranks))
        return made[-1]

    yield make
    for gang in made:
        gang.stop()
