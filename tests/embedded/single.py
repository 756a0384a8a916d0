"""Prints the greedy answer of one vLLM process, as JSON text on the last line. Usage: single.py MODEL_DIRECTORY."""

from __future__ import annotations

import json
import os
import sys

QUESTION = [{"role": "user", "content": "Hello fox"}]
TOKENS = 24


def main() -> None:
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1"}
    from vllm import LLM, SamplingParams

    engine = LLM(sys.argv[1], max_model_len=512, enforce_eager=True)
    answer = engine.chat(QUESTION, SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True))  # type: ignore[arg-type]
    print()
    print(json.dumps(answer[0].outputs[0].text))


if __name__ == "__main__":
    main()
