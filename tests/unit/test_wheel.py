"""What is installed from the wheel plans without a checkout: profiles, pins and containers travel inside."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_plans_in_an_empty_folder(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("dgx_sparkctl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HOME": str(empty)}
    argv = [sys.executable, "-m", "orchestrator.cli", "plan", "tiny", "--offline"]
    done = subprocess.run(argv, cwd=empty, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rank 1 on node-b" in done.stdout
    where = [sys.executable, "-c", "import orchestrator; print(orchestrator.__file__)"]
    assert str(tmp_path / "site") in subprocess.run(where, cwd=empty, env=env, capture_output=True, text=True).stdout  # noqa: PLW1510
