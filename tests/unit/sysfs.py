"""A sysfs tree as a GB10 machine shows it, built in a folder, and tools that answer what was captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SWITCH = "38a3e50003cee09c"
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


@dataclass(frozen=True)
class Nic:
    """One PCI function. ``rdma`` names its RDMA device; ``switch`` is what the kernel says of its port, if it does."""

    netdev: str
    pci: str
    driver: str = "mlx5_core"
    rdma: str = ""
    switch: str = SWITCH
    up: bool = True
    speed: str = "200000"
    mtu: str = "9000"
    wireless: bool = False
    ipv4_gid: str = "c0a8:640b"
    enabled: bool = True


def gb10(*, switch: str = SWITCH, names: str = "enp1s0f{0}np{0} enP2p1s0f{0}np{0}") -> tuple[Nic, ...]:
    """Two ports of two functions, a cable in the first; and the RJ45 socket and the Wi-Fi, also at 01:00.0."""
    one, two = names.split()
    ports = [
        Nic(name.format(port), f"{domain}:01:00.{port}", rdma=rdma.format(port), switch=switch, up=port == 0)
        for port in (0, 1)
        for name, domain, rdma in ((one, "0000", "rocep1s0f{0}"), (two, "0002", "roceP2p1s0f{0}"))
    ]
    rj45 = Nic("enP7s7", "0007:01:00.0", driver="r8127", switch="", speed="1000", mtu="1500")
    wifi = Nic("wlP9s9", "0009:01:00.0", driver="mt7925e", switch="", speed="", mtu="1500", wireless=True)
    return (*ports, rj45, wifi)


def build(root: Path, nics: tuple[Nic, ...]) -> None:
    """Write ``sys``, ``proc`` and ``etc`` under ``root``."""
    for nic in nics:
        _netdev(root, nic)
        if nic.rdma:
            _rdma(root, nic)
    _write(root, "sys/class/net/lo", {"operstate": "unknown", "carrier": "1", "mtu": "65536"})
    _write(root, "sys/class/net", {"bonding_masters": ""})
    _write(root, "etc", {"os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"'})
    rows = {"MemTotal": 127601452, "MemFree": 90000000, "MemAvailable": 121280000, "Buffers": 5, "Cached": 30000000}
    rows |= {"SwapCached": 1, "SwapTotal": 16777212, "SwapFree": 16777212, "CmaTotal": 65536}
    _write(root, "proc", {"meminfo": "".join(f"{key + ':':<16}{value:>9} kB\n" for key, value in rows.items())})


def tools(folder: Path, answers: Mapping[str, str]) -> None:
    """Programs that print what was captured, and nothing when asked for something else."""
    folder.mkdir(exist_ok=True)
    for name, script in answers.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


def _netdev(root: Path, nic: Nic) -> None:
    device = root / "sys/devices/pci" / nic.pci
    driver = root / "sys/bus/pci/drivers" / nic.driver
    driver.mkdir(parents=True, exist_ok=True)
    net = device / "net" / nic.netdev
    says = {"operstate": "up" if nic.up else "down", "mtu": nic.mtu, "flags": "0x1003" if nic.enabled else "0x1002"}
    says |= {"speed": nic.speed if nic.up else "-1"} if nic.speed else {}
    says |= {"phys_switch_id": nic.switch, "phys_port_name": f"p{nic.pci[-1]}"} if nic.switch else {}
    _write(root, str(net.relative_to(root)), says)
    if nic.wireless:
        (net / "phy80211").mkdir()
    (device / "driver").symlink_to(driver)
    (net / "device").symlink_to(device)
    (root / "sys/class/net").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/net" / nic.netdev).symlink_to(net)


def _rdma(root: Path, nic: Nic) -> None:
    device = root / "sys/devices/pci" / nic.pci
    own = device / "infiniband" / nic.rdma
    port = str((own / "ports/1").relative_to(root))
    state = "4: ACTIVE" if nic.up else "1: DOWN"
    _write(root, port, {"state": state, "rate": "200 Gb/sec (2X NDR)"})
    _write(root, str(own.relative_to(root)), {"fw_ver": "28.45.4028"})
    link_local = "fe80:0000:0000:0000:3aa3:e5ff:fece:e09c"
    mapped = f"0000:0000:0000:0000:0000:ffff:{nic.ipv4_gid}"
    values = [link_local, link_local, *([mapped, mapped] if nic.up else [])]
    values += [NO_GID] * (12 - len(values))
    used = [value != NO_GID for value in values]
    kinds = ["IB/RoCE v1", "RoCE v2"] * 6
    _write(root, f"{port}/gids", {str(index): value for index, value in enumerate(values)})
    _write(root, f"{port}/gid_attrs/types", {str(i): kinds[i] for i in range(12) if used[i]})
    _write(root, f"{port}/gid_attrs/ndevs", {str(i): nic.netdev for i in range(12) if used[i]})
    _write(root, f"{port}/hw_counters", {"out_of_sequence": "3", "local_ack_timeout_err": "0", "lifespan": "10"})
    (own / "device").symlink_to(device)
    (root / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/infiniband" / nic.rdma).symlink_to(own)


def _write(root: Path, folder: str, files: Mapping[str, str]) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / folder / name).write_text(f"{text}\n")
