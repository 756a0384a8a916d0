"""The gateway's place in the plan: which node, unit and files. Its configuration itself is ``gateway.config``."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.facts.node import NodeFacts
from orchestrator.plan import gateway as haproxy
from orchestrator.plan.launch import Container, Gateway, Mount, SecretFile, TextFile, Unit
from orchestrator.plan.resolved import Resolved
from orchestrator.plan.seat import Seat, engine_address, gateway_node, state_root
from orchestrator.plan.tags import local_tag
from orchestrator.spec.pins import Image

FOLDER = "/etc/sparkctl"


def gateway(resolved: Resolved, seats: tuple[Seat, ...], facts: Mapping[str, NodeFacts], generation: int) -> Gateway:
    """HAProxy in front of rank 0, on the gateway node."""
    node = gateway_node(resolved)
    at = resolved.cluster.gateway
    here = next(seat for seat in seats if seat.node.name == node)
    folder = f"{state_root(facts[node], resolved.deployment)}/g{generation}/gateway"
    host = here.address if at.address in {"0.0.0.0", "::"} else at.address  # noqa: S104
    return Gateway(
        node=node,
        bind=at.address,
        port=at.port,
        metrics_port=resolved.profile.ports.gateway_metrics,
        endpoint=f"http://{host}:{at.port}/v1",
        unit=_unit(resolved, facts[node], folder, generation),
        files=tuple(TextFile(f"{folder}/{name}", text) for name, text in sorted(_files(resolved, seats[0]).items())),
        secrets=(
            SecretFile(f"{folder}/{haproxy.KEYS_FILE}", "client-keys"),
            SecretFile(f"{folder}/{haproxy.ENGINE_FILE}", "gateway-engine-key"),
        ),
    )


def _files(resolved: Resolved, head: Seat) -> dict[str, str]:
    ports = resolved.profile.ports
    backend = haproxy.Backend("rank-0", engine_address(resolved), ports.engine, head.address, ports.check, ports.agent)
    return haproxy.files(
        haproxy.GatewaySpec(
            bind_address=resolved.cluster.gateway.address,
            bind_port=resolved.cluster.gateway.port,
            backends=(backend,),
            stats_port=ports.gateway_metrics,
            max_body_bytes=resolved.profile.max_body_bytes,
        )
    )


def _unit(resolved: Resolved, facts: NodeFacts, folder: str, generation: int) -> Unit:
    image = resolved.stack.gateway
    docker = resolved.profile.runtime == "docker" and image is not None
    return Unit(
        name=f"sparkctl-{resolved.deployment}-g{generation}-gateway",
        node=facts.node,
        rank="gateway",
        argv=haproxy.argv(FOLDER if docker else folder, "haproxy" if docker else facts.haproxy),
        env={},
        mounts=(Mount(folder, FOLDER, read_only=False),) if docker else (),
        directory=folder,
        container=_container(image) if docker and image is not None else None,
        stop_grace_s=10,
    )


def _container(image: Image) -> Container:
    """As the first process of a container HAProxy ignores SIGTERM; SIGUSR1 lets it finish what streams and then end."""
    return Container(image=local_tag(image), stop_signal="SIGUSR1")
