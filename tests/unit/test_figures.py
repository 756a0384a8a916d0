"""Published figures against our arithmetic: every number of the copied table, and the right value where it is wrong.

``tests/figures/published.yaml`` is a copy of what articles and owners published, with where each figure comes from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.plan import ceilings
from orchestrator.plan.fit import budgets, fit
from orchestrator.plan.kv import Split
from orchestrator.plan.memory import Load, weights
from orchestrator.spec.model import Api
from tests.unit.builders import SHIPPED

TABLE: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "figures" / "published.yaml").read_text(encoding="utf-8")
)
GB10 = SHIPPED.machine("gb10")
GB, GIB = 1e9, 2**30
# The table writes models as their owners do, with builds beside them; a card's name is what the file is called.
CARDS = {
    "GLM-5.3-Flash": "glm-5.3-flash",
    "DeepSeek-V4-Flash-0731": "deepseek-v4-flash-0731",
    "DeepSeek-V4.1-Flash-1017": "deepseek-v4.1-flash-1017",
    "DeepSeek-V4-Pro-0813": "deepseek-v4-pro-0813",
    "MiniMax-M3.1-Flash": "minimax-m3.1-flash",
    "MiniMax-M3": "minimax-m3",
    "Nemotron-3-Ultra-550B-A55B": "nemotron-3-ultra",
    "GLM-5.3": "glm-5.3",
    "Kimi-K3": "kimi-k3",
    "Kimi-K3.1-Pro": "kimi-k3.1-pro",
    "Qwen3.8-2.4T-A95B": "qwen3.8-2.4t",
}


def row(table: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in TABLE[table] if each["id"] == name)
    return found


def raw(model: str, nodes: int) -> float:
    """Cluster headroom in bytes by weights alone against the label."""
    card = SHIPPED.model(model)
    answer = fit(card, Load(Split(tensor=nodes), card.context_tokens, 1, None, GB10.utilization), GB10)
    assert answer.cluster_headroom_bytes is not None
    return answer.cluster_headroom_bytes


def test_the_size_of_v4_flash_in_both_units() -> None:
    size = SHIPPED.model("deepseek-v4-flash-0731").weights_bytes or 0
    said = f"{size:_} B = {size / GB:.3f} GB = {size / GIB:.3f} GiB"
    assert said == row("fit_goldens", "v4flash-gib")["say"]


def test_v4_flash_on_one_node_is_short_by_what_was_published() -> None:
    golden, card = row("fit_goldens", "v4flash-1node"), SHIPPED.model("deepseek-v4-flash-0731")
    answer = fit(card, Load(Split(tensor=1), card.context_tokens, 1, None, GB10.utilization), GB10)
    assert (answer.verdict, answer.impossible) == ("does not fit", True)
    assert f"short by {golden['deficit_gib']} GiB" in answer.reasons[0]
    assert f"{golden['ratio']} times" in answer.reasons[0]
    assert answer.changes[0] == "--nodes 2"


def test_v4_flash_on_two_nodes_leaves_what_was_published() -> None:
    golden = row("fit_goldens", "v4flash-2node")
    assert SHIPPED.model("deepseek-v4-flash-0731").tensor_bytes == golden["weights_bytes"]
    assert raw("deepseek-v4-flash-0731", 2) / GB == pytest.approx(golden["headroom_gb"], abs=1e-9)


@pytest.mark.parametrize("nodes", [1, 2, 4, 12, 13, 16, 18])
def test_kimi_k3_against_the_label(nodes: int) -> None:
    golden = row("fit_goldens", f"k3-{nodes}node")
    headroom = raw("kimi-k3", nodes) / GB
    assert round(headroom, 3) == golden["headroom_gb"]
    if "headroom_per_node_gb" in golden:
        assert round(headroom / nodes, 3) == golden["headroom_per_node_gb"]


def test_kimi_k3_is_thirteen_raw_and_sixteen_sensible() -> None:
    label, careful, _ = budgets(SHIPPED.model("kimi-k3"), GB10, expert_parallel=False)
    assert (label.smallest, careful.smallest) == (13, row("fit_goldens", "k3-80pct")["smallest_nodes"]) == (13, 16)


@pytest.mark.parametrize("name", ["k3-3bit", "k3-2bit"])
def test_fewer_bits_on_fewer_boxes(name: str) -> None:
    golden = row("fit_goldens", name)
    size = golden["weights_gb"] * GB
    assert ceilings.smallest(size, GB10.memory_label_bytes) == golden["smallest_nodes"]["at_128_gb"]
    careful = GB10.careful_share * GB10.memory_label_bytes
    assert ceilings.smallest(size, careful) == golden["smallest_nodes"]["at_102.4_gb"]


def test_a_pool_of_almost_two_contexts_holds_one() -> None:
    golden = row("fit_goldens", "two-1M-sequences")
    card = SHIPPED.model("deepseek-v4-flash-0731")
    load = Load(Split(tensor=2), golden["max_model_len"], 1, None, GB10.utilization)
    per_token = fit(card, load, GB10).cache.bytes_per_token or 0
    fixed = fit(card, load, GB10).terms[:2]
    needed = sum(term.bytes or 0 for term in fixed) + golden["kv_pool_tokens"] * per_token
    answer = fit(card, load, GB10, memory_total_bytes=(needed + fit(card, load, GB10).cache.state_bytes + 1) / 0.80)
    assert answer.pool_tokens == pytest.approx(golden["kv_pool_tokens"], abs=1)
    assert answer.full_sequences == golden["concurrent_full_sequences"]


@pytest.mark.parametrize("golden", TABLE["bandwidth_ceilings"], ids=lambda golden: golden["id"])
def test_bandwidth_ceilings(golden: dict[str, Any]) -> None:
    per_step = golden.get("active_gb_per_token", 0) * GB or float(golden["active_params"]) * golden["bytes_per_param"]
    nodes = golden.get("nodes_reading_at_once") or golden["nodes"]
    assert ceilings.decode_ceiling(nodes, per_step, GB10.memory_bandwidth_bytes_s) == golden["steps_s"]


@pytest.mark.parametrize("golden", TABLE["ssd_streaming"], ids=lambda golden: golden["id"])
def test_streaming_from_a_disk(golden: dict[str, Any]) -> None:
    seconds = ceilings.seconds_per_token_from_disk(golden["active_gb_per_token"] * GB, golden["ssd_gb_s"] * GB)
    assert round(seconds, 2) == golden["seconds_per_token"]
    assert round(1 / seconds, 3) == golden["tokens_s"]
    assert golden["ssd_gb_s"] * GB == GB10.ssd_bytes_s


def api(model: str) -> Api:
    found = SHIPPED.model(model).api
    assert found is not None
    return found


def test_power_of_one_node_for_a_year() -> None:
    golden = row("economics", "power-year")
    assert (GB10.power.measured_w, GB10.power.usd_per_kwh) == (golden["watts"], golden["usd_kwh"])
    assert round(ceilings.power_usd_per_year(GB10), 2) == golden["usd_year"]


@pytest.mark.parametrize(("name", "model"), [("deepseek-mix", "deepseek-v4-flash-0731"), ("kimi-mix", "kimi-k3")])
def test_what_an_owner_asks_for_a_million_tokens(name: str, model: str) -> None:
    golden = row("economics", name)
    assert golden["input_per_output"] == ceilings.INPUT_PER_OUTPUT
    asked = ceilings.api_usd_per_m_output(api(model))
    assert round(asked, 2) == golden["usd_per_m_output_equivalent"]


def test_what_one_box_buys_at_the_owners_api() -> None:
    golden = row("economics", "one-spark-in-deepseek-tokens")
    assert GB10.price_usd == golden["usd"]
    tokens = ceilings.break_even_tokens(GB10.price_usd, api("deepseek-v4-flash-0731"))
    assert float(f"{tokens:.1e}") == float(golden["tokens"])


def test_list_prices() -> None:
    for nodes, usd in row("economics", "list-price")["nodes_usd"].items():
        assert nodes * GB10.price_usd == usd


@pytest.mark.parametrize("golden", TABLE["clusters"], ids=lambda golden: f"{golden['model']} {golden['build']}")
def test_the_cluster_that_people_build(golden: dict[str, Any]) -> None:
    step, remark = ceilings.size_people_build(golden["weights_gb"] * GB, GB10)
    said = golden["nodes"]
    expected = f"just over {step}" if remark == "just over" else f"{step}, {remark}" if remark else step
    assert expected == said


@pytest.mark.parametrize("golden", TABLE["clusters"], ids=lambda golden: f"{golden['model']} {golden['build']}")
def test_every_published_build_is_on_a_card(golden: dict[str, Any]) -> None:
    card = SHIPPED.model(CARDS[golden["model"]])
    sizes = {build.weights_gb for build in card.builds}
    own = weights(card)
    near = own is not None and own[0] / GB == pytest.approx(golden["weights_gb"], rel=0.002)
    assert near or golden["weights_gb"] in sizes, f"{sizes}, {own}"


@pytest.mark.parametrize("golden", TABLE["models"], ids=lambda golden: golden["id"])
def test_every_published_model_has_a_card_that_agrees(golden: dict[str, Any]) -> None:
    card = SHIPPED.model(golden["id"])
    assert card.repository is not None
    for key, field in (("total", "total_params"), ("active", "active_params"), ("context", "context_tokens")):
        if key in golden:
            assert getattr(card, field) == float(golden[key]), key
    for key in ("layers", "experts", "experts_per_token", "shared_experts"):
        if key in golden:
            assert getattr(card.architecture, key) == golden[key], key
    for key, field in (("checkpoint_bytes", "weights_bytes"), ("tensor_bytes", "tensor_bytes"), ("shards", "shards")):
        if key in golden:
            assert getattr(card, field) == golden[key], key
    assert golden["id"] == "kimi-k3.1-pro" or "license_note" not in golden or card.licence_note, card.name


def test_a_card_with_a_wrong_published_claim_carries_the_right_one() -> None:
    """One article says vLLM 0.11.1 runs Kimi-K3; the maintained recipe says 0.27.1."""
    told = " ".join((*SHIPPED.model("kimi-k3").warnings, *SHIPPED.model("kimi-k3").notes))
    assert "0.27.1" in told


@pytest.mark.parametrize("name", SHIPPED.names("model"))
def test_every_figure_on_a_card_says_where_it_comes_from(name: str) -> None:
    card = SHIPPED.model(name)
    sources = [*(each.source for each in card.builds), *(each.source for each in card.reported)]
    sources += [each.source for each in (*card.loaded, *card.runtime)]
    sources += [each.source for each in card.kv.measured]
    assert all(source.strip() for source in sources)
    assert all(each.decode_tok_s or each.prefill_tok_s or each.aggregate_tok_s for each in card.reported)
