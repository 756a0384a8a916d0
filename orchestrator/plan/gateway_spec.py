"""What the planner decides about the gateway, as values, and what of it HAProxy cannot take."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Backend:
    """One replica: its engine at ``host:port``, and its agent at ``agent_host``.

    ``check_port`` answers HAProxy's agent-check with one line; ``ready_port`` answers ``GET /ready``.
    """

    name: str
    host: str
    port: int
    agent_host: str
    check_port: int
    ready_port: int


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """Where clients come in and what stands behind. Addresses are IP addresses; names would need a resolver.

    ``idle_timeout_s`` is how long an engine may say nothing before a request is given up: the whole generation of a
    request that does not stream. ``client_stall_s`` is how long a client may neither go on sending its body nor go on
    reading. ``request_timeout_s`` is how long it may take for the head, and again for the body or its first 64 KiB.
    ``stats_port`` is Prometheus on loopback, None for no metrics.
    """

    bind_address: str
    bind_port: int
    backends: tuple[Backend, ...]
    stats_port: int | None
    max_body_bytes: int
    retry_after_s: int = 10
    idle_timeout_s: int = 7200
    client_stall_s: int = 300
    request_timeout_s: int = 10
    max_connections: int = 1024
    threads: int = 2


def address(text: str) -> str:
    """``text`` as HAProxy writes an address; IPv6 in brackets, so that a port can follow."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"gateway address: should be an IP address, found {text!r}") from None
    return f"[{parsed.compressed}]" if parsed.version == 6 else parsed.compressed


def endpoint(host: str, port: int) -> str:
    """``host:port`` as HAProxy writes it."""
    return f"{address(host)}:{port}"


def check(spec: GatewaySpec) -> None:
    """Raises ``ValueError`` at the first name, port or limit that cannot stand in a configuration."""
    ports = [spec.bind_port, *([] if spec.stats_port is None else [spec.stats_port])]
    for backend in spec.backends:
        ports += [backend.port, backend.check_port, backend.ready_port]
        if not SERVER_NAME.fullmatch(backend.name):
            raise ValueError(f"backend name: should be letters, digits or ._-, found {backend.name!r}")
    for port in ports:
        if not 1 <= port <= 65535:
            raise ValueError(f"gateway port: should be 1 to 65535, found {port}")
    if spec.stats_port == spec.bind_port:
        raise ValueError(f"gateway stats_port: should differ from the gateway's own port, found {spec.bind_port} twice")
    names = [backend.name for backend in spec.backends]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"gateway backends: should be at least one, each with its own name, found {names}")
    limits = (
        "max_body_bytes",
        "retry_after_s",
        "idle_timeout_s",
        "client_stall_s",
        "request_timeout_s",
        "max_connections",
        "threads",
    )
    for limit in limits:
        if getattr(spec, limit) < 1:
            raise ValueError(f"gateway {limit}: should be at least 1, found {getattr(spec, limit)}")
