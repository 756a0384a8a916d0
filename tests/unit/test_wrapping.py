"""What collectors put around lines changes nothing: neither what a healthy log says, nor what a sick one does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from orchestrator.doctor import lines as reading
from orchestrator.doctor.diagnose import diagnose
from orchestrator.doctor.incident import Diagnosis, Log
from orchestrator.doctor.wrapping import LOOKED_AT, clean, parts
from tests.unit.builders import SHIPPED
from tests.unit.logbook import cases, log, variants

TABLE = SHIPPED.signatures()
HEALTHY = [line for name in ("start", "serving", "stop") for line in log(f"healthy-{name}").splitlines()]
STILL = [case for case in cases() if case.stands_still]
# (what is expected, lines), by name; where an excerpt ends with a silence, that is told beside it.
SICK = {
    **{
        case.id: (f"warn={case.code}" if case.warns else case.code, case.lines) for case in cases() if case not in STILL
    },
    **{f"{code} {number}": (code, tuple(text.split("\n"))) for number, (code, text) in enumerate(variants())},
}


def _packed(line: str) -> str:
    """As docker writes it: no blanks, and the control characters as JSON has them."""
    whole = {"log": f"{line}\n", "stream": "stderr", "time": "2026-11-30T12:00:00.123456789Z"}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False)


WRAPPERS: dict[str, Callable[[str], str]] = {
    "journald": lambda line: f"Nov 30 12:00:00 spark-1 docker[123]: {line}",
    "journald with ISO times": lambda line: f"2026-11-30T12:00:00+0100 spark-1 vllm-head[4711]: {line}",
    "kubectl": lambda line: f"[pod/vllm-0/vllm] {line}",
    "the runtime of Kubernetes": lambda line: f"2026-11-30T12:00:00.123456789Z stderr F {line}",
    "json-file": _packed,
    "json-file by another writer": lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr"}),
    "docker logs -t": lambda line: f"2026-11-30T12:00:00.123456789Z {line}",
    "a host": lambda line: f"[spark-1] {line}",
    "pdsh": lambda line: f"spark-1: {line}",
    "torchrun": lambda line: f"[rank0]:{line}",
    "torchrun with roles": lambda line: f"[default0]:{line}",
    "grep -n": lambda line: f"12:{line}",
    "grep in files": lambda line: f"logs/head.log:12:{line}",
    "compose": lambda line: f"head-1  | {line}",
    "compose in colours": lambda line: f"\x1b[36mhead-1  |\x1b[0m {line}",
    "sparkctl logs": lambda line: f"spark-1 0 | {line}",
    "sparkctl logs in journald": lambda line: f"Nov 30 12:00:00 spark-1 sparkctl[9]: spark-1 0 | {line}",
    "Ray": lambda line: f"(RayWorkerProc pid=774, ip=10.20.0.12) {line}",
    "Ray in colours": lambda line: f"\x1b[36m(RayWorkerProc pid=774, ip=10.20.0.12)\x1b[0m {line}",
    "loki": lambda line: f"1764835200123\t{line}",
    "an indentation": lambda line: f"    {line}",
    "a quotation": lambda line: f"> {line}",
    "colours": lambda line: f"\x1b[1;31m{line}\x1b[0m",
    "CRLF": lambda line: f"{line}\r",
    "something new": lambda line: f"level=x unit=vllm@0 {line}",
}


def read(*lines: str, silent_s: float | None = None) -> Diagnosis:
    return diagnose((Log("one.log", lines, silent_s=silent_s),), TABLE)


def told(found: Diagnosis) -> str:
    """What was found, as ``variants`` writes it."""
    if found.cause or found.first_fatal:
        return found.cause.code if found.cause else "?"
    warned = ",".join(each.code for each in found.warnings)
    return f"warn={warned}" if warned else ""


@pytest.mark.parametrize("wrap", [wrap for name, wrap in WRAPPERS.items() if name != "something new"])
def test_a_healthy_log_is_silent_in_every_wrapper(wrap: Callable[[str], str]) -> None:
    found = read(*map(wrap, HEALTHY))
    assert (found.cause, found.first_fatal, found.warnings) == (None, None, ())


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_case_is_the_same_in_every_wrapper(wrap: Callable[[str], str]) -> None:
    results = {name: (code, told(read(*map(wrap, lines)))) for name, (code, lines) in SICK.items()}
    assert {name: both for name, both in results.items() if both[0] != both[1]} == {}
    for case in STILL:
        assert told(read(*map(wrap, case.lines[:-1]), silent_s=390.0)) == case.code


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_the_level_of_an_engine_is_known_in_every_wrapper(wrap: Callable[[str], str]) -> None:
    for line, level in (
        ("(EngineCore pid=7) INFO 11-30 09:39:14 [x.py:1] ValueError: seen and passed on", "news"),
        ("WARNING 11-30 09:39:14 [x.py:1] ValueError: seen and passed on", "warning"),
        ("ERROR 11-30 09:39:14 [x.py:1] ValueError: odd", "error"),
    ):
        assert reading.level(clean(wrap(line))) == level


def test_a_line_out_of_json_keeps_its_time_and_what_a_terminal_shows_of_it() -> None:
    assert clean(_packed('exec: "ray": not\tfound')) == '2026-11-30T12:00:00.123456789Z exec: "ray": not\tfound'
    assert clean(_packed("10%\r100%")).endswith("Z 100%")
    cut = _packed("ValueError: \\" + "é" * LOOKED_AT)[:LOOKED_AT]
    assert clean(cut).startswith("ValueError: \\éé")
    assert clean('{"log":"a\\u00') == "a\\u00"


def test_ranks_that_write_into_one_log_are_parted_and_their_lines_keep_their_numbers() -> None:
    merged = ("spark-1 0 | a", "spark-2 1 | b", "a line that went astray", "", "spark-1 0 | c", "spark-2 gateway | d")
    made = parts(Log("-", merged))
    assert [(part.node, part.rank, part.lines, part.numbers) for part in made] == [
        ("spark-1", "0", ("a", "c"), (1, 5)),
        ("spark-2", "1", ("b", "a line that went astray", ""), (2, 3, 4)),
        ("spark-2", "gateway", ("d",), (6,)),
    ]
    table = ("name | value", "one", "two", "three")
    assert parts(Log("-", table)) == (Log("-", table),)


def test_the_machine_of_a_journal_is_named() -> None:
    found = read("Nov 30 12:00:00 spark-2 docker[123]: OSError: [Errno 28] No space left on device")
    assert found.cause
    assert found.cause.witnesses[0].node == "spark-2"


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-30T12:00:00Z x",
        "2026-11-30T13:00:00+0100 x",
        "2026-11-30T05:30:00.5-06:30 x",
        "INFO 11-30 12:00:00 [x.py:1] y",
        "[W1130 12:00:00.123 x.cpp:1] y",
        "Nov 30 12:00:00 spark-1 docker[1]: INFO 11-30 11:00:00 [x.py:1] y",
        "[Mon Nov 30 12:00:00 2026] NVRM: x",
    ],
)
def test_times_of_all_writers_are_one_scale(line: str) -> None:
    assert reading.stamp(line) == ((11 * 31 + 30) * 24 + 12) * 3600
