"""Typed engine settings -> arguments of ``vllm serve``. One table, so that what is typed cannot be said twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.plan.known_bad import holds
from orchestrator.spec.profile import Engine, Speculative


def _plain(flag: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda value: (flag, str(value))


def _on_off(flag: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda value: (f"--{flag}",) if value else (f"--no-{flag}",)


def _if_true(flag: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda value: (flag,) if value else ()


def _above_one(flag: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda value: (flag, str(value)) if value > 1 else ()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def speculative_json(value: Speculative, draft: str | None = None) -> str:
    """``--speculative-config`` as vLLM names its keys; ``draft`` is the directory of a second checkpoint."""
    named = {
        **value.args,
        "method": value.method,
        "num_speculative_tokens": value.tokens,
        "model": draft,
        "draft_sample_method": value.draft_sample_method,
        "attention_backend": value.attention_backend,
        "prompt_lookup_min": value.prompt_lookup_min,
        "prompt_lookup_max": value.prompt_lookup_max,
    }
    return _json({key: item for key, item in named.items() if item is not None})


# Field of spec.profile.Engine -> (flag of vLLM without dashes, how it is written). Order is the order in argv.
_FLAGS: dict[str, tuple[str, Callable[[Any], tuple[str, ...]]]] = {
    "served_name": ("served-model-name", _plain("--served-model-name")),
    "context_tokens": ("max-model-len", _plain("--max-model-len")),
    "pipeline": ("pipeline-parallel-size", _above_one("--pipeline-parallel-size")),
    "expert_parallel": ("enable-expert-parallel", _if_true("--enable-expert-parallel")),
    "decode_context_parallel": ("decode-context-parallel-size", _above_one("--decode-context-parallel-size")),
    "memory_utilization": ("gpu-memory-utilization", _plain("--gpu-memory-utilization")),
    "kv_cache_bytes": ("kv-cache-memory-bytes", _plain("--kv-cache-memory-bytes")),
    "kv_dtype": ("kv-cache-dtype", _plain("--kv-cache-dtype")),
    "block_size": ("block-size", _plain("--block-size")),
    "max_seqs": ("max-num-seqs", _plain("--max-num-seqs")),
    "max_batched_tokens": ("max-num-batched-tokens", _plain("--max-num-batched-tokens")),
    "long_prefill_tokens": ("long-prefill-token-threshold", _plain("--long-prefill-token-threshold")),
    "prefix_cache": ("enable-prefix-caching", _on_off("enable-prefix-caching")),
    "chunked_prefill": ("enable-chunked-prefill", _on_off("enable-chunked-prefill")),
    "async_scheduling": ("async-scheduling", _on_off("async-scheduling")),
    "enforce_eager": ("enforce-eager", _if_true("--enforce-eager")),
    "cudagraph_capture_max": ("max-cudagraph-capture-size", _plain("--max-cudagraph-capture-size")),
    "compilation": ("compilation-config", lambda value: ("--compilation-config", _json(value))),
    "attention_backend": ("attention-backend", _plain("--attention-backend")),
    "moe_backend": ("moe-backend", _plain("--moe-backend")),
    "linear_backend": ("linear-backend", _plain("--linear-backend")),
    "load_format": ("load-format", _plain("--load-format")),
    "tokenizer_mode": ("tokenizer-mode", _plain("--tokenizer-mode")),
    "tool_parser": ("tool-call-parser", _plain("--tool-call-parser")),
    "reasoning_parser": ("reasoning-parser", _plain("--reasoning-parser")),
    "auto_tool_choice": ("enable-auto-tool-choice", _if_true("--enable-auto-tool-choice")),
    "trust_remote_code": ("trust-remote-code", _if_true("--trust-remote-code")),
    "speculative": ("speculative-config", _plain("--speculative-config")),
}

# What the planner itself decides; a profile that says these would contradict the plan.
_PLANNED = {
    "model": "the profile's model",
    "host": "the plan (the engine listens where the gateway reaches it and, if it can, nobody else)",
    "port": "ports/engine",
    "api-key": "the plan (keys are made at up and never stand in a file of yours)",
    "tensor-parallel-size": "--nodes (tensor parallel is the node count divided by engine/pipeline)",
    "distributed-executor-backend": "executor",
    "nnodes": "--nodes (vLLM takes nnodes > 1 only with its mp executor: nnodes > 1 can only be set when distributed "
    "executor backend is mp, uni or external_launcher)",
    "node-rank": "the plan",
    "master-addr": "the plan",
    "master-port": "ports/rendezvous",
    "headless": "the plan",
}
_SHORT = {"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dcp": "decode-context-parallel-size"}


def owned_flags() -> dict[str, str]:
    """vLLM flag (no dashes) -> where a person sets it instead, for every flag that engine_args may not name."""
    typed = {flag: f"engine/{name}" for name, (flag, _) in _FLAGS.items()}
    typed |= _PLANNED
    typed |= {f"no-{flag}": where for flag, where in typed.items()}
    return typed | {short: typed[long] for short, long in _SHORT.items()}


# vLLM's own flags that only begin like an owned one: written in full they mean themselves.
_WHOLE = frozenset({"tokenizer"})
# What lets others in, brings in code or is a second way to say all of these. A name that only begins like one is one
# to vLLM's parser, which takes abbreviations.
_OPENS = ("allow-credentials", "allowed-", "api-key", "grpc", "host", "middleware", "port", "root-path", "ssl", "uds")


def refusal(flag: str) -> str:
    """Why ``engine_args`` may not name ``flag``; empty where it may."""
    owned = owned_flags()
    if flag in owned:
        return f"should be set through {owned[flag]}, found it in engine_args"
    whole = next((name for name in sorted(owned) if name.startswith(flag)), "")
    if whole and flag not in _WHOLE:
        return f"should be a flag's whole name, found what vLLM takes for {whole}; set that through {owned[whole]}"
    if "config".startswith(flag):
        return "should be the flags themselves, found a file of flags that no plan shows; write them one by one"
    if any(flag.startswith(each) or each.startswith(flag) for each in _OPENS):
        return "should be left out, found a flag that opens the engine; clients come in through the gateway alone"
    return ""


def typed_args(engine: Engine, draft: str | None = None) -> tuple[str, ...]:
    """The argv words of every typed field that is set. ``draft`` is the directory of a second checkpoint."""
    words: list[str] = []
    for name, (_, write) in _FLAGS.items():
        value = getattr(engine, name)
        if isinstance(value, Speculative):
            value = speculative_json(value, draft)
        if value is not None:
            words.extend(write(value))
    return tuple(words)


_QUIET = "disable-access-log-for-endpoints"
_ASKED_ALL_DAY = ("/health", "/metrics", "/v1/models")


def quiet_args(version: str, args: Mapping[str, Any]) -> tuple[str, ...]:
    """Keeps what rank 0's prober asks every second out of the engine's log; requests of people stay in it.

    vLLM knows the flag since 0.16. Nothing for an older ``version``, an unknown one, or where ``engine_args`` has it.
    """
    if not version or not holds(">=0.16", version) or _QUIET in args:
        return ()
    return (f"--{_QUIET}", ",".join(_ASKED_ALL_DAY))


def free_args(args: dict[str, Any]) -> tuple[str, ...]:
    """``engine_args`` as words, in the order of their names. A value that begins with a dash is joined with ``=``."""
    words: list[str] = []
    for flag, value in sorted(args.items()):
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
            continue
        if isinstance(value, list):
            words.extend((f"--{flag}", *map(str, value)))
        else:
            text = str(value)
            words.extend((f"--{flag}={text}",) if text.startswith("-") else (f"--{flag}", text))
    return tuple(words)
