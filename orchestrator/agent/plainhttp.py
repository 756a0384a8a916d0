"""The one way this agent speaks HTTP: plain, on loopback and fabric, with nothing from the environment in between."""

from __future__ import annotations

import ssl

import httpx


def plain_client(timeout_s: float, base_url: str = "") -> httpx.Client:
    """A client without proxies, and with a TLS context that trusts nobody: so none is loaded, and https fails."""
    timeout = httpx.Timeout(timeout_s, connect=min(5.0, timeout_s))
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.Client(base_url=base_url, timeout=timeout, verify=nobody, trust_env=False)
