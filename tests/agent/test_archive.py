"""The agent as an archive: equal bytes each time, complete for a bare interpreter, and plain about what it lacks."""

import ast
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from orchestrator.agent.raynodes import missing
from orchestrator.run.agentzip import build
from tests.agent.rig import free_port


def bare(archive: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-I", "-S", str(archive), *words)
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_it_is_named_by_its_bytes_and_they_are_always_the_same() -> None:
    first = build()
    build.cache_clear()
    second = build()
    assert first.content == second.content
    assert first.sha256 == hashlib.sha256(first.content).hexdigest()


def test_every_file_in_it_is_python_that_3_10_can_read() -> None:
    with zipfile.ZipFile(io.BytesIO(build().content)) as archive:
        names = archive.namelist()
        assert names == sorted(names)
        for name in names:
            assert name.endswith(".py"), name
            ast.parse(archive.read(name), name, feature_version=(3, 10))


def test_a_bare_interpreter_runs_it(archive: Path) -> None:
    helped = bare(archive, "--help")
    assert helped.returncode == 0
    assert all(command in helped.stdout for command in ("run", "ray-nodes", "spawn", "halt", "alive"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        ("{}", "rank file schema None, this agent reads 1"),
        ("[", "Expecting value"),
    ],
)
def test_an_unusable_rank_file_is_said(archive: Path, tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "rank.json"
    if content is not None:
        path.write_text(content)
    ran = bare(archive, "run", str(path))
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"sparkctl agent: {path}: ")
    assert problem in ran.stderr
    assert "Traceback" not in ran.stderr


def test_ray_nodes_says_when_nothing_listens(archive: Path) -> None:
    port = free_port()
    for expect, where in (
        ("a=127.0.0.1,b=10.0.0.2", f"port {port} of a"),
        ("b=10.0.0.2", f"127.0.0.1:{port}"),
    ):
        ran = bare(archive, "ray-nodes", "--address", f"127.0.0.1:{port}", "--expect", expect, "--gpus-each", "1")
        assert (ran.returncode, ran.stdout) == (1, f"waiting for Ray at {where}: Connection refused\n")


NODES = {"10.0.0.1": "a", "10.0.0.2": "b"}


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        ({"10.0.0.1": 1.0, "10.0.0.2": 1.0}, ""),
        ({"10.0.0.1": 1.0}, "waiting for b to join Ray; joined: a"),
        ({}, "waiting for a to join Ray, b to join Ray; joined: none of them"),
        (
            {"10.0.0.1": 1.0, "10.0.0.9": 1.0},
            "waiting for b to join Ray; joined: a; unexpected: 10.0.0.9",
        ),
        (
            {"10.0.0.1": 1.0, "10.0.0.2": 1.0, "10.0.0.9": 1.0},
            "waiting for unexpected nodes to leave; joined: a, b; unexpected: 10.0.0.9",
        ),
        (
            {"10.0.0.1": 1.0, "10.0.0.2": 2.0},
            "waiting for b to have 1 GPU (it has 2); joined: a, b",
        ),
    ],
)
def test_exactly_the_planned_nodes(seen: dict[str, float], line: str) -> None:
    assert missing(NODES, 1.0, seen) == line


def test_more_nodes_only_where_they_may_be() -> None:
    seen = {"10.0.0.1": 1.0, "10.0.0.2": 1.0}
    assert missing({"10.0.0.1": "a"}, 1.0, seen).endswith("unexpected: 10.0.0.2")
    assert missing({"10.0.0.1": "a"}, 1.0, seen, or_more=True) == ""
    assert missing({"10.0.0.3": "c"}, 1.0, seen, or_more=True) == "waiting for c to join Ray; joined: none of them"
