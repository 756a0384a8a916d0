"""The pure parser of what a node answers to ``detail_question``. Healthy answers look odd, and none is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.facts import ports, reach
from orchestrator.facts.detail import Disk, Gpu, Holder, ImageInside, Memory, NodeDetail
from orchestrator.facts.node import UnreadableFactsError, sections

# Units that end what holds much memory, as far as public reports name them; a rule asks for each. Any other is of no
# interest.
_MATTER = re.compile(r"(earlyoom|dgx-anti-oom)\.service")


def parse(node: str, text: str, operator_now: float) -> NodeDetail:
    """Turn a node's answer into details. ``operator_now`` is the operator's Unix time when the node was asked.

    The clock offset therefore also holds the time until the script began (a login takes some tenths of a second): good
    for finding clocks that are seconds apart. Raises ``UnreadableFactsError`` with what was there instead.
    """
    answer = sections(text)
    ident = answer.get("ident", [])
    if "end" not in answer or len(ident) < 5:
        raise UnreadableFactsError(f"should have answered our question, found {text.strip()[:120]!r}")
    netdevs = ports.netdevs(answer["netdevs"], ports.addresses("".join(answer["addresses"])))
    rdma = ports.rdma_devices(answer["rdma"], netdevs)
    return NodeDetail(
        node=node,
        kernel=ident[2],
        os_name=_os_name(answer["os"]),
        memory=_memory(answer["memory"]),
        netdevs=netdevs or None,
        rdma=rdma,
        routes=_routes(answer["routes"]),
        pings=_pings(answer["pings"]),
        gpu=_gpu(answer["gpu"]),
        images=tuple(_images(answer["images"])),
        disks=tuple(_disks(answer["disks"])),
        services=_services(answer["services"]),
        clock_offset_s=_clock(answer["clock"], operator_now),
        runtimes=tuple(line.strip() for line in answer["runtimes"]) or None,
        hostname=ident[0],
        arch=ident[1],
        user=ident[3],
        reached_at=_reached_at(ident[4]),
        holders=tuple(_holders(answer["holders"])),
    )


def _reached_at(connection: str) -> str:
    """The third word of sshd's ``SSH_CONNECTION``: client, its port, server, its port."""
    words = connection.split()
    return words[2] if len(words) == 4 else ""


def _os_name(lines: list[str]) -> str:
    said = dict(line.split("=", 1) for line in lines if "=" in line)
    return (said.get("PRETTY_NAME") or said.get("NAME") or "").strip("\"'")


def _clock(lines: list[str], operator_now: float) -> float | None:
    match = re.match(r"\d+(\.\d+)?", lines[0]) if lines else None  # a date without %N leaves the letter there
    return float(match[0]) - operator_now if match else None


def _memory(lines: list[str]) -> Memory | None:
    rows = (re.match(r"(\w+):\s+(\d+) kB", line) for line in lines)
    said = {row[1]: int(row[2]) * 1024 for row in rows if row}
    if not {"MemTotal", "MemAvailable", "MemFree", "Cached"} <= said.keys():
        return None
    return Memory(
        total=said["MemTotal"],
        available=said["MemAvailable"],
        free=said["MemFree"],
        cached=said["Cached"],
        swap_total=said.get("SwapTotal", 0),
        swap_free=said.get("SwapFree", 0),
        cma_total=said.get("CmaTotal"),
    )


def _gpu(lines: list[str]) -> Gpu | None:
    """The first GPU; a line without three fields is the tool's excuse (it prints those on standard output)."""
    for line in lines:
        fields = [_told(field) for field in line.split(",")]
        if len(fields) == 3:
            power = re.fullmatch(r"\d+(\.\d+)?", fields[2])
            return Gpu(fields[0], fields[1], float(power[0]) if power else None)
    return None


def _told(field: str) -> str:
    field = field.strip()
    return "" if field.strip("[]").lower() in {"n/a", "not supported", "unknown error", "not found"} else field


def _images(lines: list[str]) -> list[ImageInside]:
    found = []
    for name, said in _by_name(lines):
        config = said.get("Config") or {}
        env = (each.partition("=") for each in config.get("Env") or ())
        layers = (said.get("RootFS") or {}).get("Layers") or ()
        found.append(
            ImageInside(
                name,
                image_id=str(said.get("Id", "")),
                digests=tuple(said.get("RepoDigests") or ()),
                layers=tuple(layers),
                architecture=str(said.get("Architecture", "")),
                env={key: value for key, _, value in env},
                labels=dict(config.get("Labels") or {}),
            )
        )
    return found


def _holders(lines: list[str]) -> list[Holder]:
    """``memory|gpu PID SIZE USER CONTAINER NAME``: resident KiB by ps, MiB by nvidia-smi. One row for each process."""
    found: dict[int, Holder] = {}
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[1].isdigit():
            continue
        kind, pid, size, user, container, name = fields
        unit = 1024**2 if kind == "gpu" else 1024
        seen = Holder(
            int(pid),
            name,
            user.strip("-"),
            int(size) * unit if size.isdigit() else None,
            container.strip("-"),
            on_gpu=kind == "gpu",
        )
        old = found.get(seen.pid)
        sizes = [each.size for each in (old, seen) if each and each.size is not None]
        found[seen.pid] = replace(
            old or seen, size=max(sizes, default=None), on_gpu=seen.on_gpu or bool(old and old.on_gpu)
        )
    return list(found.values())


def _by_name(lines: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """``NAME<tab>{json}`` lines; docker prints an empty line or ``null`` for what it does not have."""
    found = []
    for line in lines:
        name, _, text = line.partition("\t")
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append((name, value))
    return found


def _disks(lines: list[str]) -> list[Disk]:
    """``PATH<tab>`` and a row of ``df -PTB1``, read from the right: a source or a mount point may hold blanks."""
    found = []
    for line in lines:
        path, _, row = line.partition("\t")
        match = re.search(r"(\S+)\s+\d+\s+\d+\s+(\d+)\s+(?:\d+%|-)\s+/", row)
        if match:
            found.append(Disk(path, int(match[2]), match[1]))
    return found


def _routes(lines: list[str]) -> Mapping[str, str]:
    found = {}
    for line in lines:
        address, _, text = line.partition("\t")
        netdev = next((row["dev"] for row in ports.json_rows(text) if row.get("dev")), "")
        if netdev:
            found[address] = str(netdev)
    return found


def _pings(lines: list[str]) -> dict[tuple[str, int], bool]:
    """By address and payload bytes; asked out of two netdevs, both must have come back."""
    found: dict[tuple[str, int], bool] = {}
    for ping, came in reach.answers(lines).items():
        found[ping.address, ping.size] = came and found.get((ping.address, ping.size), True)
    return found


def _services(lines: list[str]) -> frozenset[str] | None:
    """Names without ``.service``; None where there is no systemd to ask."""
    units = [line.split()[0] for line in lines]
    running = {unit.removesuffix(".service") for unit in units if _MATTER.fullmatch(unit)}
    return frozenset(running) if any(unit.endswith(".service") for unit in units) else None
