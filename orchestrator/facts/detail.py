"""What the doctor wants to know of a node beside ``NodeFacts``: fabric, memory, versions, images. Values only.

None and empty mean "the node did not tell", never "it is not there"; a rule that needs such a value answers unknown.
Sizes are bytes, speeds Mbit/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Netdev:
    """A network interface. ``port`` names the physical port; twins (two PCIe functions of one port) share it.

    ``addresses`` are IPv4 with prefix length, such as ``192.168.100.11/24``. ``wireless`` is by sysfs, not by name.
    ``up`` is a link that carries; ``enabled`` is what an operator set (``ip link set up``), None where nobody told.
    """

    name: str
    up: bool
    mtu: int | None = None
    speed_mbit: int | None = None
    addresses: tuple[str, ...] = ()
    port: str = ""
    driver: str = ""
    wireless: bool = False
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class Gid:
    """One row of an RDMA device's GID table, as sysfs writes it; ``kind`` is ``RoCE v2`` or ``IB/RoCE v1``."""

    index: int
    value: str
    kind: str
    netdev: str = ""


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device and the netdev it belongs to. ``state`` is sysfs' word, such as ``ACTIVE`` or ``DOWN``."""

    name: str
    netdev: str
    state: str
    port: str = ""
    rate_gbit: int | None = None
    firmware: str = ""
    gids: tuple[Gid, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memory:
    """Rows of /proc/meminfo. nvidia-smi says N/A for memory on a Spark, so nothing here comes from it."""

    total: int
    available: int
    free: int
    cached: int
    swap_total: int = 0
    swap_free: int = 0
    cma_total: int | None = None


@dataclass(frozen=True, slots=True)
class ImageInside:
    """An image on a node, as docker and a look inside tell. ``layers`` are diff ids, equal whatever stores them."""

    name: str
    image_id: str = ""
    digests: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    architecture: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    nccl_sha256: str = ""
    nccl_version: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What nvidia-smi says; ``driver`` is its version. A field that it answers with N/A is empty."""

    name: str = ""
    driver: str = ""
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds much memory: resident, or the GPU's by nvidia-smi where that answers (then ``on_gpu``).

    ``container`` is the id of the container that it runs in, empty for none.
    """

    pid: int
    name: str
    user: str
    size: int | None
    container: str = ""
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """The filesystem that holds ``path``."""

    path: str
    free: int
    filesystem: str = ""


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """One node's answers to the doctor's question.

    ``services`` are units of systemd that run and that a rule asks for (earlyoom, dgx-anti-oom). ``routes`` maps an
    address of another node to the netdev that the kernel would take to it. ``pings`` maps (address, bytes) to whether a
    ping with the don't-fragment bit came back. ``clock_offset_s`` is the node's clock less the operator's.
    ``reached_at`` is the node's own address that the operator's SSH came in at; empty where it was reached without SSH.
    ``measured_gbit`` maps an RDMA device or netdev to what a test of bandwidth moved over it. ``model_files`` maps
    a planned model to the paths below its directory with their sizes in bytes, none when the directory is not there;
    a model that nobody looked for is not in it.
    """

    node: str
    kernel: str = ""
    os_name: str = ""
    memory: Memory | None = None
    netdevs: tuple[Netdev, ...] | None = None
    rdma: tuple[RdmaDevice, ...] | None = None
    routes: Mapping[str, str] = field(default_factory=dict)
    pings: Mapping[tuple[str, int], bool] = field(default_factory=dict)
    gpu: Gpu | None = None
    images: tuple[ImageInside, ...] = ()
    disks: tuple[Disk, ...] = ()
    services: frozenset[str] | None = None
    clock_offset_s: float | None = None
    runtimes: tuple[str, ...] | None = None
    hostname: str = ""
    arch: str = ""
    user: str = ""
    reached_at: str = ""
    measured_gbit: Mapping[str, float] = field(default_factory=dict)
    model_files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()
