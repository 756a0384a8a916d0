"""Whether NCCL really took the fabric: its own words in the logs of one attempt, and bytes that devices counted.

Formats are those of NCCL 2.30.7 (init.cc, net_ib/init.cc, transport/net.cc), at NCCL_DEBUG=INFO for INIT and NET. On a
GB10 there is no GPUDirect RDMA, so a healthy line says ``via NET/IB/0`` and nothing about GDRDMA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.plan.rankfile import Gate

SYS = Path("/sys/class/infiniband")
READ_BYTES = 32 * 2**20
"""NCCL speaks while it connects; what comes after this much log of one file is serving and is not read."""

_NETWORK = re.compile(r"NCCL INFO (?:Using network|Initialized NET plugin) (\w+)")
_DEVICES = re.compile(r"NET/IB : Using ((?:\[\d+\]\S+ ?)+)")
_DEVICE = re.compile(r"\[\d+\]([^\s:]+)")
_MERGED = re.compile(r"NET/IB : Made virtual device \[\d+\] name=\S+ speed=\d+ ndevs=([2-9])")
_SOCKET = re.compile(r"via NET/Socket|NET/Socket : Using")
_NONE = "NET/IB : No device found"


@dataclass(frozen=True, slots=True)
class Said:
    """What NCCL told so far. ``network`` is its word, ``IB`` or ``Socket``; ``merged`` is several ports as one."""

    network: str = ""
    devices: tuple[str, ...] = ()
    merged: bool = False
    sockets: bool = False
    none: bool = False


def heard(said: Said, lines: Iterable[str]) -> Said:
    """``said`` and what ``lines`` add to it. One communicator on sockets outweighs all that are not."""
    for line in lines:
        if "NCCL" not in line and "NET/" not in line:
            continue
        if match := _NETWORK.search(line):
            said = replace(said, network=said.network if said.network == "Socket" else match[1])
        if match := _DEVICES.search(line):
            said = replace(said, devices=tuple(dict.fromkeys((*said.devices, *_DEVICE.findall(match[1])))))
        if _MERGED.search(line):
            said = replace(said, merged=True)
        if _SOCKET.search(line):
            said = replace(said, sockets=True)
        if _NONE in line:
            said = replace(said, none=True)
    return said


def sent(devices: Sequence[str], root: Path = SYS) -> Mapping[str, int] | None:
    """Bytes that each device has sent so far (port_xmit_data counts words of four bytes); None if unreadable."""
    found = {}
    for device in devices:
        try:
            found[device] = int((root / device / "ports" / "1" / "counters" / "port_xmit_data").read_text()) * 4
        except (OSError, ValueError):
            return None
    return found


def moved(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """What each device sent between two looks; None where either could not be had."""
    if before is None or after is None:
        return None
    return {device: count - before.get(device, 0) for device, count in after.items()}


def gate(planned: Sequence[str], said: Said, moved: Mapping[str, int] | None, during: str = "") -> Gate:
    """The gate ``transport`` of a rank that is planned on RDMA ``planned``.

    ``moved`` is what each of those devices sent ``during`` something, None where the counters cannot be read. A device
    that sent nothing is named and keeps no gate shut: NCCL may send a short message over one of two.
    """
    if said.none:
        return Gate("transport", False, f"NCCL found no RDMA device; {', '.join(planned)} should be in the container")
    if said.network == "Socket" or (said.sockets and said.network != "IB"):
        return Gate("transport", False, f"NCCL uses sockets, not {', '.join(planned)}: a tenth of the speed at best")
    if not said.network:
        return Gate("transport", None, "NCCL has said nothing of its network yet")
    lacking = [device for device in planned if said.devices and device not in said.devices]
    if lacking:
        return Gate("transport", False, f"NCCL uses {', '.join(said.devices)} only, without {', '.join(lacking)}")
    if said.sockets:
        return Gate("transport", False, "NCCL uses IB, and sockets for a channel: look for `via NET/Socket` in the log")
    on = ", ".join(said.devices or planned)
    if moved is not None and not any(moved.values()):
        return Gate(
            "transport", None, f"NCCL says {said.network} on {on}; the devices have not sent a byte yet{during}"
        )
    told = "" if moved is None else f", {sum(moved.values()) / 1e6:.1f} MB sent{during}"
    idle = ", ".join(device for device, count in (moved or {}).items() if not count)
    told += f"; nothing over {idle}" if idle else ""
    return Gate("transport", True, f"{said.network} on {on}{' (merged)' if said.merged else ''}{told}")


class Ear:
    """Reads the logs of one attempt as they grow, and the devices' counters. Never fails for what it cannot read."""

    def __init__(self, planned: Sequence[str], sys_root: Path = SYS) -> None:
        self.planned, self.said = tuple(planned), Said()
        self._sys, self._read = sys_root, dict[Path, int]()
        self._before = self.sent()

    def listen(self, logs: Iterable[Path]) -> None:
        before = self.said.network
        for path in logs:
            self.said = heard(self.said, self._fresh(path))
        if self.said.network != before:
            # What went before is how NCCL's ranks met, and no work of theirs.
            self._before = self.sent()

    def gate(self) -> Gate:
        """By what was sent since NCCL chose its network: of a rank that asks for no completion itself."""
        return gate(self.planned, self.said, moved(self._before, self.sent()))

    def gate_across(self, completion: Mapping[str, int] | None) -> Gate:
        """By what was sent across a completion; without one nothing is proven, however much the ranks have met."""
        across = dict.fromkeys(self.planned, 0) if completion is None and self.sent() is not None else completion
        return gate(self.planned, self.said, across, " across a completion")

    def sent(self) -> Mapping[str, int] | None:
        return sent(self.planned, self._sys)

    def _fresh(self, path: Path) -> list[str]:
        """Whole lines that came since the last look, up to ``READ_BYTES`` of a file."""
        begin = self._read.get(path, 0)
        if begin >= READ_BYTES:
            return []
        try:
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read(READ_BYTES - begin)
        except OSError:
            return []
        whole = data.rpartition(b"\n")[0]
        self._read[path] = begin + (len(whole) + 1 if whole else 0)
        return whole.decode(errors="replace").split("\n") if whole else []
