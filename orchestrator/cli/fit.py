"""``sparkctl fit NAME``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import as_json, catalog

if TYPE_CHECKING:
    from orchestrator.plan.fit import Fit
    from orchestrator.spec.model import Reported
    from orchestrator.verbs.fit import Answer


def _names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        known = catalog(ctx)
        names = {name for what in ("profile", "model") for name in known.names(what)}
        return sorted(name for name in names if name.startswith(incomplete))
    except Exception:
        return []


@click.command("fit", short_help="Will it fit? The memory sum per node, without any cluster")
@click.argument("name", shell_complete=_names, metavar="MODEL|PROFILE")
@click.option("--nodes", type=click.IntRange(1, 1024), help="How many nodes (default: the smallest sensible count).")
@click.option("--context", "context_tokens", type=click.IntRange(min=1), help="Tokens of one sequence.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Sequences of that length at once (default: 1).")
@click.option("--ask", is_flag=True, help="Ask the nodes of cluster.yaml for their real memory.")
@as_json
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **values: Any) -> None:
    """Say whether MODEL or PROFILE fits, on how many nodes, and with what sum. Needs no cluster.

    Exit code 0: it fits or is at the edge; 3: it does not fit; 1: nobody knows.
    """
    from orchestrator.verbs.fit import Question, fit

    answer = fit(catalog(ctx), Question(**values))
    if as_json:
        from orchestrator.plan.rankfile import plain

        click.echo(json.dumps(_value(answer), default=plain, indent=2, ensure_ascii=False))
    else:
        from orchestrator.cli.fit_page import page

        click.echo("\n".join(page(answer)))
    ctx.exit(answer.code)


def _value(answer: Answer) -> dict[str, Any]:
    return {
        "model": answer.model.name,
        "profile": answer.profile.name if answer.profile else None,
        "verdict": answer.fit.verdict if answer.fit else "unknown",
        "memory_total_bytes": answer.memory_total_bytes,
        "budgets": answer.budgets,
        "fit": answer.fit and _fit_value(answer.fit),
        "other_counts": [_fit_value(each) for each in answer.others],
        "decode_ceiling_steps_s": answer.decode_ceiling,
        "economics": answer.economics,
        "reported": [_plain(each) for each in answer.model.reported],
        "licence": {"name": answer.model.licence, "note": answer.model.licence_note},
        "warnings": answer.warnings,
        "known_bad": [{"code": each.code, "what": each.what, "remedy": each.remedy} for each in answer.known_bad],
    }


def _fit_value(fit: Fit) -> dict[str, Any]:
    from orchestrator.plan.rankfile import plain

    value = {"nodes": fit.nodes, **plain(fit), "terms": fit.terms}
    del value["needs"]
    value["cache"] = {**plain(fit.cache), "measured": fit.cache.measured and fit.cache.measured.model_dump()}
    return value


def _plain(reported: Reported) -> dict[str, Any]:
    return reported.model_dump(exclude_defaults=True)
