"""Which line of a log says why."""

import time

import pytest

from orchestrator.agent.fatal import LIMIT, first_fatal, last_line, last_words

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
# `ray start --block` on the node whose raylet was killed; the tab comes from Ray.
RAY_START = """\
2026-11-30 09:38:53,101\tINFO scripts.py:1102 -- Local node IP: 127.0.0.3
2026-11-30 09:38:55,790\tSUCC scripts.py:1117 -- Ray runtime started.
2026-11-30 09:38:55,790\tINFO scripts.py:1270 -- Running subprocesses are monitored and a message will be \
printed if any of them terminate unexpectedly. Subprocesses exit with SIGTERM will be treated as graceful.
2026-11-30 09:38:55,790\tINFO scripts.py:1274 -- Process exit logs will be saved to: /tmp/s/logs/ray_process_exit.log
"""
RAYLET_DIED = """\
2026-11-30 09:39:55,790\tERR scripts.py:1307 -- Some Ray subprocesses exited unexpectedly:
2026-11-30 09:39:55,791\tERR scripts.py:87 -- raylet [exit code=-9]
2026-11-30 09:39:55,799\tERR scripts.py:1315 -- Remaining processes will be killed.
"""
# A driver whose raylet died during a request, and the engine that then ends.
ENGINE_WITHOUT_RAYLET = """\
(RayWorkerProc pid=2840) (MainProcess pid=2840) WARNING 11-30 01:46:08 [vllm.py:725] Model Runner V2 requires Triton
INFO:     10.77.0.1:46594 - "POST /v1/completions HTTP/1.1" 200 OK
(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user. \
Last 20 lines of the Raylet logs:
    [state-dump] \tWorkerPool.PopWorkerCallback - 1 total (0 active), Execution time: mean = 0.99ms
(EngineCore pid=2530) ERROR 11-30 01:47:40 [ray_executor_v2.py:522] RayWorkerProc rank=[1] died unexpectedly, shutting
(EngineCore pid=2530) ERROR 11-30 01:47:40 [dump_input.py:72] Dumping input data for V1 LLM engine (v0.32.0) with
(EngineCore pid=2530) ERROR 11-30 01:47:40 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=2530) ERROR 11-30 01:47:40 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=2530) ERROR 11-30 01:47:40 [core.py:1512]   File "/v/shm_broadcast.py", line 867, in acquire_read
(EngineCore pid=2530) ERROR 11-30 01:47:40 [core.py:1512]     raise RuntimeError("cancelled")
(EngineCore pid=2530) ERROR 11-30 01:47:40 [core.py:1512] RuntimeError: cancelled
(APIServer pid=1677) ERROR 11-30 01:47:40 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
INFO:     10.77.0.1:34366 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
(APIServer pid=1677) WARNING 11-30 01:47:40 [utils.py:653] [shutdown] Process manager: force killing EngineCore
nanobind: leaked 4 instances!
"""
_WORKER_DIED = "\n".join(line for line in ENGINE_WITHOUT_RAYLET.splitlines() if not line.startswith("(raylet)"))
_CANCELLED = "\n".join(line for line in _WORKER_DIED.splitlines() if "unexpectedly" not in line)
ONLY_NEWS = """\
(APIServer pid=23952) WARNING 11-30 01:40:58 [system_utils.py:255] Found ulimit of 20000 and failed to increase. This \
can cause fd limit errors like `OSError: [Errno 24] Too many open files`. Consider increasing with ulimit -n
(EngineCore pid=23996) INFO 11-30 01:41:14 [ray_utils.py:467] Waiting for creating a placement group for 10 seconds.
DEBUG 11-30 01:41:15 [x.py:1] RuntimeError: retried
[2026-11-30 01:41:15,100 W 12 12] (raylet) agent.cc:9: OSError: again
[rank1]:[W813 13:53:54.013 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=29): Error: Failed to recv
/v/x.py:12: UserWarning: ValueError: not this time
WARNING:root:ValueError: a library's own
2026-11-30 01:41:15,100 - httpx - INFO - RuntimeError: seen and passed on
node-b:77:201 [0] NCCL INFO NET/IB : error: none
node-b:77:201 [0] misc/x.cc:376 NCCL WARN a setting that has no effect
INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 503 Service Unavailable
"""
NCCL_DEATH = """\
node-b:77:201 [0] misc/ibvwrap.cc:376 NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev rocep1
torch.distributed.DistBackendError: NCCL error in: /p/NCCLUtils.cpp:94, unhandled system error, NCCL version 2.28.9
"""
CASES = {
    "the cause, not the wrapper": (ENGINE_DEATH, "ValueError: No available memory for the cache blocks."),
    "the cause inside a Ray task": (RAY_DEATH, "ModuleNotFoundError: No module named 'flashinfer'"),
    "vLLM's own line": (
        "(EngineCore pid=1) ERROR 11-30 09:38:55 [core.py:1] ValueError: current platform cpu does not support ray.\n",
        "ValueError: current platform cpu does not support ray.",
    ),
    "a level without a time": (
        "ERROR TimeoutError: RPC call to sample_tokens timed out.\nEngineDeadError: EngineCore encountered an issue.\n",
        "TimeoutError: RPC call to sample_tokens timed out.",
    ),
    "a level among the words": ("ValueError: Unknown level: INFO\n", "ValueError: Unknown level: INFO"),
    "an error without a name": (
        "(APIServer pid=3) ERROR 11-30 04:45:31 [weights.py:12] Shard 3 cannot be read\n" + ENGINE_DEATH[-105:],
        "Shard 3 cannot be read",
    ),
    "ray start, alive": (RAY_START, ""),
    "ray start, its raylet killed": (RAY_START + RAYLET_DIED, "raylet [exit code=-9]"),
    "the engine, its raylet killed": (
        ENGINE_WITHOUT_RAYLET,
        "Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user.",
    ),
    "only what followed": (_WORKER_DIED, "RayWorkerProc rank=[1] died unexpectedly, shutting"),
    "only what followed that": (_CANCELLED, "EngineCore encountered a fatal error."),
    "Ray's scheduler": (
        "(EngineCore pid=630) [autoscaler] Error: No available node types can fulfill resource request {'GPU': 1.0}\n",
        "Error: No available node types can fulfill resource request {'GPU': 1.0}",
    ),
    "Ray's own C++": (
        "[2026-11-30 01:41:15,100 E 12 12] (raylet) node.cc:9: 1 Workers killed due to memory pressure (OOM)\n",
        "1 Workers killed due to memory pressure (OOM)",
    ),
    "a lost node": (
        "(raylet) The node with node id: 0f21 and address: 10.0.0.2 has been marked dead because the detector\n",
        "The node with node id: 0f21 and address: 10.0.0.2 has been marked dead because the detector",
    ),
    "an exception of several lines": (
        "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.43.0\n    Python: 3.11.10\n",
        "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.43.0 Python: 3.11.10",
    ),
    "pydantic": (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, no config\n",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig Value error, no config",
    ),
    "an exception without words": (
        'Traceback (most recent call last):\n  File "/x.py", line 1, in f\n    assert x\nAssertionError\n',
        "AssertionError",
    ),
    "Python's tidying up": (
        "Exception ignored in: <function f at 0x1>\nTraceback (most recent call last):\nTypeError: 'NoneType' object\n",
        "",
    ),
    "a request that failed": (
        "ERROR:    Exception in ASGI application\nTraceback (most recent call last):\nValueError: too long\n"
        "(EngineCore pid=1) ERROR 11-30 09:38:55 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.\n",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ),
    "NCCL's hint before NCCL's error": (
        NCCL_DEATH,
        "NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev rocep1",
    ),
    "NCCL's hint alone": (
        "node-b:31:31 [0] bootstrap.cc:126 NCCL WARN Bootstrap : no socket interface found\n",
        "NCCL WARN Bootstrap : no socket interface found",
    ),
    "NCCL's hint, but another death": (NCCL_DEATH.splitlines()[0] + "\nValueError: no room\n", "ValueError: no room"),
    "a watchdog": (
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12590) ran for 600060 milliseconds\n",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12590) ran for 600060 milliseconds",
    ),
    "torch": (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms\n",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms",
    ),
    "a compiler": (
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\nsubprocess.CalledProcessError: x\n",
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    ),
    "glibc": ("double free or corruption (out)\nAborted (core dumped)\n", "double free or corruption (out)"),
    "glibc's heap": ("malloc(): corrupted top size\n", "malloc(): corrupted top size"),
    "C++": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ),
    "a missing library": (
        "python3: error while loading shared libraries: libcudart.so.12: cannot open shared object file\n",
        "error while loading shared libraries: libcudart.so.12: cannot open shared object file",
    ),
    "the kernel's OOM killer": (
        "[123.4] Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB\n",
        "Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB",
    ),
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
    "a chat template": (
        "The supplied chat template string (x.jinja) appears path-like, but doesn't exist! Tried: x.jinja\n",
        "The supplied chat template string (x.jinja) appears path-like, but doesn't exist! Tried: x.jinja",
    ),
    "nothing fatal": ("INFO all is well\nGET /health 200\n", ""),
    "only news": (ONLY_NEWS, ""),
    "an old trouble far up": ("ValueError: a client's\n" + "INFO fine\n" * 900, ""),
}


@pytest.mark.parametrize(("log", "line"), CASES.values(), ids=CASES)
def test_first_fatal(log: str, line: str) -> None:
    assert first_fatal(log) == line


@pytest.mark.parametrize("line", ONLY_NEWS.splitlines())
def test_a_line_of_a_low_level_is_never_the_reason(line: str) -> None:
    assert first_fatal(line) == ""
    assert last_words(line) == ""


def test_a_specific_line_of_another_log_wins_over_a_wrapper() -> None:
    assert first_fatal(_CANCELLED, RAY_START + RAYLET_DIED) == "raylet [exit code=-9]"
    assert first_fatal("ValueError: one\n", "ValueError: two\n") == "ValueError: one"


def test_a_log_of_huge_lines_is_read_in_no_time() -> None:
    began = time.process_time()
    for line in ("a " * 200_000, "A" * 400_000, "A." * 200_000, "(x " * 100_000):
        assert first_fatal(f"{line}\nValueError: no room\n") == "ValueError: no room"
    for word in ("a ", "A.b ", "A", "out of: ", "error x: ", "x.A_"):
        many = "\n".join([word * (500 // len(word))] * 790)
        assert first_fatal(f"{many}\nValueError: no room\n") == "ValueError: no room"
    assert time.process_time() - began < 5.0


def test_a_reason_is_cut() -> None:
    assert len(first_fatal(f"ValueError: {'x' * 900}\n")) == LIMIT


def test_last_line_skips_blanks() -> None:
    assert last_line("one\ntwo\n\n  \n") == "two"
    assert last_line("") == ""


def test_last_words_are_no_news() -> None:
    assert last_words("one\nno such model\n") == "no such model"
    assert last_words("no such model\n" + RAY_START) == ""


def test_that_the_executor_failed_is_no_reason() -> None:
    """A worker that was killed while nothing was asked: the engine's own error comes later and says less."""
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error. Lease ID: 02"
    failed = "(EngineCore pid=18575) ERROR 11-30 22:10:12 [core.py:1512] RuntimeError: Executor failed."
    assert first_fatal(f"{died}\n{failed}\n") == died.removeprefix("(raylet) ")
    assert first_fatal(f"{failed}\n") == "RuntimeError: Executor failed."
