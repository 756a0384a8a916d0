"""The RDMA bandwidth of each rail by itself: who writes to whom, what runs there, and what its words mean. Pure.

``ib_write_bw`` of linux-rdma/perftest, in the pinned image where that has it, else the node's own; neither GPU nor more
memory than a few messages. What it is told was checked against perftest 4.5 and its source: ``-d`` is the device,
``-s`` the size, ``-D`` the seconds, a quarter of them left out at each end; both ends must be told the same. ``-F``
keeps quiet about CPU clocks. Without ``-x`` it takes the RoCE v2 GID of the device's IPv4 address by itself. It listens
on every address for as long as a run lasts: the option for one has no name that all versions know.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from orchestrator.plan import network, runtime
from orchestrator.plan.launch import Unit
from orchestrator.spec.cluster import Node, Rail

TOOL = "ib_write_bw"
SECONDS = 4
DEADLINE_S = 30
OVERDUE = f"it did not end within {DEADLINE_S} s"

# Prints where the tool is: in the image, on the node, both or nowhere.
LOOK = f'"$@" >/dev/null 2>&1 && echo image; command -v {TOOL} >/dev/null 2>&1 && echo node; true'
# The other end may listen a moment later. Nothing but a refused connection is tried again.
RETRY = """\
for turn in $(seq 20); do
  said=$("$0" "$@" 2>&1); code=$?
  case $said in *"Couldn't connect"*) sleep 0.5 ;; *) break ;; esac
done
printf '%s\\n' "$said"; exit $code
"""

# Words of perftest and what to look at; the first that was said is the cause of those below.
CAUSES = (
    ("Unable to find the Infiniband/RoCE device", "compare ibdev2netdev on both nodes with rails in cluster.yaml"),
    ("Failed to modify QP", "look at address and GID of {netdev} on both nodes: sparkctl doctor"),
    ("Failed status", "packets are lost: look at the MTU of both ends and of the switch, then at the cable"),
    ("Couldn't listen to port", "see what listens there: ss -ltnp"),
    ("Couldn't connect to", "see whether {address} answers a ping, and open the port in the firewall of {node}"),
    (OVERDUE, "look at {netdev} on both nodes: sparkctl doctor"),
)
# NVIDIA's check-connectx-bandwidth calls 8 to 25 Gbit/s over a whole link an adapter that started degraded.
DEGRADED_BYTES_S = 25e9 / 8
DEGRADED = "shut both nodes down, take their power away for a minute, start them again and measure again"
SLOW = "look at the speed of the link, the PCIe width and the firmware on both nodes: ethtool {netdev}; sparkctl doctor"


@dataclass(frozen=True, slots=True)
class Pair:
    """One direction of one rail: ``writer`` writes into the memory of ``node``, which listens on its rail's address."""

    writer: str
    writes: Rail
    node: str
    listens: Rail

    def back(self) -> Pair:
        return Pair(self.node, self.listens, self.writer, self.writes)


@dataclass(frozen=True, slots=True)
class RailTest:
    """The slower direction of a rail, from ``node`` to ``peer``; None where nothing was seen or is expected."""

    node: str
    device: str
    peer: str
    peer_device: str
    bytes_s: float | None
    expected_bytes_s: float | None
    verdict: str
    says: str


def pairs(topology: str, nodes: tuple[Node, ...]) -> tuple[Pair, ...]:
    """The cabled neighbours, rail by rail: around a ring, else every node with the head."""
    neighbours = [(nodes[0], node) for node in nodes[1:]]
    if topology == "ring":
        neighbours = [*itertools.pairwise(nodes), *([(nodes[-1], nodes[0])] if len(nodes) > 2 else [])]
    return tuple(pair for one, other in neighbours for pair in _joined(one, other, ring=topology == "ring"))


def _joined(one: Node, other: Node, *, ring: bool) -> Iterator[Pair]:
    """Rails by the nearest address. Of a ring some rails lead elsewhere; its subnets are /24, as NCCL takes them."""
    for writes in _roce(one):
        nearest = min(_roce(other), key=lambda rail: _apart(writes, rail), default=None)
        if nearest and not (ring and _apart(writes, nearest) > 255):
            yield Pair(one.name, writes, other.name, nearest)


def _roce(node: Node) -> tuple[Rail, ...]:
    return tuple(rail for rail in node.rails if rail.rdma in network.devices(node))


def _apart(one: Rail, other: Rail) -> int:
    return int(ipaddress.IPv4Address(one.address)) ^ int(ipaddress.IPv4Address(other.address))


def look(unit: Unit) -> tuple[str, ...]:
    """Asks one node where it has the tool; ``way`` reads the answers."""
    return ("sh", "-c", LOOK, "look", *_inside(unit, ("sh", "-c", f"command -v {TOOL}")))


def way(pair: Pair, found: Mapping[str, str]) -> str:
    """Where both nodes of a pair have the tool: in the ``image``, on the ``node``, or empty."""
    both = set(found[pair.node].split()) & set(found[pair.writer].split())
    return next((place for place in ("image", "node") if place in both), "")


def port(rendezvous: int, turn: int) -> int:
    """A port of its own for each turn, beside the rendezvous: a listener that was left behind is in nobody's way."""
    return 1024 + (rendezvous - 1024 + 1 + turn) % (65536 - 1024)


def commands(pair: Pair, where: str, units: Mapping[str, Unit], at: int) -> dict[str, tuple[str, ...]]:
    """What each of the two nodes runs. ``timeout`` is the first process, so that whoever is cut off here ends there."""
    test = (TOOL, "-F", "--report_gbits", "-s", "65536", "-D", str(SECONDS), "-p", str(at), "-d")
    until = ("timeout", "-k", "2", str(DEADLINE_S))
    words = {
        pair.node: (*until, *test, pair.listens.rdma or ""),
        pair.writer: (*until, "sh", "-c", RETRY, *test, pair.writes.rdma or "", pair.listens.address),
    }
    return {node: _inside(units[node], each) if where == "image" else each for node, each in words.items()}


def _inside(unit: Unit, words: tuple[str, ...]) -> tuple[str, ...]:
    container = unit.container and replace(unit.container, gpus="")
    return runtime.once(replace(unit, argv=words[:1], container=container), {}, words[1:])


def parse(text: str) -> float | None:
    """Bytes per second: the average in the last row under the header in Gb/sec; None when there is none."""
    _, _, rows = text.partition("BW average[Gb/sec]")
    found = re.findall(r"^[ \t]*\d+[ \t]+\d+[ \t]+\d+\.\d+[ \t]+(\d+\.\d+)[ \t]+\d+\.\d+\s*?$", rows, re.MULTILINE)
    return float(found[-1]) * 1e9 / 8 if found else None


def judge(pair: Pair, said: Mapping[str, str], expected: float | None) -> RailTest:
    """``pass``, ``warn`` or ``unknown`` from what both nodes printed. A tool that ran without a figure is a warning."""
    seen = parse(said[pair.writer])
    if seen is None:
        return _told(pair, None, expected, "warn", _cause(pair, f"{said[pair.node]}\n{said[pair.writer]}"))
    figure = f"{seen * 8 / 1e9:.2f} Gb/s"
    if expected is None:
        return _told(pair, seen, expected, "unknown", f"{figure}; the table of this machine expects nothing")
    wanted = f"{expected * 8 / 1e9:.2f}"
    if seen >= expected:
        return _told(pair, seen, expected, "pass", f"{figure}, at least {wanted} is expected")
    next_step = DEGRADED if seen <= DEGRADED_BYTES_S else SLOW.format(netdev=pair.listens.netdev)
    return _told(pair, seen, expected, "warn", f"{figure}, where {wanted} is expected: {next_step}")


def unmeasured(pair: Pair, found: Mapping[str, str], expected: float | None) -> RailTest:
    """Neither the image nor both nodes have the tool: said plainly, and never a pass."""
    lacking = " and ".join(node for node in (pair.writer, pair.node) if "node" not in found[node].split())
    says = f"not measured: no {TOOL} in the image, and none on {lacking}: sudo apt-get install perftest there"
    return _told(pair, None, expected, "unknown", says)


def slower(one: RailTest, other: RailTest) -> RailTest:
    """Of the two directions of a rail the one that counts."""
    return min(one, other, key=lambda each: (each.bytes_s is not None, each.bytes_s or 0.0))


def together(verdict: str, rails: Iterable[RailTest]) -> str:
    """The judgement of a whole test: the all-gather's, but a warning where a rail is slow or broken.

    A rail that nobody measured takes no pass away, for many images have no ``ib_write_bw`` and the all-gather has used
    every rail; nor does it make one. A slow rail is a warning though the all-gather passed: the mean of several rails
    and, on a ring, a bound of 10 GB/s hide one that has begun to fail.
    """
    return "warn" if verdict != "fail" and any(rail.verdict == "warn" for rail in rails) else verdict


def _told(pair: Pair, seen: float | None, expected: float | None, verdict: str, says: str) -> RailTest:
    ends = (pair.writer, pair.writes.rdma or "", pair.node, pair.listens.rdma or "")
    return RailTest(*ends, seen, expected, verdict, says)


def _cause(pair: Pair, text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark, hint in CAUSES:
        for line in lines:
            if mark in line:
                where = {"netdev": pair.listens.netdev, "address": pair.listens.address, "node": pair.node}
                return f"{line[:200]}: {hint.format(**where)}"
    return f"no figure, its last words were {lines[-1][:200] if lines else 'none'}: sparkctl doctor"
