"""Rows of the cards against vLLM's own cache specifications: what a layer says it needs for a token."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.plan.kv import Split, cache
from orchestrator.run.catalog import Catalog
from orchestrator.spec.model import KvRows

SHIPPED = Catalog((), shipped=Path(__file__).resolve().parents[2])
BLOCK = 256
CONFIG = SimpleNamespace(cache_config=SimpleNamespace(block_size=BLOCK), model_config=None)


def row(model: str, number: int = 0) -> KvRows:
    return SHIPPED.model(model).kv.rows[number]


def per_token(spec: Any) -> float:
    """Bytes that one layer keeps for one token, padding of whole pages left out."""
    return float(spec.unpadded_page_size_bytes) / BLOCK


@pytest.fixture(scope="module")
def mla() -> Any:
    """Asks vLLM's latent-attention layer, which knows the packed layouts, without building its weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    def ask(dtype: str, head_size: int) -> float:
        layer = SimpleNamespace(
            kv_cache_dtype=dtype,
            head_size=head_size,
            sliding_window=None,
            indexer=None,
            non_causal_multi_token_decode=False,
        )
        loaded_as = SimpleNamespace(dtype=torch.bfloat16)
        return per_token(
            MLAAttention.get_kv_cache_spec(layer, SimpleNamespace(**{**vars(CONFIG), "model_config": loaded_as}))
        )

    return ask


@pytest.fixture(scope="module")
def v4() -> Any:
    """Asks vLLM's DeepSeek-V4 attention for a compressed row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from vllm.models.deepseek_v4.attention import DeepseekV4Attention

    def ask(tokens_per_row: int) -> float:
        layer = SimpleNamespace(
            compress_ratio=tokens_per_row,
            kv_cache_dtype="fp8_ds_mla",
            kv_cache_torch_dtype=torch.uint8,
            head_dim=512,
        )
        return per_token(DeepseekV4Attention.get_kv_cache_spec(layer, CONFIG))

    return ask


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "fp8"])
def test_kimi_k3_latent_rows(mla: Any, dtype: str) -> None:
    assert row("kimi-k3").bytes[dtype] == mla(dtype, 512 + 64)


def test_glm_flash_packed_rows(mla: Any) -> None:
    assert row("glm-5.3-flash").bytes["fp8_ds_mla"] == mla("fp8_ds_mla", 512)


@pytest.mark.parametrize("number", [0, 2])
def test_v4_flash_compressed_rows(v4: Any, number: int) -> None:
    rows = row("deepseek-v4-flash-0731", number)
    assert rows.bytes["fp8_ds_mla"] / rows.tokens_per_row == v4(rows.tokens_per_row)


@pytest.mark.parametrize(("dtype", "torch_name"), [("auto", "bfloat16"), ("fp8", "float8_e4m3fn")])
@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_minimax_heads_on_every_width(dtype: str, torch_name: str, tensor: int) -> None:
    """vLLM divides the KV heads and replicates them once there are more ranks than heads."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    model = SHIPPED.model("minimax-m3-nvfp4")
    heads = model.architecture.kv_heads or 0
    spec = FullAttentionSpec(
        block_size=BLOCK, num_kv_heads=max(1, heads // tensor), head_size=128, dtype=getattr(torch, torch_name)
    )
    layers = model.kv.rows[0].layers
    assert cache(model.kv, dtype, Split(tensor)).rule == layers * per_token(spec)
