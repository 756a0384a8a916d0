"""Makes a tiny mixture-of-experts model with a real tokenizer: ``make_tiny.py OUT [--kind qwen3moe]``.

About 0.6 million random parameters in two layers, in the layout of a published architecture, so that an engine serves
it with no change: safetensors weights, a byte-level BPE tokenizer trained on a few fixed sentences, a chat template.
From a fixed seed: the same libraries give the same bytes. Nothing is downloaded.

OUT appears complete or not at all. An OUT that this program made before, of the same kind, is kept as it is; any other
directory is refused. Prints one line of JSON: made (false where it was there already), model (the path), kind,
parameters, weights_sha256.
Exit codes: 0 made or already there, 1 could not be made, 2 usage, or OUT is somebody else's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SEED = 0
CONTEXT_TOKENS = 2048
RECEIPT = "made-by-make-tiny.json"
KINDS = ("qwen3moe",)

# ids 0, 1 and 2 of the vocabulary, in this order
PAD, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "You are a helpful assistant.",
    "user assistant system hello world",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    + TURN_START
    + "{{ message['role'] }}\n{{ message['content'] }}"
    + TURN_END
    + "\n{% endfor %}{% if add_generation_prompt %}"
    + TURN_START
    + "assistant\n{% endif %}"
)


def main(argv: list[str] | None = None) -> int:
    """Parses the command line and makes the model; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make_tiny.py", description="Make a tiny random mixture-of-experts model.")
    parser.add_argument("out", type=Path, metavar="OUT", help="directory to make; its parent is made where missing")
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help="architecture (default: %(default)s)")
    args = parser.parse_args(argv)
    out: Path = args.out.absolute()
    found = receipt(out)
    if found is not None and found.get("kind") == args.kind:
        print(json.dumps({"made": False, "model": str(out), **found}))
        return 0
    if out.exists() or out.is_symlink():
        what = f"a {found['kind']} model" if found else "something that this program did not make"
        print(f"make_tiny.py: {out} is {what}; remove it, or name another directory", file=sys.stderr)
        return 2
    try:
        made = make(out, args.kind)
    except (OSError, ImportError) as problem:
        found = receipt(out)
        if found is not None and found.get("kind") == args.kind:  # another run was faster, and its model is whole
            print(json.dumps({"made": False, "model": str(out), **found}))
            return 0
        print(f"make_tiny.py: {out} could not be made: {problem}", file=sys.stderr)
        return 1
    print(json.dumps({"made": True, "model": str(out), **made}))
    return 0


def receipt(out: Path) -> dict[str, Any] | None:
    """What an earlier run says about ``out``; None where there is no receipt to read."""
    try:
        found = json.loads((out / RECEIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "kind" in found else None


def make(out: Path, kind: str) -> dict[str, Any]:
    """Makes the model beside ``out`` and renames it into place. Raises OSError, and leaves nothing half done."""
    out.parent.mkdir(parents=True, exist_ok=True)
    workdir = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        parameters = write_model(workdir, write_tokenizer(workdir))
        weights = (workdir / "model.safetensors").read_bytes()
        made = {"kind": kind, "parameters": parameters, "weights_sha256": hashlib.sha256(weights).hexdigest()}
        (workdir / RECEIPT).write_text(json.dumps(made) + "\n", encoding="utf-8")
        for path in (workdir, *workdir.iterdir()):  # readable for whoever serves it
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.rename(workdir, out)  # noqa: PTH104 - onto a directory with files in it this fails, which is wanted
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
    return made


def write_tokenizer(workdir: Path) -> PreTrainedTokenizerFast:
    """Trains the byte-level tokenizer, so that every text can be written with it, and saves it with its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=[PAD, TURN_START, TURN_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(SENTENCES * 20, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=PAD,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(workdir)
    return tokenizer


def write_model(workdir: Path, tokenizer: PreTrainedTokenizerFast) -> int:
    """Draws the weights from the seed and saves them with their configuration. Returns the number of parameters."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    config = Qwen3MoeConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,  # to a multiple of 64, so that the ranks can split it
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM's CPU attention takes
        intermediate_size=256,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    config.dtype = torch.bfloat16
    torch.manual_seed(SEED)
    model = Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(workdir)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory(prefix="make-tiny-") as scratch:  # torch leaves a cache folder where it may
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        sys.exit(main())
