"""Prints the greedy answer of one plain vLLM process. Usage: single.py MODEL_DIRECTORY."""

from __future__ import annotations

import json
import os
import sys

QUESTION = [{"role": "user", "content": "Hello fox"}]
TOKENS = 24
MARK = "ANSWER "


def main() -> None:
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1"}
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    from vllm import LLM, SamplingParams

    engine = LLM(sys.argv[1], max_model_len=512, enforce_eager=True, dtype="float32")
    answer = engine.chat(QUESTION, SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True))
    print("\n" + MARK + json.dumps(answer[0].outputs[0].text), flush=True)


def found(output: str) -> str:
    """The answer among whatever else the engine printed."""
    (line,) = [line for line in output.splitlines() if line.startswith(MARK)]
    return str(json.loads(line.removeprefix(MARK)))


if __name__ == "__main__":
    main()
