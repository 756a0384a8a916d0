"""The network environment of one rank, from that node's own rails, never copied from the head.

Sources: NVIDIA's playbooks and NCCL 2.30.7. No GID index is ever set: it differs per node and device and drifts.
``NCCL_NET=IB`` makes a fallback to sockets fail at once instead of serving at a tenth of the speed.
"""

from __future__ import annotations

import ipaddress

from orchestrator.spec.cluster import Cluster, Node

# vLLM's Ray executor copies the head's environment to every worker unless a name is on its non-carry-over list.
# These differ per node (or are secret), so they are listed there and set on each node before `ray start`.
PER_NODE = (
    "GLOO_SOCKET_IFNAME",
    "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAME",
    "OMPI_MCA_btl_tcp_if_include",
    "RAY_AUTH_TOKEN_PATH",
    "TMPDIR",
    "TP_SOCKET_IFNAME",
    "UCX_NET_DEVICES",
    "VLLM_API_KEY",
    "VLLM_CONFIG_ROOT",
    "VLLM_HOST_IP",
)


# NCCL's own NCCL_IB_SUBNET_PREFIX_LEN where nobody sets it (2.30.7, net_ib/connect.cc).
PREFIX = 24


def devices(node: Node) -> tuple[str, ...]:
    """The RDMA devices that NCCL must use on ``node``: both halves of every cabled port; empty without RoCE."""
    return tuple(rail.rdma for rail in node.rails if rail.rdma) if node.accelerator == "gb10" else ()


def prefix_length(cluster: Cluster) -> int:
    """How many bits of an address name a cable of a ring, told by the addresses: each cable has two ends and no third.

    24 where that holds with 24, as NCCL and most set-ups have it, and where it holds with nothing: the doctor then says
    what is wrong with the cables.
    """
    ends = [(node.name, rail.address) for node in cluster.nodes for rail in node.rails if rail.rdma]

    def holds(length: int) -> bool:
        cables: dict[ipaddress.IPv4Network, list[str]] = {}
        for name, address in ends:
            cables.setdefault(ipaddress.IPv4Network(f"{address}/{length}", strict=False), []).append(name)
        return all(len(names) == 2 == len(set(names)) for names in cables.values())

    return next((length for length in (PREFIX, *range(31, 7, -1)) if ends and holds(length)), PREFIX)


def environment(cluster: Cluster, node: Node) -> dict[str, str]:
    """Variables of one rank on ``node``. RoCE settings appear only where every rail names its RDMA device."""
    first = node.rails[0]
    found = {
        "VLLM_HOST_IP": first.address,
        "GLOO_SOCKET_IFNAME": first.netdev,
        "NCCL_SOCKET_IFNAME": first.netdev,
        "TP_SOCKET_IFNAME": first.netdev,
    }
    if devices(node):
        found |= {
            # What NCCL says at this level while it connects is how each rank's agent knows what it really uses.
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
            "NCCL_IB_HCA": ",".join(devices(node)),
            "NCCL_IB_DISABLE": "0",
            "NCCL_NET": "IB",
            "OMPI_MCA_btl_tcp_if_include": first.netdev,
            "UCX_NET_DEVICES": first.netdev,
        }
    if cluster.topology == "ring":
        found |= {
            "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
            "NCCL_IB_MERGE_NICS": "0",
            "NCCL_NET_PLUGIN": "none",
        }
        if (length := prefix_length(cluster)) != PREFIX:
            found["NCCL_IB_SUBNET_PREFIX_LEN"] = str(length)
        if len(cluster.nodes) >= 4:
            found["NCCL_ALGO"] = "Ring"
    return found
