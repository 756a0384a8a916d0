"""A plan in a file: ``plan --out`` writes it; ``up --plan`` carries it out if planning again gives the same one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.plan.diff import summary
from orchestrator.plan.launch import LaunchPlan, identity_of
from orchestrator.plan.load import plan_from_json
from orchestrator.verbs import names
from orchestrator.verbs.errors import BlockedError, UsageError
from orchestrator.verbs.world import Ask

MOST_BYTES = 16_000_000
"""The largest file that is read as a plan, which a pipe or a device may never end: as much as a node shows of its."""


def write(path: Path, plan: LaunchPlan) -> None:
    """Store ``plan``. Raises ``UsageError`` when the file cannot be written."""
    try:
        path.write_text(plan.canonical() + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--out: should be a file that can be written, found {path}: {error.strerror}",
            remedy="name a file in a directory that there is and that you may write to",
        ) from None


def read(path: Path) -> LaunchPlan:
    """The plan in the file. Raises ``UsageError`` when it holds none, a changed one, or one of a wrong name."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        plan = plan_from_json(content.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"--plan: should be a file that can be read, found {path}: {error.strerror}") from None
    except ValueError as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeError) else str(error)
        remedy = f"sparkctl plan PROFILE --out {path}" if path.suffix == ".json" else "sparkctl plan PROFILE --out FILE"
        raise UsageError(f"{path}: should be a stored plan, found that {why}", remedy=remedy) from None
    names.check(plan.deployment, f"{path} deployment")
    if identity_of(plan) != plan.digest:
        raise UsageError(
            f"{path}: should be a plan as it was stored, found that the file was changed after it was written",
            remedy=f"change the profile or cluster.yaml, then plan anew: sparkctl plan {plan.profile} --out FILE",
        )
    return plan


def ask_for(plan: LaunchPlan, given: Ask, path: Path) -> Ask:
    """What to plan again, as the stored plan says it. Raises ``UsageError`` for words beside it that say otherwise."""
    stored = Ask(plan.profile, len(plan.ranks), plan.executor, plan.deployment)
    wrong = tuple(_contradictions(stored, given, path))
    if wrong:
        raise UsageError(*wrong, remedy="leave out what the file says already, or make another plan: sparkctl plan")
    return stored


def _contradictions(stored: Ask, given: Ask, path: Path) -> Iterator[str]:
    for where, planned, said in (
        ("PROFILE", stored.profile, given.profile or None),
        ("--nodes", stored.nodes, given.nodes),
        ("--executor", stored.executor, given.executor),
        ("--name", stored.name, given.name),
    ):
        if said not in (None, planned):
            yield f"{where}: should be {planned} as in {path}, found {said}"


def refuse_moved(stored: LaunchPlan | None, plan: LaunchPlan) -> None:
    """A stored plan is carried out only if planning again, in the world as it is now, gives the same one."""
    if stored is None or (stored.digest == plan.digest and stored.generation == plan.generation):
        return
    moved = summary(stored, plan)
    why = moved or (f"generation {stored.generation} was planned, {plan.generation} would be next now",)
    raise BlockedError(
        "the world moved since that plan was made:", *why, remedy="plan again and look at the difference"
    )
