"""The page of ``fit`` for a person: sizes first, then the sum, then what is known beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from orchestrator.plan import ceilings
from orchestrator.plan.ceilings import GIB
from orchestrator.plan.memory import weights

if TYPE_CHECKING:
    from orchestrator.plan.fit import Fit
    from orchestrator.spec.model import Reported
    from orchestrator.verbs.fit import Answer

COLOURS = {"fits": "green", "at the edge": "yellow", "does not fit": "red", "unknown": "yellow"}


def page(answer: Answer) -> list[str]:
    model, fit = answer.model, answer.fit
    lines = [f"{click.style(model.name, bold=True)}: {_verdict(fit)}", f"  {model.about}"]
    lines += [f"  profile {answer.profile.name}: {answer.profile.about}"] if answer.profile else []
    lines += ["", *_sizes(answer), "", *_budgets(answer)]
    if fit is not None:
        lines += ["", *_sum(answer, fit), "", *_judgement(fit)]
    if answer.others:
        lines += ["", *_others(answer.others)]
    return [*lines, "", *_beside(answer)]


def _verdict(fit: Fit | None) -> str:
    if fit is None:
        return click.style("unknown", fg="yellow") + ", nobody published the size of its weights"
    where = f"on {fit.nodes} node{'s' if fit.nodes > 1 else ''}"
    return f"{click.style(fit.verdict, fg=COLOURS[fit.verdict])} {where}"


def _sizes(answer: Answer) -> Iterator[str]:
    model = answer.model
    for what, size in (("tensors", model.tensor_bytes), ("checkpoint", model.weights_bytes)):
        if size is not None:
            yield f"  {what:<11} {size:,} B = {size / 1e9:,.3f} GB = {size / GIB:,.3f} GiB"
    if model.tensor_bytes is None and model.weights_bytes is None:
        known = weights(model)
        about = "" if known and known[1] == "exact" else "about "
        yield f"  weights     {about}{known[0] / 1e9:,.3f} GB, {known[1]}" if known else "  weights     unknown"
    if model.tables is not None:
        yield f"  of these    {model.tables.bytes / 1e9:,.1f} GB are {model.tables.what} that may stay on disk"


def _budgets(answer: Answer) -> Iterator[str]:
    size = weights(answer.model, tables_on_disk=answer.fit is not None and answer.fit.load.tables_on_disk)
    if size is None:
        return
    yield f"  {'smallest cluster by weights alone':<50} raw  that divides the heads"
    for budget in answer.budgets:
        legal = budget.legal or ("none up to 24" if answer.model.architecture.heads else "heads not known")
        yield f"    {budget.bytes_per_node / 1e9:7.3f} GB  {budget.name:<35}{budget.smallest:>3}  {legal}"
    step, remark = ceilings.size_people_build(size[0], answer.machine)
    how = f"{remark} {step}" if remark == "just over" else f"{step}{f', {remark}' if remark else ''}"
    how = how if step in answer.machine.steps else f"more than {answer.machine.steps[-1]} ({step})"
    rule = answer.machine.weights_rule_bytes / 1e9
    yield f"    as clusters are built (1, 2, 4, 8, 16, 24) at {rule:.0f} GB of weights a node: {how}"


def _sum(answer: Answer, fit: Fit) -> Iterator[str]:
    split, total = fit.load.split, answer.memory_total_bytes
    width = f"tensor parallel {split.tensor}"
    width += f", pipeline {split.pipeline}" if split.pipeline > 1 else ""
    width += f", decode context parallel {split.decode_context}" if split.decode_context > 1 else ""
    yield f"  {'one node' if fit.nodes == 1 else f'one node of {fit.nodes}'} ({width})"
    if fit.cluster_headroom_bytes is not None:
        label, left = answer.machine.memory_label_bytes / 1e9, fit.cluster_headroom_bytes / 1e9
        yield (
            f"    {fit.nodes} x {label:.3f} GB less weights: {left:,.3f} GB in all, {left / fit.nodes:,.3f} GB a node,"
            " for everything else"
        )
    share = f"{fit.load.utilization:.2f} of MemTotal {total / 1e9:.3f} GB ({total / GIB:.2f} GiB)"
    yield f"    given     {fit.usable_bytes / 1e9:9.3f} GB  {share}"
    for term in fit.terms:
        amount = "  unknown   " if term.bytes is None else f"{-term.bytes / 1e9:9.3f} GB"
        yield f"    {term.name:<9} {amount}  {term.basis}: {term.says}"
    if fit.headroom_bytes is not None:
        yield f"    headroom  {fit.headroom_bytes / 1e9:9.3f} GB"
    if fit.pool_tokens is not None and fit.load.context_tokens:
        whole = fit.full_sequences or 0
        yield (
            f"    a cache of {fit.pool_tokens:,} tokens holds {whole:,} whole sequence{'s' if whole != 1 else ''} of "
            f"{fit.load.context_tokens:,} tokens"
        )


def _judgement(fit: Fit) -> Iterator[str]:
    yield f"  {click.style(fit.verdict, fg=COLOURS[fit.verdict], bold=True)}"
    yield from (f"    because {reason}" for reason in fit.reasons)
    if fit.changes:
        yield f"    smallest change: {fit.changes[0]}" + "".join(f"; or {each}" for each in fit.changes[1:])


def _others(others: tuple[Fit, ...]) -> Iterator[str]:
    yield "  other counts"
    for each in others:
        left = "" if each.headroom_bytes is None else f"  {each.headroom_bytes / 1e9:10,.3f} GB left a node"
        yield f"    {each.nodes:>2}  {click.style(f'{each.verdict:<12}', fg=COLOURS[each.verdict])}{left}".rstrip()


def _beside(answer: Answer) -> Iterator[str]:
    model, active, limit = answer.model, ceilings.active_bytes(answer.model), answer.decode_ceiling
    if active is not None and limit is not None:
        bandwidth = answer.machine.memory_bandwidth_bytes_s / 1e9
        yield (
            f"  ceiling    {limit} decode steps/s for one user: nodes x {bandwidth:.0f} GB/s / {active[0] / 1e9:.2f} GB"
            f" ({active[1]}). A ceiling is never reached and is no forecast."
        )
        if answer.fit is not None and answer.fit.verdict == "does not fit":
            slow = ceilings.seconds_per_token_from_disk(active[0], answer.machine.ssd_bytes_s)
            yield f"  from disk  {slow:.2f} s a token if every step read its weights from one SSD"
    yield from (f"  reported   {_reported(each)}" for each in model.reported)
    cost = answer.economics
    yield f"  price      ${cost['price_usd']:,.0f} of boxes, up to ${cost['power_usd_year']:,.2f} of power a year"
    if model.api is not None:
        yield (
            f"  against    the owner's API at ${cost['api_usd_per_m_output']:.2f} per million output tokens with five "
            f"times as much input: the boxes' price buys {cost['break_even_output_tokens']:.2g} tokens there"
        )
    yield f"  licence    {model.licence}{f': {model.licence_note}' if model.licence_note else ''}"
    warning = click.style("warning", fg="yellow")
    yield from (f"  {warning}    {each}" for each in answer.warnings)
    yield from (f"  {warning}    {each.what} Remedy: {each.remedy} [{each.code}]" for each in answer.known_bad)


def _reported(each: Reported) -> str:
    where = f"{each.nodes} x {each.hardware}" if each.nodes else each.hardware
    figures = [
        f"{name} {', '.join(f'{key} {value:g}' for key, value in values.items())} tok/s"
        for name, values in (
            ("decode", each.decode_tok_s),
            ("prefill", each.prefill_tok_s),
            ("aggregate", each.aggregate_tok_s),
        )
        if values
    ]
    build = f", {each.build}" if each.build else ""
    notes = f" ({'; '.join(each.notes)})" if each.notes else ""
    source = each.source.removeprefix("community: ")
    return f"{where}, {each.engine}{build}: {'; '.join(figures)}{notes} [{each.kind}; {source}]"
