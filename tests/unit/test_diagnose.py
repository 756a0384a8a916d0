"""The first cause, not the loudest line; and nothing at all where nothing is wrong."""

from __future__ import annotations

import re
import time

import pytest

from orchestrator.doctor.diagnose import diagnose
from orchestrator.doctor.incident import Diagnosis, Log
from tests.unit.builders import SHIPPED
from tests.unit.logbook import Case, cases, log, variants

TABLE = SHIPPED.signatures()
TELLS = {each.code: each.tells for each in TABLE.signatures}
ALL = cases()
HEALTHY = log("healthy-start")
BEFORE, SERVED, AFTER = (tuple(log(f"healthy-{name}").splitlines()) for name in ("start", "serving", "stop"))


def read(*lines: str) -> Diagnosis:
    return diagnose((Log("one.log", lines),), TABLE)


def ranks(*texts: str) -> Diagnosis:
    logs = (Log(f"{n}.log", tuple(text.splitlines()), f"spark-{n}", str(n)) for n, text in enumerate(texts))
    return diagnose(tuple(logs), TABLE)


def code_of(found: Diagnosis) -> str:
    return found.cause.code if found.cause else ""


def told(found: Diagnosis) -> str:
    """What was found, as ``variants`` writes it."""
    if found.cause:
        return found.cause.code
    if found.first_fatal:
        return "?"
    warned = ",".join(each.code for each in found.warnings)
    return f"warn={warned}" if warned else ""


def between(lines: tuple[str, ...]) -> tuple[str, ...]:
    news = "(EngineCore pid=7) INFO 11-30 09:39:14 [x.py:1] Error handling is set up."
    return tuple(text for line in lines for text in (line, news))


def mixed(case: Case) -> dict[str, tuple[str, ...]]:
    """The excerpt among lines of healthy engines, in several ways."""
    if case.stands_still:
        return {"alone": case.lines, "behind a start": (*BEFORE[:-8], *case.lines)}
    return {
        "alone": case.lines,
        "behind a start": (*BEFORE, *case.lines),
        "after good service": (*BEFORE, *SERVED, *case.lines, *AFTER),
        "before a start": (*case.lines, *BEFORE),
        "before good service": (*case.lines, *BEFORE, *SERVED),
        "in the middle": (*BEFORE, *case.lines, *BEFORE, *AFTER),
        "line by line": (*BEFORE, *between(case.lines)),
        "from the agent": tuple(f"engine: {line}" for line in (*BEFORE, *case.lines)),
        "merged": tuple(f"spark-1 0 | engine: {line}" for line in (*BEFORE, *case.lines)),
    }


def other_numbers(text: str) -> str:
    """The same fault on other machines, at another time, in another version."""
    text = re.sub(r"\b10\.0\.0\.(\d)", r"192.168.44.1\1", text)
    text = re.sub(r"\bnode-([ab])\b", r"gx10-f\1", text.replace("192.0.2.", "198.51.100."))
    text = re.sub(r"(\.(?:py|cc|cpp|cu|c)):(\d+)", r"\1:9\2", text)
    text = re.sub(r"pid=\d+", "pid=424242", re.sub(r"\b(11-30|05-20) \d\d:\d\d", r"02-28 23:59", text))
    return re.sub(r"\b0\.6\.3\b", "1.9.0", text.replace("2.43.0", "2.61.1").replace("rocep1s0f1", "roceP2p1s0f0"))


def judge(case: Case, lines: tuple[str, ...]) -> tuple[str, str]:
    """("miss" or "false alarm" or nothing, what was found instead)."""
    found = read(*lines)
    warned = {each.code for each in found.warnings}
    if case.warns:
        return ("", "") if case.code in warned and not found.bad else ("miss", code_of(found))
    if not case.code:
        return ("false alarm", code_of(found) or "an unknown line") if found.bad else ("", "")
    return ("", "") if code_of(found) == case.code else ("miss", code_of(found) or "nothing")


def test_every_published_case_is_found_among_healthy_lines_and_nothing_else_is() -> None:
    wrong = [
        (kind, case.id, how, instead)
        for case in ALL
        for change in (str, other_numbers)
        for how, lines in mixed(case).items()
        for kind, instead in [judge(case, tuple(change("\n".join(lines)).split("\n")))]
        if kind
    ]
    misses = [each for each in wrong if each[0] == "miss"]
    alarms = [each for each in wrong if each[0] == "false alarm"]
    print(f"{len(ALL)} cases: {len(misses)} misses, {len(alarms)} false alarms")
    assert len(ALL) >= 30
    assert (misses, alarms) == ([], [])


@pytest.mark.parametrize(("code", "text"), variants())
def test_a_kind_is_known_in_other_words(code: str, text: str) -> None:
    assert told(read(*BEFORE, *text.split("\n"))) == code
    assert told(read(*BEFORE, *SERVED, *text.split("\n"), *AFTER)) == code


def test_no_other_words_are_missed_and_none_raise_a_false_alarm() -> None:
    results = [(code, told(read(*BEFORE, *text.split("\n")))) for code, text in variants()]
    misses = [each for each in results if each[0] and each[0] != each[1]]
    alarms = [each for each in results if not each[0] and each[1]]
    print(f"{len(results)} variants: {len(misses)} misses, {len(alarms)} false alarms")
    assert (misses, alarms) == ([], [])


@pytest.mark.parametrize("entry", TABLE.signatures, ids=lambda each: each.code)
def test_every_example_of_the_table_is_read_as_its_own_entry(entry: object) -> None:
    assert entry in TABLE.signatures
    kind = next(each for each in TABLE.signatures if each == entry)
    for example in kind.examples:
        found = read(*example.split("\n"))
        if kind.tells in ("benign", "wrapper") or kind.stalls:
            assert found.cause is None
        elif kind.tells == "warning":
            assert [each.code for each in found.warnings] == [kind.code]
        elif not kind.after:
            assert code_of(found) == kind.code


# --- nothing is wrong


def test_a_long_healthy_log_has_no_finding() -> None:
    found = read(*BEFORE, *(SERVED * 2000), *AFTER)
    assert (found.cause, found.first_fatal, found.others, found.warnings) == (None, None, (), ())


@pytest.mark.parametrize("line", [*BEFORE, *SERVED, *AFTER])
def test_no_healthy_line_is_a_finding_by_itself(line: str) -> None:
    found = read(line)
    assert (found.cause, found.first_fatal, found.warnings) == (None, None, ())


def test_a_wait_that_ended_is_no_finding_and_one_that_did_not_is() -> None:
    wait = "INFO 11-30 09:40:14 [ray_utils.py:467] Waiting for creating a placement group of specs for 70 seconds."
    start = BEFORE.index(next(line for line in BEFORE if "Starting to load" in line))
    assert code_of(read(*BEFORE[:start], wait)) == "RAY_PLACEMENT_WAITS"
    assert not read(*BEFORE[:start], wait, *BEFORE[start:]).bad


def test_a_worker_that_never_joined_is_a_wait() -> None:
    found = read(*log("worker-never-joined").splitlines())
    assert code_of(found) == "RAY_PLACEMENT_WAITS"
    assert found.cause
    assert "150 s" in found.cause.says


def test_an_engine_stalls_only_where_nothing_follows_for_long() -> None:
    line = "INFO 11-30 12:00:01 [x.py:1] CustomAllreduce is disabled because this process group spans across nodes."
    assert not diagnose((Log("", (line,), silent_s=20.0),), TABLE).bad
    assert code_of(diagnose((Log("", (line,), silent_s=200.0),), TABLE)) == "STALLED_AT"
    assert code_of(read(line, "sparkctl: 2026-11-30 12:06:00 no answer")) == "STALLED_AT"
    assert not read(line, "INFO 11-30 12:06:00 [x.py:2] and on", "INFO 11-30 12:06:01 and on", "and on").bad


# --- the first cause


def test_a_cause_on_one_rank_beats_what_it_led_to_on_another() -> None:
    victim = (
        "[rank0]:[W813 13:53:54.0 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=29, remote=[b]:2)\n"
        "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL\n"
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1) ran for 600060 milliseconds\n"
        "RuntimeError: [pair.cc:525] Read error [10.0.0.2]:1: Connection reset by peer\n"
        "(APIServer pid=3) ERROR 11-30 09:00:00 [async_llm.py:906] vllm.v1.EngineDeadError: EngineCore\n"
    )
    for case in ALL:
        if TELLS.get(case.code) == "cause":
            found = ranks(HEALTHY + victim, HEALTHY + "\n".join(case.lines))
            assert code_of(found) == case.code
            assert found.cause
            assert (found.cause.witnesses[0].node, found.cause.witnesses[0].rank) == ("spark-1", "1")
            assert {"RAYLET_DIED", "CONNECTION_RESET"} <= {each.code for each in found.others}


def test_one_incident_with_two_witnesses_is_one() -> None:
    line = "{}:5:7 [0] NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n"
    found = ranks(HEALTHY + line.format("a"), HEALTHY + line.format("b"))
    assert found.cause
    assert [each.rank for each in found.cause.witnesses] == ["0", "1"]
    assert found.others == ()


def test_of_two_causes_the_earlier_by_the_clock_wins() -> None:
    full = "ERROR 11-30 09:50:00 [x.py:1] OSError: [Errno 28] No space left on device\n"
    late = "ERROR 11-30 09:51:00 [x.py:1] torch.OutOfMemoryError: CUDA out of memory.\n"
    assert code_of(ranks(late, full)) == "DISK_FULL"
    assert code_of(ranks(full, late)) == "DISK_FULL"
    assert code_of(read(*late.splitlines(), *full.splitlines())) == "CUDA_OUT_OF_MEMORY"


def test_without_clocks_the_earlier_phase_wins() -> None:
    serving = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    assert code_of(ranks(serving, "sh: 1: ray: not found")) == "IMAGE_LACKS_RAY"


def test_what_the_engine_outlived_is_not_why_it_died_later() -> None:
    early, late = "OSError: [Errno 98] Address already in use", "TimeoutError: RPC call to sample_tokens timed out."
    found = read(early, *BEFORE, *SERVED[:4], late)
    assert (code_of(found), found.others) == ("EXECUTOR_RPC_TIMEOUT", ())
    found = read(early, *BEFORE, *SERVED)
    assert found.cause
    assert found.cause.outlived


def test_a_late_deadline_is_a_compilation_only_where_one_was_seen_before() -> None:
    late = "ERROR TimeoutError: RPC call to sample_tokens timed out."
    jit = "WARNING [jit_monitor.py:129] CuTeDSL JIT compilation during inference: W4A16FusedMoeKernel"
    assert code_of(read(late)) == "EXECUTOR_RPC_TIMEOUT"
    assert code_of(read(late, jit)) == "EXECUTOR_RPC_TIMEOUT"
    assert not read(jit).bad
    assert code_of(read(jit, late)) == "JIT_DURING_SERVE"
    assert code_of(ranks(late, jit)) == "JIT_DURING_SERVE"


def test_the_real_death_of_a_raylet_is_told_with_its_consequence() -> None:
    found = read(*log("raylet-killed").splitlines())
    assert (code_of(found), [each.code for each in found.others]) == ("RAYLET_DIED", ["WORKER_DIED"])
    assert "rank 1" in found.others[0].says


def test_what_no_entry_knows_is_shown_and_not_guessed() -> None:
    found = read(*BEFORE, "RuntimeError: Engine core initialization failed. See root cause above.", "FooError: odd")
    assert found.cause is None
    assert found.first_fatal
    assert found.first_fatal.text == "FooError: odd"
    wrapper = read(*BEFORE, "RuntimeError: Engine core initialization failed. See root cause above.")
    assert wrapper.cause is None
    assert wrapper.first_fatal


def test_an_echo_does_not_hide_an_error_that_no_entry_knows() -> None:
    found = ranks("FooError: odd\n", "RuntimeError: Read error: Connection reset by peer\n")
    assert code_of(found) == "CONNECTION_RESET"
    assert found.first_fatal
    assert found.first_fatal.text == "FooError: odd"


def test_an_error_that_nobody_knows_beats_what_was_lost_after_it_and_not_before_it() -> None:
    lost = "ConnectionRefusedError: [Errno 111] Connection refused"
    found = read(*BEFORE, "FooError: odd", "INFO fine", lost)
    assert (found.cause, [each.code for each in found.others]) == (None, ["CONNECTION_REFUSED"])
    assert found.first_fatal
    assert found.first_fatal.text == "FooError: odd"
    found = read(*BEFORE, lost, "FooError: odd")
    assert (code_of(found), found.first_fatal) == ("CONNECTION_REFUSED", None)


def test_an_error_and_what_it_says_of_itself_are_one_message() -> None:
    full = "[Errno 28] No space left on device"
    front = "(Worker_TP0 pid=9) ERROR 11-30 09:50:00 [multiproc_executor.py:750]"
    assert read("odd.WriteError: 1 error in a file", f"  {full}").first_fatal is None
    assert read(f"{front} odd.WriteError: odd", *[f"{front} and"] * 5, f"{front} OSError: {full}").first_fatal is None
    assert read("odd.WriteError: odd", *["INFO and"] * 5, f"{front} OSError: {full}").first_fatal


def test_a_log_of_a_machine_counts_where_an_engine_died() -> None:
    line = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from {}"
    kernel = f"[91231.1] {line.format('_memdescAllocInternal(pMemDesc)')}"
    late = "TimeoutError: RPC call to sample_tokens timed out.\n"
    assert code_of(ranks(kernel)) == "GPU_RM_NO_MEMORY"
    assert not ranks(kernel.replace("91231", "   12")).bad
    assert not ranks(kernel, HEALTHY + log("healthy-serving")).bad
    assert code_of(ranks(kernel, HEALTHY + log("healthy-serving") + late)) == "GPU_RM_NO_MEMORY"


def test_an_agent_that_quotes_another_rank_is_not_the_first_witness() -> None:
    quote = "sparkctl: attempt 1 stopping: rank 1 (spark-1): OSError: [Errno 28] No space left on device\n"
    found = ranks(quote, "x\ny\nOSError: [Errno 28] No space left on device\n")
    assert found.cause
    assert [each.node for each in found.cause.witnesses] == ["spark-1", "spark-0"]


# --- size


def test_a_log_of_huge_lines_is_read_in_no_time() -> None:
    began = time.process_time()
    words = sorted({text for each in TABLE.signatures for text in each.has})
    for filler in ("a ", "A.b", "(x ", "1.", "[[", "node:"):
        near = [line for word in words for line in (f"{word}{filler * 1000}", f"{filler * 500}{word}")]
        read(filler * 3_000_000, *near)
    assert time.process_time() - began < 20.0


def test_a_log_of_many_lines_is_read_in_bounded_time() -> None:
    line = "(APIServer pid=3) INFO 11-30 10:00:01 [loggers.py:1] Engine 000: Avg prompt throughput: 10.0 tokens/s, Run"
    noisy = "(EngineCore pid=1) ERROR 11-30 10:00:01 [x.py:1] RuntimeError: Read error: Connection reset by peer"
    began = time.process_time()
    assert not read(*([line] * 90_000)).bad
    assert code_of(read(*([noisy] * 30_000))) == "CONNECTION_RESET"
    assert time.process_time() - began < 10.0


def test_what_docker_refuses_and_the_reason_below_it_are_one_message() -> None:
    daemon = "docker: Error response from daemon: failed to create shim task: OCI runtime create failed"
    hook = "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown"
    found = read(daemon, hook)
    assert (code_of(found), found.first_fatal) == ("DRIVER_LIBRARY_MISMATCH", None)
    alone = read(daemon)
    assert alone.first_fatal is not None
