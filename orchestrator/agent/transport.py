"""Whether NCCL really took the fabric: its own words in the logs of one attempt, and bytes that devices counted.

Formats are those of NCCL 2.30.7 (init.cc, net_ib/init.cc, transport/net.cc), at NCCL_DEBUG=INFO for INIT and NET. On a
GB10 there is no GPUDirect RDMA, so a healthy line says ``via NET/IB/0`` and nothing about GDRDMA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.plan.rankfile import Gate

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


def gate(planned: Sequence[str], said: Said, moved_bytes: int | None) -> Gate:
    """The gate ``transport`` of a rank that is planned on RDMA ``planned``.

    ``moved_bytes`` is what those devices sent since the attempt began, None where the counters cannot be read.
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
    if moved_bytes == 0:
        return Gate("transport", None, f"NCCL says {said.network} on {on}; the devices have not sent a byte yet")
    sent = "" if moved_bytes is None else f", {moved_bytes / 1e6:.1f} MB sent"
    return Gate("transport", True, f"{said.network} on {on}{' (merged)' if said.merged else ''}{sent}")


class Ear:
    """Reads the logs of one attempt as they grow, and the devices' counters. Never fails for what it cannot read."""

    def __init__(self, planned: Sequence[str], sys_root: Path = Path("/sys/class/infiniband")) -> None:
        self.planned, self.said = tuple(planned), Said()
        self._sys, self._read = sys_root, dict[Path, int]()
        self._at_start = self.sent()

    def listen(self, logs: Iterable[Path]) -> None:
        for path in logs:
            self.said = heard(self.said, self._fresh(path))

    def gate(self) -> Gate:
        now = self.sent()
        moved = None if now is None or self._at_start is None else now - self._at_start
        return gate(self.planned, self.said, moved)

    def sent(self) -> int | None:
        """Bytes that the planned devices have sent; port_xmit_data counts in words of four bytes."""
        words = 0
        for device in self.planned:
            try:
                words += int((self._sys / device / "ports" / "1" / "counters" / "port_xmit_data").read_text())
            except (OSError, ValueError):
                return None
        return words * 4

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
