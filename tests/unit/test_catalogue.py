"""Everything that ships under profiles/ and pins/ is well formed, agrees with itself and says where it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from orchestrator.plan.engine_args import owned_flags
from orchestrator.plan.network import PER_NODE
from orchestrator.spec.machine import Machine
from orchestrator.spec.model import Model
from orchestrator.spec.parsing import parse
from orchestrator.spec.pins import Image, KnownBadTable, Stack
from orchestrator.spec.profile import Profile

ROOT = Path(__file__).resolve().parents[2]
PROFILES = sorted((ROOT / "profiles").glob("*.yaml"))
STACKS = sorted((ROOT / "pins" / "stacks").glob("*.yaml"))
MODELS = sorted((ROOT / "pins" / "models").glob("*.yaml"))
MACHINES = sorted((ROOT / "pins" / "machines").glob("*.yaml"))
SIGNATURES = ROOT / "pins" / "signatures.yaml"
KNOWN_BAD = [path for path in [ROOT / "pins" / "known-bad.yaml"] if path.exists()]
EVERY = [*PROFILES, *STACKS, *MODELS, *MACHINES, *KNOWN_BAD, SIGNATURES]

TWIN = ("deepseek-ai/DeepSeek-V4-Flash-DSpark", "5176586613905d4beaadbaea1cfecd1693e17f9da4a0ea09d99aab7d3f2f5b7c")
SECRET = re.compile(
    r"(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|-----BEGIN|AKIA[0-9A-Z]{16}|://[^/\s:]+:[^/\s@]+@)"
)
SECRET_NAME = re.compile(r"(TOKEN(?!S$)|SECRET|PASSWORD|API_KEY|CREDENTIAL)", re.IGNORECASE)
HEXADECIMAL = re.compile(r"(?<![0-9a-f])[0-9a-f]{41,}(?![0-9a-f])")

T = TypeVar("T", Profile, Stack, Model, Machine, KnownBadTable)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def load(path: Path, kind: type[T]) -> T:
    return parse(path.read_bytes(), name_of(path), kind)


def profiles() -> dict[str, Profile]:
    return {path.stem: load(path, Profile) for path in PROFILES}


def stacks() -> dict[str, Stack]:
    return {path.stem: load(path, Stack) for path in STACKS}


def models() -> dict[str, Model]:
    return {path.stem: load(path, Model) for path in MODELS}


ON_SPARKS = sorted(name for name, profile in profiles().items() if profile.accelerator == "gb10")


def images() -> Iterator[tuple[str, Image]]:
    for name, stack in stacks().items():
        for what, image in (("image", stack.image), ("gateway", stack.gateway)):
            if image is not None:
                yield f"{name} {what}", image


def test_what_ships_is_there() -> None:
    assert {"tiny", "deepseek-v4-flash"} <= set(profiles())
    assert {"vllm-cpu", "anemll-0-1-1", "anemll-0-1-1-ray"} <= set(stacks())
    assert {"tiny-moe", "deepseek-v4-flash-0731"} <= set(models())
    strays = [name_of(path) for path in (ROOT / "pins").rglob("*") if path.is_file() and path not in EVERY]
    assert strays == []


def test_names_are_the_file_names() -> None:
    for values in (profiles(), stacks(), models(), {path.stem: load(path, Machine) for path in MACHINES}):
        assert {stem: value.name for stem, value in values.items()} == {stem: stem for stem in values}


def test_every_profile_finds_its_model_and_stacks() -> None:
    known, checkpoints = stacks(), models()
    for name, profile in profiles().items():
        assert profile.model in checkpoints, name
        ceiling = checkpoints[profile.model].context_tokens
        assert ceiling is None or profile.engine.context_tokens <= ceiling, name
        for executor, stack in profile.stack.items():
            assert stack in known, f"{name} {executor}"
            assert executor != "ray" or "ray" in known[stack].has, f"{name}: {stack} has no ray"
            assert (known[stack].image is None) == (profile.runtime == "process"), f"{name} {stack}"


def test_a_stack_that_has_a_program_pins_its_version_or_says_that_nobody_published_it() -> None:
    for name, stack in stacks().items():
        for program in set(stack.has) - set(stack.versions):
            assert any(f"The version of {program} is not published" in note for note in stack.notes), name


def test_every_image_is_started_behind_the_same_gateway() -> None:
    gateways = {stack.gateway.digest for stack in stacks().values() if stack.gateway is not None}
    assert len(gateways) == 1
    assert all((stack.gateway is None) == (stack.image is None) for stack in stacks().values())


def test_the_derived_image_keeps_what_its_base_has() -> None:
    base, derived = stacks()["anemll-0-1-1"], stacks()["anemll-0-1-1-ray"]
    assert base.image is not None
    assert derived.image is not None
    assert derived.versions == {**base.versions, "ray": derived.versions["ray"]}
    assert derived.image.build is not None
    folder = ROOT / "containers" / derived.image.build
    text = (folder / "Containerfile").read_text(encoding="utf-8")
    assert re.findall(r"^FROM (\S+)$", text, re.MULTILINE) == [f"{base.image.repository}@{base.image.digest}"]
    assert all(f"{name}=={version}" in text for name, version in derived.versions.items())
    wheels = (folder / "ray.txt").read_text(encoding="utf-8")
    assert re.search(rf"^ray=={re.escape(derived.versions['ray'])} --hash=sha256:[0-9a-f]{{64}}$", wheels, re.MULTILINE)


def test_manifests_add_up() -> None:
    for name, model in models().items():
        if not model.files:
            said = any("no list of files" in note for note in model.notes)
            assert model.made_by or said, f"{name} has neither files nor a maker, and no note that says so"
            assert model.made_by or model.weights_bytes or model.weights_gb, f"{name} has no size at all"
            continue
        paths = [file.path for file in model.files]
        assert len(set(paths)) == len(paths), name
        assert sum(file.bytes for file in model.files) == model.repo_bytes, name
        weights = [file for file in model.files if file.path.endswith(".safetensors")]
        assert sum(file.bytes for file in weights) == model.weights_bytes, name
        assert all(file.sha256 for file in model.files), name
        hashes = [file.sha256 for file in weights]
        assert len(set(hashes)) == len(hashes), name
        assert model.tensor_bytes is None or 0 < model.tensor_bytes < (model.weights_bytes or 0), name
        assert model.repository, name
        assert model.revision, name


def test_only_a_reported_model_is_without_a_revision() -> None:
    for name, model in models().items():
        if model.repository is not None:
            assert (model.revision is None) == (model.confidence == "reported"), name
            assert model.licence_note, name
        if model.repo_bytes is not None and model.weights_bytes is not None:
            assert model.weights_bytes < model.repo_bytes, name


def test_cards_name_only_what_there_is() -> None:
    cards, known = models(), stacks()
    for name, model in cards.items():
        measured = [(each.stack, each.source) for each in (*model.loaded, *model.runtime)]
        for stack, source in [*measured, *((each.stack, each.source) for each in model.kv.measured)]:
            assert stack is None or stack in known, f"{name}: {stack}"
            assert source.strip(), name
        for each in model.builds:
            assert each.card is None or each.card in cards, f"{name}: {each.card}"
            if each.card is not None and each.revision is not None:
                pinned = cards[each.card]
                assert (each.repository, each.revision) == (pinned.repository, pinned.revision), name
            assert each.source.strip(), name
        assert model.kv.unknown is None or len(model.kv.unknown) > 20, name


def test_known_bad_combinations_have_sources_and_one_code_each() -> None:
    (path,) = KNOWN_BAD
    table = load(path, KnownBadTable).combinations
    assert table
    codes = [each.code for each in table]
    assert len(set(codes)) == len(codes)
    for each in table:
        assert all(source.strip() for source in each.sources), each.code
        words = {"arch", "accelerator", "container", "env", "ranks", "model", "tensor", "kv_dtype", "attention"}
        assert set(each.where) <= words, each.code


def test_made_models_name_a_program_of_this_repository() -> None:
    for name, model in models().items():
        if model.made_by is not None:
            assert (ROOT / model.made_by).is_file(), name
            assert model.confidence == "built", name


def test_v4_flash_has_every_shard_and_the_twin_trap() -> None:
    model = models()["deepseek-v4-flash-0731"]
    shards = [file for file in model.files if re.fullmatch(r"model-\d{5}-of-00048\.safetensors", file.path)]
    assert [file.path for file in shards] == [f"model-{number:05d}-of-00048.safetensors" for number in range(1, 49)]
    note = next(note for note in model.notes if TWIN[0] in note)
    assert TWIN[1] in note
    assert str(shards[0].sha256) in note
    assert TWIN[1] not in {file.sha256 for file in model.files}


def test_images_are_by_digest_and_sourced() -> None:
    for where, image in images():
        assert not re.search(r":[^/]+$", image.repository), f"{where}: a tag floats"
        assert image.sources, where
        assert all(source.strip() for source in image.sources), where
        if image.confidence == "built":
            assert image.digest is None, f"{where}: a build's digest is the operator's"
            assert image.build is not None, where
            assert (ROOT / "containers" / image.build / "README.md").is_file(), where
        elif image.confidence == "reported":
            assert image.digest is None, f"{where}: a digest that somebody publishes is one source at least"
        else:
            assert image.digest is not None, where
        if image.confidence == "two":
            owners = {source.partition("/")[0] for source in image.sources}
            assert len(owners) >= 2, f"{where}: two independent projects, found {owners}"


def test_published_models_and_versions_are_sourced() -> None:
    for name, model in models().items():
        assert model.sources, name
    for name, stack in stacks().items():
        told = " ".join((*stack.notes, *(stack.image.sources if stack.image else ())))
        assert re.search(r"[\w-]+/[\w.-]+@?|containers/", told), f"{name}: says nowhere where its versions come from"


@pytest.mark.parametrize("path", EVERY, ids=name_of)
def test_no_secret_and_no_long_hexadecimal_that_is_no_sha256(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert SECRET.search(text) is None
    assert [word for word in HEXADECIMAL.findall(text) if len(word) != 64] == []


@pytest.mark.parametrize("path", EVERY, ids=name_of)
def test_no_floating_tag_stands_where_an_image_is_meant(path: Path) -> None:
    values = [line.partition("#")[0] for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line for line in values if re.search(r"(image|repository|base):.*:(latest|nightly|dev|main)\b", line)] == []


@pytest.mark.parametrize("name", [path.stem for path in PROFILES])
def test_a_profile_sets_nothing_that_differs_per_node_or_is_owned_elsewhere(name: str) -> None:
    profile = profiles()[name]
    assert set(profile.env) & {*PER_NODE, "NCCL_IB_GID_INDEX", "NCCL_NET", "NCCL_IB_DISABLE"} == set()
    assert not any(SECRET_NAME.search(key) for key in profile.env)
    assert "" not in profile.env.values()
    assert set(profile.engine_args) & set(owned_flags()) == set()
    assert not profile.floating_tags


@pytest.mark.parametrize("name", [path.stem for path in PROFILES])
def test_evidence_has_a_source_and_names_what_it_is_about(name: str) -> None:
    profile = profiles()[name]
    assert profile.evidence
    for each in profile.evidence:
        assert each.source.strip(), each.what
        assert each.what.partition(": ")[2].strip(), each.what
        for path in covered(each.what):
            top, _, rest = path.partition("/")
            held = getattr(profile, top)
            if isinstance(held, dict):
                assert not rest or rest in held, f"{path} is not in the profile"
            elif rest:
                assert getattr(held, rest) is not None, f"{path} is not set in the profile"


def covered(what: str) -> list[str]:
    """The paths before the first colon of an evidence: ``engine/max_seqs, env/X: …``."""
    return [path.strip() for path in what.partition(": ")[0].split(",")]


@pytest.mark.parametrize("name", ON_SPARKS)
def test_every_setting_of_a_profile_for_sparks_has_evidence(name: str) -> None:
    profile = profiles()[name]
    said = {path for each in profile.evidence for path in covered(each.what)} - {"env", "engine", "engine_args"}
    settings = {
        *(f"engine/{field}" for field in profile.engine.model_fields_set),
        *(f"engine_args/{flag}" for flag in profile.engine_args),
        *(f"env/{variable}" for variable in profile.env),
        *(f"readiness/{field}" for field in profile.readiness.model_fields_set),
        *(f"ray/{field}" for field in profile.ray.model_fields_set),
    }
    assert sorted(settings - said) == []


def test_v4_flash_says_where_published_runs_disagree() -> None:
    found = profiles()["deepseek-v4-flash"].evidence
    disputed = {path for each in found if each.kind == "disagreement" for path in covered(each.what)}
    expected = (
        *("context_tokens", "memory_utilization", "kv_dtype", "long_prefill_tokens"),
        *("cudagraph_capture_max", "trust_remote_code", "speculative"),
    )
    assert {f"engine/{field}" for field in expected} <= disputed
    assert "engine_args/default-chat-template-kwargs" in disputed


def test_v4_flash_captures_graphs_for_every_drafted_batch() -> None:
    engine = profiles()["deepseek-v4-flash"].engine
    assert engine.speculative is not None
    assert engine.max_seqs is not None
    assert engine.cudagraph_capture_max == engine.max_seqs * (engine.speculative.tokens + 1)


@pytest.mark.parametrize("name", ON_SPARKS)
def test_a_profile_for_sparks_says_what_was_not_tried_and_limits_memory(name: str) -> None:
    """vLLM's default share of 0.92 does not start on a Spark."""
    profile = profiles()[name]
    assert profile.engine.memory_utilization is not None
    assert profile.engine.memory_utilization <= 0.90
    text = (ROOT / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    assert re.search(r"This project has planned this profile and has not run it", text)


@pytest.mark.parametrize("name", ON_SPARKS)
def test_a_profile_uses_only_what_its_stacks_are_for(name: str) -> None:
    """Names that only a fork knows are listed by every stack that the profile may run."""
    profile, known = profiles()[name], stacks()
    for stack in profile.stack.values():
        fork_only = known[stack].fork_only
        if profile.engine.load_format == "b12x":
            assert "--load-format b12x" in fork_only
        if profile.engine.attention_backend == "B12X_MLA_SPARSE":
            assert "--attention-backend B12X_MLA_SPARSE" in fork_only
        for variable in profile.env:
            assert not variable.startswith(("VLLM_USE_B12X", "VLLM_B12X", "B12X_", "SPARK_")) or variable in fork_only


@pytest.mark.parametrize("name", ON_SPARKS)
def test_up_outlasts_the_engines_own_deadline(name: str) -> None:
    profile = profiles()[name]
    assert profile.readiness.ready_deadline_s > float(profile.env["VLLM_ENGINE_READY_TIMEOUT_S"])
