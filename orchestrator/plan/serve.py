"""The start sequence of a rank, per executor. Supervision, gates and gateway do not know which one it is.

Ray: rank 0 starts the head on its fabric address, waits for exactly the planned nodes and accelerators, then starts
``vllm serve``; the others join. vLLM 0.33 places workers with PACK and asks one accelerator each; with one accelerator
per node that is one rank per node, and no setting of stock vLLM makes it SPREAD (read in ``v1/executor/ray_utils.py``).

mp (vLLM's own multi-node mode): ranks above 0 start first, headless; rank 0 starts when all of them are running. The
head never notices a remote death by itself: the agents must.
"""

from __future__ import annotations

import json

from orchestrator.plan.engine_args import free_args, quiet_args, typed_args
from orchestrator.plan.network import PER_NODE
from orchestrator.plan.rankfile import Step
from orchestrator.plan.resolved import Resolved
from orchestrator.plan.seat import Seat, engine_address

RAY_DIRECTORY = "r"
"""Below a rank's scratch: Ray opens its own directory to everybody, and the 0700 scratch above it keeps them out."""

CACHE = "/root/.cache"
"""Inside the container: a docker volume of the node, one per stack."""


def steps(resolved: Resolved, seats: tuple[Seat, ...], rank: int) -> tuple[Step, ...]:
    """Rank ``rank``'s start sequence."""
    return _ray(resolved, seats, rank) if resolved.executor == "ray" else _mp(resolved, seats, rank)


def files(resolved: Resolved, seat: Seat) -> dict[str, str]:
    """Small files beside the rank file that the sequence needs: name -> text."""
    if resolved.executor != "ray":
        return {}
    names = {*PER_NODE, *_per_node_of(resolved)}
    return {"vllm/ray_non_carry_over_env_vars.json": json.dumps(sorted(names))}


def environment(resolved: Resolved, seat: Seat) -> dict[str, str]:
    """Variables that the executor needs on every rank, set before anything starts."""
    found = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": seat.scratch}
    if resolved.profile.accelerator != "none":
        # Beside TMPDIR, which every attempt gets empty: these compile for tens of minutes and must outlive an attempt.
        found |= {"TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/torchinductor", "TRITON_CACHE_DIR": f"{CACHE}/triton"}
    if resolved.executor == "ray":
        found |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": f"{seat.directory}/ray.token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_memory_monitor_refresh_ms": "0",
            # Ray's own 30 s is not enough for a machine that is busy loading: nodes then give up on one another.
            "RAY_raylet_start_wait_time_s": "180",
            "VLLM_CONFIG_ROOT": f"{seat.directory}/vllm",
        }
        if seat.rank == 0:
            found["RAY_ADDRESS"] = f"{seat.address}:{resolved.profile.ports.ray}"
    return found


def _per_node_of(resolved: Resolved) -> set[str]:
    return {"RAY_ADDRESS"} | {name for name in resolved.profile.env if name.endswith("_SOCKET_IFNAME")}


def _engine(resolved: Resolved, seat: Seat, extra: tuple[str, ...]) -> Step:
    profile = resolved.profile
    # A headless rank listens nowhere, whatever it is told.
    host = engine_address(resolved) if seat.rank == 0 else "127.0.0.1"
    parallel = ("--tensor-parallel-size", str(resolved.tensor))
    return Step(
        name="engine",
        kind="daemon",
        argv=(
            *(f"{seat.bin}vllm", "serve", seat.models[0], "--host", host, "--port", str(profile.ports.engine)),
            *typed_args(profile.engine, *seat.models[1:]),
            *parallel,
            *("--distributed-executor-backend", resolved.executor),
            *extra,
            *free_args(dict(profile.engine_args)),
        ),
        secret_env={"VLLM_API_KEY": f"{seat.directory}/engine.key"},
    )


def _quiet(resolved: Resolved) -> tuple[str, ...]:
    """For ranks that answer HTTP; a headless one has no such log."""
    return quiet_args(resolved.stack.versions.get("vllm", ""), resolved.profile.engine_args)


def _ray(resolved: Resolved, seats: tuple[Seat, ...], rank: int) -> tuple[Step, ...]:
    seat, head = seats[rank], seats[0]
    port = resolved.profile.ports.ray
    offers = resolved.profile.ray
    memory = () if offers.memory_bytes is None else (f"--memory={offers.memory_bytes}",)
    common = (
        f"--node-ip-address={seat.address}",
        f"--num-cpus={offers.cpus}",
        "--num-gpus=1",
        *memory,
        f"--object-store-memory={offers.object_store_bytes}",
        "--disable-usage-stats",
        f"--temp-dir={seat.scratch}/{RAY_DIRECTORY}",
    )
    deadline_s = resolved.profile.readiness.join_deadline_s
    start = (f"{seat.bin}ray", "start", "--block")
    look = (seat.python, seat.agent, "ray-nodes", "--address", f"{head.address}:{port}", "--gpus-each", "1")
    if rank > 0:
        # `ray start` gives up when the head's server answers before the head itself is a node: so that is waited for.
        join = (*start, f"--address={head.address}:{port}", *common)
        return (
            Step("ray-port", "tcp", host=head.address, port=port, deadline_s=deadline_s),
            _until("ray-head", (*look, "--expect", _named(head), "--or-more"), deadline_s),
            Step("ray", "daemon", argv=join, children=("raylet",)),
        )
    lead = (*start, "--head", f"--port={port}", f"--ray-client-server-port={resolved.profile.ports.ray_client}")
    expect = ",".join(map(_named, seats))
    return (
        Step("ray", "daemon", argv=(*lead, "--include-dashboard=false", *common), children=("raylet", "gcs_server")),
        Step("ray-port", "tcp", host=seat.address, port=port, deadline_s=deadline_s),
        _until("ray-nodes", (*look, "--expect", expect), deadline_s),
        _engine(resolved, seat, _quiet(resolved)),
    )


def _named(seat: Seat) -> str:
    return f"{seat.node.name}={seat.address}"


def _until(name: str, argv: tuple[str, ...], deadline_s: float) -> Step:
    """Each look costs most of a second of a core, because it imports Ray: so they come two seconds apart."""
    return Step(name, "until", argv=argv, deadline_s=deadline_s, every_s=2.0)


def _mp(resolved: Resolved, seats: tuple[Seat, ...], rank: int) -> tuple[Step, ...]:
    seat, head = seats[rank], seats[0]
    if len(seats) == 1:
        return (_engine(resolved, seat, _quiet(resolved)),)
    extra = (
        *("--nnodes", str(len(seats)), "--node-rank", str(rank)),
        *("--master-addr", head.address, "--master-port", str(resolved.profile.ports.rendezvous)),
    )
    if rank > 0:
        return (_engine(resolved, seat, (*extra, "--headless")),)
    deadline_s = resolved.profile.readiness.join_deadline_s
    return (Step("peers", "peers", deadline_s=deadline_s), _engine(resolved, seat, (*extra, *_quiet(resolved))))
