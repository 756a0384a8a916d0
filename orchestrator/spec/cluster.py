"""Which machines: ``cluster.yaml`` as a frozen value."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+((-+|\.)[a-z0-9]+)*$", max_length=42)]
Port = Annotated[int, Field(ge=1, le=65535)]
Accelerator = Literal["gb10", "none"]


Topology = Literal["direct", "ring", "switch", "loopback"]


class Spec(BaseModel):
    """Base of everything an operator writes: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Ssh(Spec):
    """How to reach a node. Without ``identity`` the agent and the default keys are tried."""

    host: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.:%-]+$")
    user: str | None = Field(default=None, pattern=r"^[a-z_][a-z0-9_.-]*$")
    port: Port = 22
    identity: str | None = None


class Rail(Spec):
    """One netdev of the fabric. A physical ConnectX-7 port shows up as two of these, in two subnets."""

    netdev: str = Field(pattern=r"^[A-Za-z0-9_.:@-]{1,15}$")
    address: str
    rdma: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+$")

    @field_validator("address")
    @classmethod
    def _is_ipv4(cls, value: str) -> str:
        try:
            return str(ipaddress.IPv4Address(value))
        except ValueError:
            raise ValueError("should be an IPv4 address such as 192.168.100.11") from None


class Node(Spec):
    """One machine. ``ssh: null`` means the machine that the operator stands on, reached without SSH."""

    name: Name
    ssh: Ssh | None = None
    rails: tuple[Rail, ...] = Field(min_length=1)
    accelerator: Accelerator = "gb10"


class GatewayAt(Spec):
    """Where clients come in. ``node`` defaults to the first node of the deployment."""

    node: Name | None = None
    address: str = "0.0.0.0"  # noqa: S104 -- the gateway is the one thing that clients must reach
    port: Port = 8000

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            raise ValueError("should be an IP address such as 192.168.1.20, or 0.0.0.0 for all") from None


class Bits(Spec):
    """Where models lie on the nodes (``~`` is the node user's home) and where the operator keeps copies to send."""

    models: str = "~/models"
    models_from: str = "~/models"
    images_from: str = "~/.local/share/sparkctl/images"


class Cluster(Spec):
    """The whole ``cluster.yaml``. ``ssh_config`` is read in place of the operator's own SSH configuration."""

    name: Name = "home"
    topology: Topology = "direct"
    nodes: tuple[Node, ...] = Field(min_length=1, max_length=64)
    gateway: GatewayAt = Field(default_factory=GatewayAt)
    bits: Bits = Field(default_factory=Bits)
    ssh_config: str | None = None

    @model_validator(mode="after")
    def _names_and_addresses_are_unique(self) -> Cluster:
        seen: dict[str, str] = {}
        for node in self.nodes:
            for what, value in [("name", node.name), *[("address", rail.address) for rail in node.rails]]:
                if value in seen:
                    raise ValueError(
                        f"nodes: {what} {value} should be of one node, found on {seen[value]} and {node.name}"
                    )
                seen[value] = node.name
        if self.gateway.node is not None and self.gateway.node not in {node.name for node in self.nodes}:
            names = ", ".join(node.name for node in self.nodes)
            raise ValueError(f"gateway/node: should be one of {names}, found {self.gateway.node}")
        return self
