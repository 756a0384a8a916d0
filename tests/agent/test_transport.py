"""The proof that NCCL took the fabric: its own words, in the shapes that NCCL 2.30.7 writes, and counted bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.transport import READ_BYTES, Ear, Said, gate, heard, moved, sent
from orchestrator.plan.rankfile import Gate
from tests.agent.rig import LocalGang

TWINS = ("rocep1s0f0", "roceP2p1s0f0")
PREFIX = "(RayWorkerWrapper pid=311, ip=192.168.100.12) spark-2:311:402 [0] NCCL INFO "
USING = f"{PREFIX}NET/IB : Using [0]rocep1s0f0:1/RoCE [1]roceP2p1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.12<0>"
HALF = f"{PREFIX}NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.12<0>"
MERGED = f"{PREFIX}NET/IB : Made virtual device [2] name=rocep1s0f0+roceP2p1s0f0 speed=400000 ndevs=2"
IB = f"{PREFIX}Using network IB"
SOCKET = f"{PREFIX}Using network Socket"
CHANNEL = f"{PREFIX}Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"
OTHER = ("INFO 11-30 09:38:55 [core.py:1] Loading weights", "a line about Sockets and IB", "")


def opened(*lines: str, moved: int | None = 1000) -> tuple[bool | None, str]:
    sent = None if moved is None else dict.fromkeys(TWINS, moved // 2)
    found = gate(TWINS, heard(Said(), [*OTHER, *lines, *OTHER]), sent)
    assert found.name == "transport"
    return found.open, found.saw


def test_both_halves_of_the_port_merged_and_no_word_of_gpudirect_is_healthy() -> None:
    assert opened(USING, MERGED, IB, CHANNEL, moved=12_300_000) == (
        True,
        "IB on rocep1s0f0, roceP2p1s0f0 (merged), 12.3 MB sent",
    )
    assert opened(USING, IB, moved=None) == (True, "IB on rocep1s0f0, roceP2p1s0f0")


def test_sockets_are_not_ready_and_say_why() -> None:
    open_, saw = opened(SOCKET)
    assert open_ is False
    assert saw.startswith("NCCL uses sockets, not rocep1s0f0, roceP2p1s0f0")
    assert opened(SOCKET, IB)[0] is False  # one communicator of several
    assert opened(USING, IB, CHANNEL.replace("NET/IB/0", "NET/Socket/0"))[0] is False


def test_one_half_of_the_port_is_not_what_was_planned() -> None:
    assert opened(HALF, IB) == (False, "NCCL uses rocep1s0f0 only, without roceP2p1s0f0")


def test_no_device_in_the_container() -> None:
    open_, saw = opened(f"{PREFIX}NET/IB : No device found.")
    assert (open_, "should be in the container" in saw) == (False, True)


@pytest.mark.parametrize(("lines", "moved"), [((), 1000), ((USING, IB), 0)])
def test_before_anything_was_said_or_sent_it_is_unknown(lines: tuple[str, ...], moved: int) -> None:
    assert opened(*lines, moved=moved)[0] is None


def counters(root: Path, words: int, devices: tuple[str, ...] = TWINS) -> None:
    for device in devices:
        folder = root / device / "ports" / "1" / "counters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "port_xmit_data").write_text(f"{words}\n")


def test_an_idle_twin_is_named_and_shuts_nothing() -> None:
    found = gate(TWINS, heard(Said(), [USING, IB]), {TWINS[0]: 4_000_000, TWINS[1]: 0}, " across a completion")
    assert found == Gate(
        "transport",
        True,
        "IB on rocep1s0f0, roceP2p1s0f0, 4.0 MB sent across a completion; nothing over roceP2p1s0f0",
    )


def test_what_the_ranks_sent_to_meet_is_no_proof_of_a_completion(tmp_path: Path) -> None:
    counters(tmp_path / "sys", 0)
    log = tmp_path / "engine.log"
    log.write_text(f"{USING}\n{IB}\n")
    ear = Ear(TWINS, tmp_path / "sys")
    counters(tmp_path / "sys", 5_000_000)  # the handshake
    ear.listen([log])
    assert ear.gate_across(None).open is None
    assert ear.gate().open is None
    before = sent(TWINS, tmp_path / "sys")
    counters(tmp_path / "sys", 5_250_000, TWINS[:1])
    across = moved(before, sent(TWINS, tmp_path / "sys"))
    assert across == {TWINS[0]: 1_000_000, TWINS[1]: 0}
    assert ear.gate_across(across).open is True
    assert ear.gate_across(across).saw.endswith("1.0 MB sent across a completion; nothing over roceP2p1s0f0")


def test_counters_that_cannot_be_read_leave_the_word_to_nccl(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{USING}\n{IB}\n")
    ear = Ear(TWINS, tmp_path / "nothing")
    ear.listen([log])
    assert (sent(TWINS, tmp_path / "nothing"), moved(None, {})) == (None, None)
    assert ear.gate_across(None) == Gate("transport", True, "IB on rocep1s0f0, roceP2p1s0f0")


def test_an_ear_reads_what_is_new_in_whole_lines_and_counts_from_when_nccl_spoke(tmp_path: Path) -> None:
    counters(tmp_path / "sys", 1_000_000)
    log = tmp_path / "engine.log"
    ear = Ear(TWINS, tmp_path / "sys")
    ear.listen([log, tmp_path / "not-there.log"])
    assert ear.gate().open is None
    log.write_text(f"{USING}\n{IB[:-9]}")
    ear.listen([log])
    assert (ear.said.devices, ear.said.network) == (TWINS, "")
    log.write_text(f"{USING}\n{IB}\n")
    ear.listen([log])
    assert ear.gate().saw.endswith("the devices have not sent a byte yet")
    counters(tmp_path / "sys", 1_250_000)
    assert ear.gate().saw == "IB on rocep1s0f0, roceP2p1s0f0, 2.0 MB sent"


def test_an_ear_stops_reading_a_log_that_goes_on_for_ever(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"x\n" * (READ_BYTES // 2) + SOCKET.encode() + b"\n")
    ear = Ear(TWINS, tmp_path)
    ear.listen([log])
    ear.listen([log])
    assert ear.said == Said()


def speak(gang: LocalGang, rank: int, *lines: str) -> None:
    """Have the rank's first daemon say ``lines``, and the plan expect one RDMA device that this machine lacks."""
    plan = gang.plans[rank]
    first, *rest = plan.steps
    said = "".join(f"echo '{line}'; " for line in lines)
    spoken = replace(first, argv=(*first.argv[:-1], said + first.argv[-1]))
    gang.plans[rank] = replace(plan, rdma=("rocep1s0f0",), steps=(spoken, *rest))


def test_a_gang_whose_ranks_all_took_the_fabric_is_ready(gang_of: Callable[..., LocalGang]) -> None:
    gang = gang_of()
    for rank in range(2):
        speak(gang, rank, HALF, IB)
    gang.start()
    gates = {gate.name: gate for gate in gang.wait_ready(1).gates}
    assert gates["transport"] == Gate("transport", True, "IB on rocep1s0f0")


def test_one_rank_on_sockets_keeps_the_service_closed_and_is_named(gang_of: Callable[..., LocalGang]) -> None:
    gang = gang_of()
    speak(gang, 0, HALF, IB)
    speak(gang, 1, SOCKET)
    gang.start()
    gang.wait(0, lambda found: any(gate.name == "completion" and gate.open for gate in found.gates))
    status = gang.wait(0, lambda found: any("NCCL uses" in gate.saw for gate in found.gates))
    assert not status.ready
    ranks = next(gate for gate in status.gates if gate.name == "ranks")
    assert ranks.open is False
    assert ranks.saw == "rank 1 (node-1) transport: NCCL uses sockets, not rocep1s0f0: a tenth of the speed at best"
    assert gang.check().startswith("down")
