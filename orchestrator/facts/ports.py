"""Netdevs and RDMA devices out of what sysfs says, grouped by the physical port that they belong to.

A ConnectX-7 port of a GB10 machine is two PCIe functions, one on each of two x4 links, and so two netdevs and two RDMA
devices ("twins"): ``0000:01:00.0`` and ``0002:01:00.0`` are port p0 (NVIDIA/daqiri#108, NVIDIA/NemoClaw#8520). Makers
name netdevs differently, so a port is never told by a name:

1. The same ``phys_switch_id`` and ``phys_port_name``. The mlx5 driver answers with the adapter's system image GUID and
   with ``p`` and the function number (Linux, drivers/net/ethernet/mellanox/mlx5/core/en/devlink.c).
2. Where a kernel does not say, the same driver at the same PCI address but for the domain. The driver counts, because
   the RJ45 socket and the Wi-Fi of a GB10 machine also sit at ``01:00.0`` of domains of their own.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.facts.detail import Gid, Netdev, RdmaDevice

Rows = list[tuple[str, str]]

_PCI = re.compile(r"[0-9a-f]{4,8}:([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def netdevs(lines: Iterable[str], addresses: Mapping[str, tuple[str, ...]]) -> tuple[Netdev, ...]:
    """Blocks of ``netdev NAME`` and ``key value`` lines, with the addresses of each name."""
    said = {name: dict(rows) for name, rows in blocks("netdev", lines)}
    port = physical_ports(said)
    return tuple(_netdev(name, rows, addresses.get(name, ()), port[name]) for name, rows in said.items())


def rdma_devices(lines: Iterable[str], of: Iterable[Netdev]) -> tuple[RdmaDevice, ...]:
    """Blocks of ``rdma NAME`` and ``key value`` lines; a device has the port of its netdev."""
    port = {each.name: each.port for each in of}
    found = (_rdma(name, rows) for name, rows in blocks("rdma", lines))
    return tuple(replace(each, port=port.get(each.netdev, "")) for each in found)


def addresses(text: str) -> dict[str, tuple[str, ...]]:
    """IPv4 addresses with prefix length by netdev, out of ``ip -j addr``; empty when that is not what it is."""
    rows = (row for row in json_rows(text) if "ifname" in row)
    return {str(row["ifname"]): tuple(filter(None, map(_ipv4, row.get("addr_info", ())))) for row in rows}


def _ipv4(row: Mapping[str, Any]) -> str:
    try:
        return str(ipaddress.IPv4Interface(f"{row['local']}/{row.get('prefixlen', 32)}"))
    except (KeyError, ValueError):  # IPv6, or a row that a filter emptied
        return ""


def json_rows(text: str) -> list[dict[str, Any]]:
    """The objects of a JSON list, such as ``ip -j`` prints; nothing where a tool printed something else."""
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def physical_ports(said: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The physical port of each netdev, empty for what has none (bridges, veth, USB).

    ``said`` holds sysfs' words by netdev: ``device``, ``driver``, ``phys_switch_id``, ``phys_port_name``. If one of two
    functions at the same place has no switch id, neither counts by it: half an answer must not part twins.
    """
    place = {name: _place(rows) for name, rows in said.items()}
    switch = {name: _switch_port(rows) for name, rows in said.items()}
    halves = {place[name] for name in said if place[name] and not switch[name]}
    return {name: place[name] if place[name] in halves else switch[name] or place[name] for name in said}


def _place(said: Mapping[str, str]) -> str:
    match = _PCI.fullmatch(said.get("device", ""))
    return f"{said.get('driver', '')} {match[1]}".strip() if match else ""


def _switch_port(said: Mapping[str, str]) -> str:
    switch, name = said.get("phys_switch_id", ""), said.get("phys_port_name", "")
    return f"{switch} {name}" if switch and name else ""


def blocks(word: str, lines: Iterable[str]) -> list[tuple[str, Rows]]:
    """(name, rows of key and value) for each block that a line ``word NAME`` opens."""
    found: list[tuple[str, Rows]] = []
    for line in lines:
        key, _, value = line.partition(" ")
        if key == word:
            found.append((value.strip(), []))
        elif found:
            found[-1][1].append((key, value.strip()))
    return found


def _netdev(name: str, said: Mapping[str, str], has: tuple[str, ...], port: str) -> Netdev:
    state = said.get("operstate", "")
    speed = _number(said.get("speed", ""))
    return Netdev(
        name,
        # Drivers that do not report a state (loopback, tunnels) say "unknown" for ever; the carrier is then the answer.
        up=state == "up" or (state == "unknown" and said.get("carrier") == "1"),
        mtu=_number(said.get("mtu", "")),
        # -1, and 4294967295 on older kernels, is how sysfs says that there is no speed to tell.
        speed_mbit=speed if speed is not None and 0 < speed < 2**32 - 1 else None,
        addresses=has,
        port=port,
        driver=said.get("driver", ""),
        wireless=said.get("wireless") == "yes",
        enabled=_is_set(said.get("flags", "")),
    )


def _rdma(name: str, rows: Rows) -> RdmaDevice:
    said = dict(rows)
    gids = sorted(filter(None, (_gid(value) for key, value in rows if key == "gid")), key=lambda each: each.index)
    own = [value for key, value in rows if key == "net"]
    named = {each.netdev for each in gids}
    rate = re.match(r"\d+", said.get("rate", ""))
    counted = (value.split() for key, value in rows if key == "counter")
    return RdmaDevice(
        name,
        # With virtual functions a device has several netdevs; the one that its GIDs name is its own.
        netdev=next((each for each in own if each in named), own[0] if own else ""),
        state=said.get("state", "").partition(":")[2].strip(),
        rate_gbit=int(rate[0]) if rate else None,
        firmware=said.get("firmware", ""),
        gids=tuple(gids),
        counters={row[0]: int(row[1]) for row in counted if len(row) == 2 and row[1].isdigit()},
    )


def _gid(row: str) -> Gid | None:
    """``INDEX VALUE NETDEV TYPE``; the type has a blank in it, and a dash stands for a netdev that is not told."""
    match = re.fullmatch(r"(\d+) ([0-9a-f:]+) (\S+) ?(.*)", row)
    return Gid(int(match[1]), match[2], match[4], "" if match[3] == "-" else match[3]) if match else None


def _is_set(flags: str) -> bool | None:
    """IFF_UP, the lowest bit of the flags (Linux, include/uapi/linux/if.h); None where sysfs did not tell."""
    return bool(int(flags, 16) & 1) if re.fullmatch(r"0x[0-9a-f]+", flags) else None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None
