"""Proves inside the image that Ray came in and that nothing else moved. Standard library and ``packaging`` only.

``check.py freeze FILE`` writes every installed distribution and version. ``check.py verify FILE NAME==VERSION…`` exits
1 and says why when one of those is gone or changed since, when a requirement of Ray is not met, when a named version is
not the one installed, or when Ray does not import.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path


def installed() -> dict[str, str]:
    """Distribution name (lower case, hyphens) -> version."""
    return {each.metadata["Name"].lower().replace("_", "-"): each.version for each in distributions()}


def moved(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What was there before and is not the same now."""
    return [f"{name}: was {old}, is {now.get(name, 'gone')}" for name, old in before.items() if now.get(name) != old]


def unmet(name: str) -> list[str]:
    """Requirements of ``name`` without its extras that the image does not fulfil."""
    from packaging.requirements import Requirement

    found = []
    for text in requires(name) or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            have = version(wanted.name)
        except PackageNotFoundError:
            found.append(f"{name} needs {wanted}: not installed")
            continue
        if not wanted.specifier.contains(have, prereleases=True):
            found.append(f"{name} needs {wanted}: {have} is installed")
    return found


def wrong(pins: list[str]) -> list[str]:
    """Pins (``NAME==VERSION``) that are not what is installed."""
    found = []
    for pin in pins:
        name, _, wanted = pin.partition("==")
        try:
            have = version(name)
        except PackageNotFoundError:
            have = "nothing"
        if have != wanted:
            found.append(f"{name}: should be {wanted}, found {have}")
    return found


def main(words: list[str]) -> int:
    if len(words) == 2 and words[0] == "freeze":
        Path(words[1]).write_text(json.dumps(installed()), encoding="utf-8")
        return 0
    if len(words) < 3 or words[0] != "verify":
        print(__doc__, file=sys.stderr)
        return 2
    before = json.loads(Path(words[1]).read_text(encoding="utf-8"))
    problems = [*moved(before, installed()), *unmet("ray"), *wrong(words[2:])]
    if subprocess.run([sys.executable, "-c", "import ray"], check=False).returncode:
        problems.append("ray does not import")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
