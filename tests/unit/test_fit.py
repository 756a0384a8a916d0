"""The memory sum: what each rule adds, which verdict follows, and which change is the smallest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan.fit import Fit, budgets, fit
from orchestrator.plan.kv import Split, cache
from orchestrator.plan.memory import Drafter, Load
from orchestrator.run.catalog import Catalog
from orchestrator.spec.model import Kv, KvMeasured, Model
from orchestrator.verbs.errors import DoesNotFitError, UsageError
from orchestrator.verbs.fit import Question, refuse_impossible
from orchestrator.verbs.fit import fit as asked
from tests.unit.builders import SHIPPED, facts, profile, resolved

GB10 = SHIPPED.machine("gb10")
GB = 10**9
LATENT = {"what": "latent", "layers": 10, "sharing": "replicated", "bytes": {"bf16": 1152.0, "fp8": 656.0}}
INDEX = {"what": "index keys", "layers": 10, "sharing": "replicated", "bytes": {"any": 132.0}, "tokens_per_row": 4}
GROUPED = {"what": "heads", "layers": 60, "sharing": "heads", "heads": 4, "bytes": {"fp8": 256.0}}


def card(size_gb: float = 160, **changes: Any) -> Model:
    value: dict[str, Any] = {
        "name": "some-model",
        "about": "a model of tests",
        "repository": "owner/some-model",
        "licence": "MIT",
        "context_tokens": 100_000,
        "architecture": {"heads": 64, "experts": 256},
        "tensor_bytes": int(size_gb * GB),
        "kv": {"rows": [LATENT]},
    }
    return Model.model_validate({**value, **changes}, strict=False)


def load(nodes: int = 2, **changes: Any) -> Load:
    return replace(Load(Split(tensor=nodes), 100_000, 1, "fp8", 0.80), **changes)


def answer(model: Model | None = None, of: Load | None = None) -> Fit:
    return fit(model or card(), of or load(), GB10)


def per_token(rule: Kv, dtype: str, split: Split) -> float | None:
    return cache(rule, dtype, split).rule


def kv(*rows: dict[str, Any], **changes: Any) -> Kv:
    return Kv.model_validate({"rows": rows, **changes}, strict=False)


@pytest.mark.parametrize(
    ("tensor", "decode_context", "expected"), [(1, 1, 6560), (8, 1, 6560), (8, 2, 3280), (8, 8, 820)]
)
def test_latent_rows_lie_whole_on_every_rank(tensor: int, decode_context: int, expected: float) -> None:
    assert per_token(kv(LATENT), "fp8", Split(tensor, decode_context=decode_context)) == expected


@pytest.mark.parametrize(("tensor", "expected"), [(1, 61440), (2, 30720), (4, 15360), (8, 15360)])
def test_grouped_heads_are_divided_until_each_rank_has_one(tensor: int, expected: float) -> None:
    assert per_token(kv(GROUPED), "fp8", Split(tensor)) == expected


def test_rows_that_stand_for_several_tokens_and_fit_every_dtype() -> None:
    assert per_token(kv(LATENT, INDEX), "bf16", Split(2)) == 11520 + 330


def test_a_dtype_that_the_card_does_not_know_is_unknown_and_not_guessed() -> None:
    found = cache(kv(LATENT), "nvfp4", Split(2))
    assert (found.rule, found.bytes_per_token) == (None, None)
    assert found.unknown == "the card has no row size for cache dtype nvfp4; it knows bf16, fp8"


def test_a_measurement_counts_more_than_the_rule_and_that_of_the_same_stack_most() -> None:
    seen = [
        {"dtype": "fp8", "bytes_per_token": 9000, "source": "somebody"},
        {"dtype": "fp8", "bytes_per_token": 7000, "stack": "own", "source": "somebody"},
        {"dtype": "fp8", "bytes_per_token": 100, "decode_context_parallel": 2, "source": "somebody"},
        {"dtype": "bf16", "bytes_per_token": 99999, "source": "somebody"},
    ]
    rule = kv(LATENT, measured=seen)
    assert cache(rule, "fp8", Split(2)).bytes_per_token == 9000
    own = cache(rule, "fp8", Split(2, stacks=("own",)))
    assert (own.bytes_per_token, own.rule) == (7000, 6560)
    assert isinstance(own.measured, KvMeasured)


def test_state_is_per_sequence_and_divided_only_where_the_card_says_so() -> None:
    states = [
        {"what": "window", "layers": 2, "bytes": 100},
        {"what": "state", "layers": 3, "bytes": 800, "divided": True},
    ]
    found = cache(kv(LATENT, state=states), "fp8", Split(4))
    assert found.state_bytes == 2 * 100 + 3 * 800 / 4


def test_the_sum_is_shown_and_adds_up() -> None:
    found = answer()
    assert found.verdict == "fits"
    weights, runtime, kept = (term.bytes or 0 for term in found.terms)
    assert (weights, runtime, kept) == (80 * GB, GB10.runtime_bytes, 100_000 * 6560)
    assert found.headroom_bytes == pytest.approx(0.80 * GB10.memory_total_bytes - weights - runtime - kept)
    assert [term.basis for term in found.terms] == ["exact", "assumed", "rule"]
    assert found.cluster_headroom_bytes == 2 * GB10.memory_label_bytes - 160 * GB


def test_a_draft_of_its_own_is_divided_like_the_model_or_lies_whole_on_every_rank() -> None:
    plain = answer()
    for whole, share in ((False, 4 * GB), (True, 8 * GB)):
        found = answer(of=load(draft=Drafter("its-draft", (8 * GB, "exact"), whole)))
        assert [term.name for term in found.terms] == ["weights", "draft", "runtime", "KV cache"]
        assert (found.headroom_bytes or 0) == pytest.approx((plain.headroom_bytes or 0) - share)
    unknown = answer(of=load(draft=Drafter("its-draft", None)))
    assert unknown.verdict == "unknown"
    assert "nobody published the size of its-draft" in unknown.reasons[0]


def test_the_draft_of_a_profile_is_in_its_sum() -> None:
    found = asked(SHIPPED, Question("kimi-k3")).fit
    assert found is not None
    assert next(term.bytes for term in found.terms if term.name == "draft") == 7124633450
    with pytest.raises(UsageError, match="only drafts for kimi-k3"):
        asked(SHIPPED, Question("kimi-k3-dspark"))


def test_a_real_memory_total_takes_the_place_of_the_usual_one() -> None:
    assert fit(card(), load(), GB10, memory_total_bytes=100 * GB).usable_bytes == 80 * GB


def test_loaded_bytes_that_were_reported_count_where_they_are_more_than_the_share() -> None:
    reported = {"bytes": 85 * GB, "nodes": 2, "source": "an owner"}
    term = answer(card(loaded=[reported])).terms[0]
    assert (term.bytes, term.basis) == (85 * GB, "reported")
    assert "by arithmetic" in term.says
    assert answer(card(loaded=[reported]), load(4)).terms[0].basis == "exact"


def test_what_fits_no_memory_is_impossible_and_says_the_next_count() -> None:
    found = answer(card(size_gb=300), load(2))
    assert (found.verdict, found.impossible) == ("does not fit", True)
    assert found.changes == ("--nodes 4",)


def test_weights_alone_never_make_an_assumption_into_a_refusal() -> None:
    """Weights and cache fit; only the runtime, which was measured with another model, does not."""
    found = answer(card(size_gb=240), load(2))
    assert (found.verdict, found.impossible) == ("does not fit", False)


def test_a_context_that_was_asked_for_and_does_not_fit_names_the_longest_that_does() -> None:
    found = answer(of=load(2, context_tokens=100_000, sequences=100))
    assert found.verdict == "does not fit"
    tokens = int(found.changes[0].removeprefix("--context "))
    assert tokens % 1024 == 0
    assert answer(of=load(2, context_tokens=tokens, sequences=100)).verdict != "does not fit"
    assert answer(of=load(2, context_tokens=tokens + 1024, sequences=100)).verdict != "fits"


def test_between_what_is_given_and_what_is_free_while_loading_it_is_at_the_edge() -> None:
    found = answer(card(size_gb=188), load(2, context_tokens=1024))
    assert (found.verdict, found.impossible) == ("at the edge", False)
    assert found.changes[0].startswith("memory_utilization 0.8")


def test_divided_rows_or_smaller_ones_are_offered() -> None:
    full = answer(card(kv={"rows": [LATENT]}), load(2, dtype="bf16", sequences=12))
    assert full.verdict == "at the edge"
    assert any(change == "cache dtype fp8" for change in full.changes)
    assert any(change == "decode_context_parallel 2" for change in full.changes)


def test_tables_on_disk_count_for_less() -> None:
    tables = {"what": "lookup tables", "bytes": 100 * GB, "source": "an owner"}
    model = card(size_gb=300, tables=tables)
    assert answer(model, load(2)).changes[0].startswith("leave lookup tables on disk")
    assert answer(model, load(2, tables_on_disk=True)).impossible is False


def test_without_a_size_or_a_rule_the_answer_is_unknown_and_says_why() -> None:
    nothing = answer(card(tensor_bytes=None))
    assert (nothing.verdict, nothing.cluster_headroom_bytes) == ("unknown", None)
    assert "nobody published" in nothing.reasons[0]
    no_rule = answer(card(kv={"unknown": "nobody published the KV heads"}))
    assert no_rule.verdict == "unknown"
    assert "nobody published the KV heads" in no_rule.reasons[0]
    assert "leaves" in no_rule.reasons[0]


def test_budgets_name_the_smallest_count_that_divides_the_heads() -> None:
    found = budgets(card(size_gb=640), GB10, expert_parallel=False)
    assert [(each.smallest, each.legal) for each in found] == [(5, 8), (7, 8), (7, 8)]
    assert budgets(card(tensor_bytes=None), GB10, expert_parallel=False) == ()


def test_an_illegal_count_names_its_neighbours() -> None:
    found = asked(SHIPPED, Question("deepseek-v4-flash-0731", nodes=3))
    assert found.fit is not None
    assert (found.fit.verdict, found.code) == ("does not fit", 3)
    assert found.fit.reasons[0] == "64 heads cannot be divided over 3 nodes; the nearest that can be: 2 and 4"


@pytest.mark.parametrize(("name", "says"), [("no-such", "found no-such"), ("tiny", "needs no sum")])
def test_names_that_have_no_answer(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refusal:
        asked(SHIPPED, Question(name))
    assert "deepseek-v4-flash" in refusal.value.remedy


def test_a_plan_that_cannot_fit_is_refused_before_anything_is_copied() -> None:
    alone = resolved(profile(nodes__min=1, nodes__default=1), nodes=1, executor="mp")
    with pytest.raises(DoesNotFitError, match=r"short by 27\.425 GiB") as refusal:
        refuse_impossible(SHIPPED, alone, facts(alone))
    assert (refusal.value.code, refusal.value.remedy) == (3, "the smallest change: --nodes 2")


def test_nodes_with_little_memory_are_told_before_anything_is_copied() -> None:
    pair = resolved(profile(), executor="mp")
    refuse_impossible(SHIPPED, pair, facts(pair))
    with pytest.raises(DoesNotFitError, match="do not fit into its memory"):
        refuse_impossible(SHIPPED, pair, facts(pair, memory_total_bytes=64 * GB))


def test_the_card_in_the_documentation_is_all_that_a_model_needs(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    lines = [line[4:] for line in text.partition("    name: my-model")[2].splitlines() if line.startswith("    ")]
    assert len(lines) + 1 <= 10
    (tmp_path / "pins" / "models").mkdir(parents=True)
    (tmp_path / "pins" / "models" / "my-model.yaml").write_text("\n".join(["name: my-model", *lines]), encoding="utf-8")
    found = asked(Catalog((tmp_path,), shipped=SHIPPED.shipped), Question("my-model"))
    assert found.fit is not None
    assert (found.fit.verdict, found.fit.terms[2].basis) == ("fits", "rule")


@pytest.mark.parametrize("nodes", [32, 64])
def test_more_nodes_than_people_own_are_judged_by_the_same_rule(nodes: int) -> None:
    found = asked(SHIPPED, Question("deepseek-v4-flash-0731", nodes=nodes))
    assert found.fit is not None
    assert found.fit.verdict == "fits"


def test_a_profile_is_for_the_counts_that_it_names() -> None:
    found = asked(SHIPPED, Question("minimax-m3-nvfp4", nodes=8))
    assert found.fit is not None
    assert found.fit.verdict == "does not fit"
    assert found.fit.reasons[0] == "profile minimax-m3-nvfp4 is not for 8 nodes; the nearest that can be: 4"
    assert found.others == () or {each.nodes for each in found.others} == {4}


def test_naming_the_default_changes_nothing() -> None:
    for name in ("deepseek-v4-flash-0731", "glm-5.3-flash"):
        plain = asked(SHIPPED, Question(name)).fit
        assert plain is not None
        named = asked(SHIPPED, Question(name, plain.nodes, plain.load.context_tokens, 1)).fit
        assert named == plain


def test_a_context_beyond_the_models_window_is_refused() -> None:
    with pytest.raises(UsageError, match="--context: should be at most 1048576"):
        asked(SHIPPED, Question("deepseek-v4-flash", context_tokens=9_000_000))


def test_what_the_head_rank_may_need_is_counted_as_close() -> None:
    size = (0.80 * GB10.memory_total_bytes - GB10.runtime_bytes - 100_000 * 6560 - 3 * GB) * 2 / GB
    found = answer(card(size_gb=size), load(2))
    assert found.verdict == "at the edge"
    assert "head rank" in found.reasons[0]
    assert answer(card(size_gb=size / 2), load(1)).verdict == "fits"
