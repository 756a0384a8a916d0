"""A draft that is a checkpoint of its own: chosen by its card, carried as the model is, and told to the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.plan import phases
from orchestrator.plan.actions import SendModel
from orchestrator.plan.launch import LaunchPlan
from orchestrator.plan.phases import Baggage, Before
from orchestrator.plan.resolve import PlanError
from orchestrator.run.catalog import Catalog
from orchestrator.spec.problems import SpecError
from tests.unit.builders import SHIPPED, plan, profile, resolved


@pytest.fixture(scope="module")
def sixteen() -> LaunchPlan:
    return plan(resolved(profile("kimi-k3")))


def test_a_draft_lies_beside_the_model_on_every_node(sixteen: LaunchPlan) -> None:
    model, draft = sixteen.models
    assert (draft.model, draft.revision) == ("kimi-k3-dspark", "cf6b8244620e7ea4b0651d214f28e89eac75bed6")
    assert draft.nodes == model.nodes
    for rank in sixteen.ranks:
        assert draft.target[rank.node] != model.target[rank.node]
        there = {mount.source: (mount.target, mount.read_only) for mount in rank.unit.mounts}
        assert there[draft.target[rank.node]] == ("/models/kimi-k3-dspark", True)


def test_the_engine_is_told_where_the_draft_lies(sixteen: LaunchPlan) -> None:
    (argv,) = (step.argv for step in sixteen.ranks[0].rank_file.steps if step.name == "engine")
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == {
        "method": "dspark",
        "model": "/models/kimi-k3-dspark",
        "num_speculative_tokens": 7,
        "draft_sample_method": "greedy",
        "draft_tensor_parallel_size": 1,
        "kv_cache_dtype": "auto",
    }


def test_both_are_sent(sixteen: LaunchPlan) -> None:
    names: list[str] = [file.name for file in (*sixteen.ranks[0].secrets, *sixteen.gateway.secrets)]
    secrets = dict.fromkeys(names, b"secret")
    todo = phases.up(sixteen, Before(), Baggage(b"", secrets, {}))
    sent = [(action.node, action.model) for phase in todo for action in phase.actions if isinstance(action, SendModel)]
    assert len(sent) == 32
    assert {model for _, model in sent} == {"kimi-k3", "kimi-k3-dspark"}


@pytest.mark.parametrize(
    ("draft", "method", "says"),
    [
        ("minimax-m3-dspark", "dspark", "should be a draft of kimi-k3, found minimax-m3-dspark, a draft of minimax-m3"),
        ("glm-5.3", "dspark", "should be a draft of kimi-k3, found glm-5.3, no draft"),
        ("kimi-k3-dspark", "mtp", "should be left out for method mtp, found kimi-k3-dspark"),
        (None, "dspark", "should be kimi-k3-dspark, kimi-k3 has no dspark layers itself; found none"),
        (None, "draft_model", "should name a card of pins/models/ for method draft_model, found none"),
    ],
)
def test_a_draft_that_cannot_draft_for_this_model_is_refused(draft: str | None, method: str, says: str) -> None:
    wrong = profile("kimi-k3", engine__speculative__draft=draft, engine__speculative__method=method)
    with pytest.raises(PlanError) as refusal:
        resolved(wrong)
    assert len(refusal.value.problems) == 1
    assert refusal.value.problems[0].startswith(f"profiles/kimi-k3.yaml engine/speculative/draft: {says}")


def test_a_draft_is_not_served_by_itself() -> None:
    with pytest.raises(PlanError, match="model: should be what is served, found kimi-k3-dspark"):
        resolved(profile("kimi-k3", model="kimi-k3-dspark"))


@pytest.mark.parametrize(("key", "where"), [("model", "draft"), ("num_speculative_tokens", "tokens")])
def test_what_is_typed_is_not_said_twice(tmp_path: Path, key: str, where: str) -> None:
    text = (Path(__file__).parents[2] / "profiles" / "kimi-k3.yaml").read_text(encoding="utf-8")
    (tmp_path / "profiles").mkdir()
    changed = text.replace("args: {draft_tensor", f"args: {{{key}: 1, draft_tensor")
    (tmp_path / "profiles" / "kimi-k3.yaml").write_text(changed, encoding="utf-8")
    with pytest.raises(SpecError, match=f"{key} should be set through engine/speculative/{where}"):
        Catalog((tmp_path,), shipped=SHIPPED.shipped).profile("kimi-k3")
