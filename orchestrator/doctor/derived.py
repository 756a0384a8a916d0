"""Values that a signature's templates may use and that no line says as such: they are calculated from what it says."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping

from orchestrator.spec.signatures import Calculation

MARGIN = 0.01
"""What is left free below the share of memory that was free when the engine looked."""

_DOCKER = ipaddress.ip_network("172.16.0.0/12")


def _bridge(seen: Mapping[str, str]) -> str:
    """Docker gives the networks of its bridges addresses out of ``_DOCKER``."""
    try:
        inside = ipaddress.ip_address(seen.get("address", "")) in _DOCKER
    except ValueError:
        return ""
    return " (reason=docker-bridge: such an address is one of Docker's own network on that machine)" if inside else ""


def _fit_fraction(seen: Mapping[str, str]) -> str:
    free, total = float(seen["free"]), float(seen["total"])
    return f"{max(math.floor(free / total * 100) / 100 - MARGIN, 0):.2f}" if total else "less"


def _gids(seen: Mapping[str, str]) -> str:
    """Both ends of a queue pair, with a word on addresses that no RoCE v2 rail has."""
    if not seen.get("local"):
        return ""
    hint = "; LINK_LOCAL_GID: fe80 is no address of a rail" if "fe80" in f"{seen['local']} {seen['remote']}" else ""
    return f" (localGid {seen['local']}, remoteGid {seen['remote']}{hint})"


def _odd_address(seen: Mapping[str, str]) -> str:
    """The one address that lies in another /24 than all others."""
    found = re.findall(r"\d+\.\d+\.\d+\.\d+", seen.get("addresses", ""))
    nets = [address.rpartition(".")[0] for address in found]
    odd = [address for address, net in zip(found, nets, strict=True) if nets.count(net) == 1]
    return f"; {odd[0]} is the odd one" if len(odd) == 1 and len(found) > 2 else ""


def _seconds(seen: Mapping[str, str]) -> str:
    """From milliseconds; some lines of the same kind say seconds themselves."""
    return f"{int(seen['ms']) / 1000:g}" if seen.get("ms") else seen.get("seconds", "")


def _versions(seen: Mapping[str, str]) -> str:
    """Both sides, or the one that was said."""
    if not seen.get("ray"):
        return ""
    theirs = f"the cluster has Ray {seen['ray']} and Python {seen['python']}"
    if not seen.get("own_ray"):
        return f" ({theirs})"
    return f" ({theirs}, {seen['node']} has Ray {seen['own_ray']} and Python {seen['own_python']})"


DERIVED: dict[Calculation, Callable[[Mapping[str, str]], str]] = {
    "bridge": _bridge,
    "fit_fraction": _fit_fraction,
    "gids": _gids,
    "odd_address": _odd_address,
    "seconds": _seconds,
    "versions": _versions,
}


def fill(template: str, seen: Mapping[str, str]) -> str:
    """``template`` with what a line said; what it did not say leaves no hole."""
    text = template.format_map(_Said(seen))
    text = re.sub(r" ?\((?:[a-z ]+:? | [a-z ]+)?\)", "", text)
    return re.sub(r" ([,:;.])(?= |$)", r"\1", re.sub(r"(?<=\S)  +", " ", text)).strip()


class _Said(dict[str, str]):
    def __missing__(self, _key: str) -> str:
        return ""
