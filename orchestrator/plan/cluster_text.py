"""``cluster.yaml`` as ``init`` writes it: what was found, and in a comment above each value why it is that. Pure."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.facts.detail import NodeDetail
from orchestrator.facts.topology import Found, Seat
from orchestrator.spec.cluster import Ssh

_HEAD = (
    "Written by sparkctl init from what the nodes answered; docs/cluster.md explains every key. Correct it by hand, or "
    "run init again with --force when the cabling has changed."
)
_NODES = (
    "The first node of a deployment is its head: rank 0 and, by default, the gateway. sparkctl logs in with your own "
    "key and copies none. If the nodes shall log in to each other, make a key on each (ssh-keygen -t ed25519) and let "
    "each of the others know it (ssh-copy-id USER@NODE); never share one private key."
)
_PLAIN = re.compile(r"[a-zA-Z~/][\w./~-]*|\d+\.\d+\.\d+\.\d+")
_WORDS = {"yes", "no", "on", "off", "y", "n", "true", "false", "null", "nan", "inf"}
_USER = re.compile(r"[a-z_][a-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the nodes: by name what they said, and how they are reached (absent: the operator's machine)."""

    details: Mapping[str, NodeDetail]
    ssh: Mapping[str, Ssh]
    ssh_config: str = ""


def cluster_text(found: Found, known: Known, remarks: Sequence[str]) -> str:
    """The whole file. ``found`` is a recognised topology."""
    lines = [
        *_comment(_HEAD),
        "",
        *(line for why in found.why for line in _comment(why)),
        f"topology: {found.topology}",
    ]
    if remarks:
        lines += ["", *_comment("To look at:"), *(line for each in remarks for line in _comment(f"- {each}"))]
    if known.ssh_config:
        lines += ["", *_comment("Read in place of ~/.ssh/config."), f"ssh_config: {_scalar(known.ssh_config)}"]
    lines += [
        "",
        *_comment(_NODES),
        "nodes:",
    ]
    for name in found.nodes:
        lines += _node(known.details[name], known.ssh.get(name), found.seats[name])
    lines += [
        "",
        *_comment("Where clients come in: the head, on every address. Uncomment to change it."),
        "# gateway: {node: " + _scalar(found.nodes[0]) + ", address: 0.0.0.0, port: 8000}",
    ]
    return "\n".join(lines) + "\n"


def _node(detail: NodeDetail, ssh: Ssh | None, seats: Sequence[Seat]) -> list[str]:
    here = "    "
    lines = [f"  - name: {_scalar(detail.node)}"]
    if ssh:
        lines += [f"{here}ssh: {_flow(_ssh(detail, ssh))}"]
    else:
        lines += _comment("No ssh entry: the machine that init ran on.", here)
    name = detail.gpu.name if detail.gpu else ""
    if "GB10" in name:
        lines += [f"{here}accelerator: gb10  # nvidia-smi: {name}"]
    else:
        says = f"nvidia-smi says {name}" if name else "nvidia-smi showed no GPU; on a Spark repair its driver"
        lines += [*_comment(f"{says}. Only a GB10 is gb10.", here), f"{here}accelerator: none"]
    lines.append(f"{here}rails:")
    for seat in seats:
        lines += [*_comment(_about(seat), f"{here}  "), f"{here}  - {_flow(_rail(seat))}"]
    return lines


def _ssh(detail: NodeDetail, ssh: Ssh) -> dict[str, str]:
    user = ssh.user or (detail.user if _USER.fullmatch(detail.user) else "")
    given = {"host": ssh.host, **({"user": user} if user else {})}
    return given | ({"port": str(ssh.port)} if "port" in ssh.model_fields_set else {})


def _rail(seat: Seat) -> dict[str, str]:
    end = seat.end
    return {"netdev": end.netdev.name, **({"rdma": end.rdma} if end.rdma else {}), "address": end.address}


def _about(seat: Seat) -> str:
    netdev, end = seat.end.netdev, seat.end
    towards = f"towards {', '.join(seat.towards)}" if seat.towards else "rendezvous only"
    if len(seat.towards) > 3:
        towards = f"towards {len(seat.towards)} nodes"
    speed = f"{netdev.speed_mbit // 1000} Gbit/s" if netdev.speed_mbit else "speed not told"
    port = f"physical port {netdev.port}, " if netdev.port else ""
    return f"{towards}: {port}{end.network}, {speed}, MTU {netdev.mtu or 'not told'}"


def _flow(values: Mapping[str, str]) -> str:
    shown = (f"{key}: {value if key == 'port' else _scalar(value)}" for key, value in values.items())
    return "{" + ", ".join(shown) + "}"


def _scalar(text: str) -> str:
    """Plain where every YAML version reads it as the same text, quoted otherwise."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text)


def _comment(text: str, indent: str = "") -> list[str]:
    start = f"{indent}# "
    more = f"{start}  " if text.startswith("- ") else start
    width = 116
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )
