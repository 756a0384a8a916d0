"""The bandwidth of a plan's own fabric, measured in its own containers: what each rank runs, and what the answer means.

An all-gather through torch.distributed, on NCCL where there is a GPU and on gloo where there is none, with the rank's
own environment: what is measured is what serving would use. Sizes stay at or below 1 GiB: the 16 GB that a published
guide gathers take twice that of unified memory and have frozen a node (NVIDIA/dgx-spark-playbooks issues 102, 103).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.plan import runtime
from orchestrator.plan.launch import LaunchPlan, Rank

MOST_BYTES = 2**30
DEADLINE_S = 300
MARK = "sparkctl-fabric "
# What a rank needs beside the message: the gathered tensor, its own part, and what torch and NCCL take by themselves.
ROOM_BYTES = 4 * 2**30

PROGRAM = """\
import datetime, json, os, signal, sys, time
signal.alarm(int(os.environ["FABRIC_DEADLINE_S"]))
import torch
import torch.distributed as dist
size, rounds = int(sys.argv[1]), int(sys.argv[2])
gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo", timeout=datetime.timedelta(seconds=120))
world, rank = dist.get_world_size(), dist.get_rank()
part = size // world
mine = torch.full((part,), rank, dtype=torch.uint8, device="cuda" if gpu else "cpu")
out = torch.empty(part * world, dtype=torch.uint8, device=mine.device)
def once():
    dist.all_gather_into_tensor(out, mine)
    if gpu:
        torch.cuda.synchronize()
for _ in range(2):
    once()
taken = []
for _ in range(rounds):
    dist.barrier()
    began = time.perf_counter()
    once()
    taken.append(time.perf_counter() - began)
right = all(int(out[n * part]) == n and int(out[(n + 1) * part - 1]) == n for n in range(world))
if rank == 0:
    said = {"seconds": sorted(taken)[len(taken) // 2], "bytes": part * world, "ranks": world, "right": right}
    print("sparkctl-fabric " + json.dumps({**said, "backend": dist.get_backend()}), flush=True)
dist.destroy_process_group()
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One all-gather: the median of some rounds. ``bus_bytes_s`` is per rank and direction, as nccl-tests counts it."""

    ranks: int
    bytes: int
    seconds: float
    backend: str
    right: bool

    @property
    def bus_bytes_s(self) -> float:
        return self.bytes / self.seconds * (self.ranks - 1) / self.ranks


def command(plan: LaunchPlan, rank: Rank, size_bytes: int, rounds: int, port: int) -> tuple[str, ...]:
    """What ``rank`` runs; ``PROGRAM`` comes on its standard input. Raises ``ValueError`` for a size above 1 GiB."""
    if not 1 <= size_bytes <= MOST_BYTES:
        raise ValueError(f"size should be from 1 to {MOST_BYTES} bytes, found {size_bytes}")
    env = {
        **rank.unit.env,
        "RANK": str(rank.rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(plan.ranks)),
        "MASTER_ADDR": plan.ranks[0].address,
        "MASTER_PORT": str(port),
        "FABRIC_DEADLINE_S": str(DEADLINE_S),
        "TMPDIR": "/tmp",  # noqa: S108 -- the attempt's own folder is not there outside an attempt
    }
    return runtime.once(rank.unit, env, ("-", str(size_bytes), str(rounds)))


def parse(text: str) -> Measured | None:
    """What rank 0 printed; None when it printed no result, or one that another line was written into."""
    for line in text.splitlines():
        if line.startswith(MARK):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                value = json.loads(line[len(MARK) :])
                ranks, size, seconds = int(value["ranks"]), int(value["bytes"]), float(value["seconds"])
                if ranks > 0 and seconds > 0:
                    return Measured(ranks, size, seconds, str(value["backend"]), value["right"] is True)
    return None


def verdict(measured: Measured, expected_bytes_s: Mapping[str, float], topology: str) -> tuple[str, str]:
    """``pass``, ``warn`` or ``unknown``, and why. Sockets and a wrong result are never a pass."""
    got = measured.bus_bytes_s / 1e9
    if not measured.right:
        return "fail", "the gathered bytes are not what the ranks sent"
    if measured.backend != "nccl":
        return "unknown", f"{got:.2f} GB/s over {measured.backend}, which says nothing of NCCL"
    wanted = expected_bytes_s.get(topology)
    if wanted is None:
        return "unknown", f"{got:.2f} GB/s; nothing was published for topology {topology}"
    if got * 1e9 >= wanted:
        return "pass", f"{got:.2f} GB/s, at least {wanted / 1e9:.2f} is expected"
    return (
        "warn",
        f"{got:.2f} GB/s, where {wanted / 1e9:.2f} is expected: look at both halves of the port and at the MTU",
    )
