"""Renders the golden plans: every shipped profile, at every legal node count, with each executor that it names.

``python -m tests.golden.render`` rewrites the folder; the diff is the review. Each plan is rendered twice: the plan
itself as JSON (a small change is a small diff) and what an operator would run by hand, one command a line.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.plan.build import Operator, build
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.resolve import PlanError, Wish, resolve
from orchestrator.plan.resolved import Resolved
from orchestrator.plan.runtime import start
from orchestrator.plan.seat import assumed_facts
from orchestrator.run.catalog import Catalog
from orchestrator.spec.profile import Executor
from orchestrator.verbs.world import EMBEDDED, EXAMPLE, pins_of

HERE = Path(__file__).parent
SHIPPED = Catalog((), shipped=HERE.parent.parent)
OPERATOR = Operator(home="/home/operator", agent_sha256="a" * 64)
COUNTS = range(1, 17)


def legal(name: str) -> Iterator[Resolved]:
    """Every plan that profile ``name`` allows."""
    profile = SHIPPED.profile(name)
    pins = pins_of(SHIPPED, profile)
    cluster = EMBEDDED if profile.runtime == "process" else EXAMPLE
    executors: tuple[Executor, ...] = ("ray", "mp")
    for executor in executors:
        for count in COUNTS:
            try:
                yield resolve(Wish(profile, count, executor), cluster, pins)
            except PlanError:
                continue


def plan_of(resolved: Resolved) -> LaunchPlan:
    facts = {
        node.name: replace(assumed_facts(node), python="/opt/venv/bin/python")
        for node in resolved.nodes
        if node.ssh is None
    }
    return build(resolved, facts, OPERATOR, 1)


def commands(plan: LaunchPlan) -> str:
    """Every command of the plan, for the eye."""
    lines: list[str] = []
    for rank in plan.ranks:
        lines += [f"# rank {rank.rank} on {rank.node}", _broken(start(plan, rank.unit))]
        lines += [
            f"# {step.name}: {step.kind} {step.host or ''}\n{_broken(step.argv)}" for step in rank.rank_file.steps
        ]
    return "\n".join([*lines, f"# gateway on {plan.gateway.node}", _broken(start(plan, plan.gateway.unit))]) + "\n"


def _broken(argv: tuple[str, ...]) -> str:
    """A command with every flag on a line of its own."""
    text = ""
    for word in argv:
        text += (" \\\n    " if word.startswith("-") and word != "--" else " ") + shlex.quote(word)
    return text.strip()


def rendered() -> dict[str, str]:
    """Relative path -> text of every golden file."""
    found: dict[str, str] = {}
    for name in SHIPPED.names():
        for resolved in legal(name):
            plan = plan_of(resolved)
            stem = f"{name}/{plan.executor}-{len(plan.ranks)}"
            found[f"{stem}.json"] = json.dumps(plan.to_value(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
            found[f"{stem}.commands"] = commands(plan)
    return found


def main() -> None:
    for folder in (path for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"):
        shutil.rmtree(folder)
    for path, text in rendered().items():
        (HERE / path).parent.mkdir(exist_ok=True)
        (HERE / path).write_text(text, encoding="utf-8")
    print(f"{len(rendered())} golden files")


if __name__ == "__main__":
    main()
