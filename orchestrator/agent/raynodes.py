"""Does Ray have exactly the planned nodes? Asked of the GCS itself, with the image's own Ray.

The TCP connection comes first: Ray retries for many minutes where nothing listens. The GCS client is asked
before the public API, because a driver makes the raylet start a worker; not every Ray has that client.
"""

from __future__ import annotations

import importlib
import signal
import socket
import sys
from collections.abc import Mapping

TIMEOUT_S = 5.0
LIMIT_S = 60


def missing(expected: Mapping[str, str], gpus_each: float, seen: Mapping[str, float], or_more: bool = False) -> str:
    """Nothing when exactly the expected nodes are there with their GPUs, else one line on what is not.

    ``expected`` maps addresses to names, and people are told names. ``or_more`` allows other addresses beside them.
    Pure: ``seen`` maps a live node's address to its GPU count.
    """
    wrong = [f"{name} to join Ray" for address, name in expected.items() if address not in seen]
    wrong += [
        f"{name} to have {gpus_each:g} GPU (it has {seen[address]:g})"
        for address, name in expected.items()
        if address in seen and seen[address] != gpus_each
    ]
    unexpected = [address for address in seen if address not in expected and not or_more]
    if not wrong and not unexpected:
        return ""
    known = ", ".join(name for address, name in expected.items() if address in seen)
    parts = [f"joined: {known or 'none of them'}"] + [f"unexpected: {address}" for address in unexpected]
    return f"waiting for {', '.join(wrong) or 'unexpected nodes to leave'}; {'; '.join(parts)}"


def alive_nodes(address: str) -> dict[str, float]:
    """Address to GPU count of the nodes that Ray says are alive. Raises whatever the image's Ray raises."""
    # The archive carries httpx and prometheus_client for the agent: Ray is to see the image's own.
    sys.path[:] = [path for path in sys.path if path != sys.argv[0]]
    try:
        client = importlib.import_module("ray._raylet").GcsClient(address=address)
        infos = client.get_all_node_info(timeout=TIMEOUT_S).values()
        return _sum((info.node_manager_address, dict(info.resources_total)) for info in infos if info.state == 0)
    except (ImportError, AttributeError, TypeError):
        ray = importlib.import_module("ray")
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        return _sum((row["NodeManagerAddress"], row["Resources"]) for row in ray.nodes() if row["Alive"])


def _sum(rows: object) -> dict[str, float]:
    found: dict[str, float] = {}
    for address, resources in rows:  # type: ignore[attr-defined]
        found[address] = found.get(address, 0.0) + float(resources.get("GPU", 0.0))
    return found


def ray_nodes(address: str, expected: Mapping[str, str], gpus_each: float, *, or_more: bool = False) -> int:
    """0 when exactly the planned nodes are there; else one line that says what is seen, and 1."""
    host, _, port = address.rpartition(":")
    where = f"port {port} of {expected[host.strip('[]')]}" if host.strip("[]") in expected else address
    # Ray's client can wait in native code, where no Python deadline reaches: then this process just ends.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT_S)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S).close()
        line = missing(expected, gpus_each, alive_nodes(address), or_more)
    except OSError as error:
        line = f"waiting for Ray at {where}: {error.strerror or error}"
    except Exception as error:  # Ray's own errors differ by version; whatever it is, it is what was seen
        line = f"waiting for Ray at {where}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if line:
        print(line)
    return 1 if line else 0
