"""Which line of a log says why."""

import pytest

from orchestrator.agent.fatal import first_fatal, last_line

ENGINE_DEATH = """\
INFO 11-30 04:45:29 [__init__.py:1] Automatically detected platform cpu.
WARNING 11-30 04:45:30 [config.py:9] ImportError: optional kernels are not there
(EngineCore pid=12) ERROR 11-30 04:45:31 [core.py:1039] EngineCore failed to start.
(EngineCore pid=12) ERROR 11-30 04:45:31 [core.py:1039] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-30 04:45:31 [core.py:1039]     raise ValueError("No available memory")
(EngineCore pid=12) ERROR 11-30 04:45:31 [core.py:1039] ValueError: No available memory for the cache blocks.
(APIServer pid=3) Traceback (most recent call last):
(APIServer pid=3) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
RAY_DEATH = """\
ray.exceptions.RayTaskError(ModuleNotFoundError): ray::RayWorkerWrapper.execute_method() (pid=7, ip=10.0.0.2)
  File "/x/y.py", line 3, in f
ModuleNotFoundError: No module named 'flashinfer'
"""
CASES = {
    "the cause, not the wrapper": (ENGINE_DEATH, "ValueError: No available memory for the cache blocks."),
    "the cause inside a Ray task": (RAY_DEATH, "ModuleNotFoundError: No module named 'flashinfer'"),
    "argparse": (
        "usage: vllm\nvllm serve: error: unrecognized arguments: --x\n",
        "vllm serve: error: unrecognized arguments: --x",
    ),
    "a bare exception": ("  x()\nException: The current node timed out.\n", "Exception: The current node timed out."),
    "CUDA": (
        "RuntimeError: CUDA error: an illegal memory access was encountered\n",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    "coloured": ("\x1b[31mOSError: [Errno 98] in use\x1b[0m\n", "OSError: [Errno 98] in use"),
    "only a wrapper": (
        "RuntimeError: Engine core initialization failed. See root cause above.\n",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ),
    "nothing fatal": ("INFO all is well\nGET /health 200\n", ""),
    "an old trouble far up": ("ValueError: a client's\n" + "INFO fine\n" * 900, ""),
}


@pytest.mark.parametrize(("log", "line"), CASES.values(), ids=CASES)
def test_first_fatal(log: str, line: str) -> None:
    assert first_fatal(log) == line


def test_last_line_skips_blanks() -> None:
    assert last_line("one\ntwo\n\n  \n") == "two"
    assert last_line("") == ""
