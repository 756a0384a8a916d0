"""The command lines of this project, and the published ones it follows, judged by vLLM's own parser."""

from __future__ import annotations

import json
import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.plan.engine_args import owned_flags, refusal
from orchestrator.run.catalog import Catalog

MODEL = "/models/deepseek-v4-flash-0731"
GOLDEN = Path(__file__).parents[1] / "golden"
SHIPPED = Catalog((), shipped=GOLDEN.parents[1])

# What every published run of DeepSeek-V4-Flash-0731 on two Sparks has in common.
COMMON = (
    *("vllm", "serve", MODEL, "--served-model-name", "deepseek-v4-flash", "--host", "192.168.100.11", "--port", "8000"),
    *("--tensor-parallel-size", "2", "--pipeline-parallel-size", "1", "--distributed-executor-backend", "mp"),
    *("--nnodes", "2", "--node-rank", "0", "--master-addr", "192.168.100.11", "--master-port", "25000"),
    *("--block-size", "256", "--max-num-batched-tokens", "8192", "--enable-prefix-caching", "--trust-remote-code"),
    *("--tokenizer-mode", "deepseek_v4", "--tool-call-parser", "deepseek_v4", "--reasoning-parser", "deepseek_v4"),
    "--enable-auto-tool-choice",
    *("--speculative-config", '{"method":"dspark","num_speculative_tokens":5,"draft_sample_method":"probabilistic"}'),
)
ANEMLL_LANE = (
    *COMMON,
    *("--kv-cache-dtype", "nvfp4_ds_mla", "--gpu-memory-utilization", "0.80", "--max-model-len", "1048576"),
    *("--max-num-seqs", "6", "--long-prefill-token-threshold", "1024", "--max-cudagraph-capture-size", "36"),
    *("--moe-backend", "flashinfer_b12x", "--async-scheduling", "--enable-chunked-prefill"),
    "--enable-flashinfer-autotune",
    *("--reasoning-config", '{"reasoning_start_str":"<think>","reasoning_end_str":"</think>"}'),
    *("--default-chat-template-kwargs", '{"thinking":true,"reasoning_effort":"low"}'),
)
B12X_LANE = (
    *COMMON,
    *("--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.85", "--max-model-len", "auto"),
    *("--max-num-seqs", "8", "--max-cudagraph-capture-size", "48"),
    *("--moe-backend", "b12x", "--linear-backend", "b12x"),
    *("--reasoning-config", '{"reasoning_start_str":"","reasoning_end_str":""}'),
    *("--default-chat-template-kwargs", '{"thinking":true,"reasoning_effort":"high"}'),
)


@pytest.fixture(scope="session")
def judge() -> ModuleType:
    """The judge with vLLM imported, once; what vLLM's modules warn about while they load is not ours."""
    from tests.engine import serve_args

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        serve_args.check_enums(serve_args.parse(["some-model"]))
    return serve_args


def golden_serve_commands() -> list[tuple[str, list[str]]]:
    """Every ``vllm serve`` of every golden plan: where it stands, and its words."""
    found = []
    for path in sorted(GOLDEN.glob("*/*.json")):
        for rank in json.loads(path.read_text(encoding="utf-8"))["ranks"]:
            for step in rank["rank_file"]["steps"]:
                if step["argv"][1:2] == ["serve"]:
                    where = f"{path.parent.name}/{path.stem} rank {rank['rank_file'].get('rank', '?')}"
                    found.append((where, step["argv"]))
    return found


def test_the_anemll_lane_parses_to_what_it_says(judge: ModuleType) -> None:
    args = judge.parse(ANEMLL_LANE)
    assert (args.model_tag, args.tensor_parallel_size, args.node_rank, args.block_size) == (MODEL, 2, 0, 256)
    assert (args.max_model_len, args.max_num_seqs, args.gpu_memory_utilization) == (1_048_576, 6, 0.80)
    assert args.speculative_config["method"] == "dspark"
    assert judge.check_enums(args) == []


@pytest.mark.parametrize(
    ("attention", "load_format", "fork_only"),
    [
        ("B12X", "b12x", ("--load-format", "b12x")),
        ("B12X_MLA_SPARSE", "instanttensor", ("--attention-backend", "B12X_MLA_SPARSE")),
    ],
)
def test_the_b12x_lane_parses_and_its_fork_only_name_is_reported(
    judge: ModuleType, attention: str, load_format: str, fork_only: tuple[str, str]
) -> None:
    args = judge.parse([*B12X_LANE, "--attention-backend", attention, "--load-format", load_format])
    (found,) = judge.check_enums(args)
    assert (found.flag, found.value) == fork_only
    assert "auto" in found.reason


def test_an_unknown_flag_is_refused_by_name(judge: ModuleType) -> None:
    with pytest.raises(judge.RefusedArgumentsError) as refusal:
        judge.parse([*ANEMLL_LANE, "--no-such-flag", "7", "--nor-this=8"])
    assert refusal.value.flags == ("--no-such-flag", "--nor-this")


def test_a_shortened_flag_is_not_taken_for_the_long_one(judge: ModuleType) -> None:
    with pytest.raises(judge.RefusedArgumentsError) as refusal:
        judge.parse([MODEL, "--max-num-se", "6"])
    assert refusal.value.flags == ("--max-num-se",)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--kv-cache-dtype", "nvfp5"), ("--moe-backend", "b13x"), ("--tensor-parallel-size", "two")],
)
def test_a_wrong_value_is_refused_with_its_flag_and_no_unknown_flag(judge: ModuleType, flag: str, value: str) -> None:
    with pytest.raises(judge.RefusedArgumentsError, match=flag) as refusal:
        judge.parse([MODEL, flag, value])
    assert value in str(refusal.value)
    assert refusal.value.flags == ()


@pytest.mark.parametrize(
    ("words", "flag", "value"),
    [
        (("--attention-backend", "NO_SUCH"), "--attention-backend", "NO_SUCH"),
        (("--load-format", "floppy"), "--load-format", "floppy"),
        (("--speculative-config", '{"method":"oracle"}'), "--speculative-config.method", "oracle"),
        (
            ("--speculative-config", '{"method":"dspark","draft_sample_method":"guess"}'),
            "--speculative-config.draft_sample_method",
            "guess",
        ),
        (("--tool-call-parser", "deepseek_v9"), "--tool-call-parser", "deepseek_v9"),
        (("--reasoning-parser", "deepseek_v9"), "--reasoning-parser", "deepseek_v9"),
    ],
)
def test_what_the_parser_does_not_look_at_is_checked(
    judge: ModuleType, words: tuple[str, ...], flag: str, value: str
) -> None:
    assert [(item.flag, item.value) for item in judge.check_enums(judge.parse([MODEL, *words]))] == [(flag, value)]


def test_no_flags_is_no_complaint(judge: ModuleType) -> None:
    assert judge.check_enums(judge.parse([MODEL])) == []


def test_an_abbreviation_would_override_what_the_plan_says(judge: ModuleType) -> None:
    words = [MODEL, "--host", "127.0.0.1", "--tensor-parallel-size", "2", "--hos", "0.0.0.0", "--tensor-parallel", "7"]
    args = judge.parser(allow_abbrev=True).parse_args(words)
    assert (args.host, args.tensor_parallel_size) == ("0.0.0.0", 7)
    assert refusal("hos")
    assert refusal("tensor-parallel")


def test_the_flags_that_only_begin_like_planned_ones_are_known(judge: ModuleType) -> None:
    flags = {word[2:] for word in judge.parser().flags() if word.startswith("--")}
    owned = owned_flags()
    begins = {flag for flag in flags - owned.keys() if any(name.startswith(flag) for name in owned)}
    assert {flag for flag in begins if refusal(flag)} == set()


def only_in_fork(where: str) -> dict[str, str]:
    """Flag -> value that the stack of a golden plan calls fork_only; a value of "" stands for any."""
    name, _, rest = where.partition("/")
    profile = SHIPPED.profile(name)
    stack = SHIPPED.stack({str(key): value for key, value in profile.stack.items()}[rest.partition("-")[0]])
    words = [word.partition(" ") for word in stack.fork_only if word.startswith("--")]
    return {flag: value for flag, _, value in words}


def without(argv: list[str], forked: dict[str, str]) -> list[str]:
    """The words without a JSON argument of which the stack says that one of its keys is the fork's own."""
    left = list(argv)
    for flag, value in forked.items():
        if flag in left and left[left.index(flag) + 1].startswith("{") and f'"{value}"' in left[left.index(flag) + 1]:
            at = left.index(flag)
            left[at : at + 2] = []
    return left


def test_every_golden_plan_is_understood(judge: ModuleType) -> None:
    commands = golden_serve_commands()
    assert commands, f"no golden plan below {GOLDEN} starts vllm serve"
    for where, argv in commands:
        forked = only_in_fork(where)
        args = judge.parse(without(argv, forked))
        unknown = {(item.flag, item.value) for item in judge.check_enums(args)} - set(forked.items())
        assert not unknown, f"{where}: {unknown}"


# What vLLM builds only with the checkpoint's files or on a GPU; no plan is judged by these here.
NOT_BUILT = ("ModelConfig", "SpeculativeConfig", "KernelConfig", "AttentionConfig", "CompilationConfig")


def configurations(args: Namespace) -> Iterator[object]:
    """The parts of vLLM's configuration that need neither a checkpoint nor a GPU, built and so validated."""
    from vllm.config import CacheConfig, ParallelConfig, SchedulerConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    engine = AsyncEngineArgs.from_cli_args(args)
    yield engine
    yield CacheConfig(
        block_size=engine.block_size or 16,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        cache_dtype=engine.kv_cache_dtype,
        enable_prefix_caching=bool(engine.enable_prefix_caching),
    )
    yield ParallelConfig(
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        decode_context_parallel_size=engine.decode_context_parallel_size,
        enable_expert_parallel=engine.enable_expert_parallel,
        distributed_executor_backend=engine.distributed_executor_backend,
        nnodes=engine.nnodes,
        node_rank=engine.node_rank,
        master_addr=engine.master_addr,
        master_port=engine.master_port,
    )
    yield SchedulerConfig(
        max_model_len=engine.max_model_len,
        is_encoder_decoder=False,
        max_num_batched_tokens=engine.max_num_batched_tokens or 2048,
        max_num_seqs=engine.max_num_seqs or 128,
        long_prefill_token_threshold=engine.long_prefill_token_threshold or 0,
    )


def test_every_golden_plan_is_a_valid_configuration(judge: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = set()
    for where, argv in golden_serve_commands():
        try:
            kinds |= {type(each).__name__ for each in configurations(judge.parse(without(argv, only_in_fork(where))))}
        except ValueError as error:
            pytest.fail(f"{where}: {error}")
    assert kinds == {"AsyncEngineArgs", "CacheConfig", "ParallelConfig", "SchedulerConfig"}
    with capsys.disabled():
        print(f"\n  not judged here, for want of a checkpoint or a GPU: {', '.join(NOT_BUILT)}")


def test_a_split_that_vllm_refuses_is_refused_here_too(judge: ModuleType) -> None:
    words = ["vllm", "serve", MODEL, "--max-model-len", "4096", "--tensor-parallel-size", "4"]
    with pytest.raises(ValueError, match="divisible by dcp_size"):
        list(configurations(judge.parse([*words, "--decode-context-parallel-size", "3"])))
