"""Collectives between CPU ranks: shared memory where the ranks really share it, gloo where they do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

from vllm_cpu_ray.expert_map import repair_expert_parallel


def shared_memory_identity() -> str:
    """Names the ``/dev/shm`` of this process. Equal in two processes only if both see the same one.

    The boot id tells hosts apart, device and inode tell mount namespaces of one host apart (containers, test nodes).
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    mount = os.stat("/dev/shm")  # noqa: PTH116 - the two numbers belong together, from one call
    return f"{boot}:{mount.st_dev}:{mount.st_ino}"


class AcrossHostsCommunicator(CpuCommunicator):  # type: ignore[misc]  # vLLM is not typed for us
    """vLLM's CPU communicator, which may be asked to span hosts.

    vLLM compares only the *names* of the shared memory segments. Two hosts easily agree on a name, each then waits for
    ever in its own memory. So the memory itself is compared first.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Every worker makes its communicators before it builds a model: the earliest place that only workers pass.
        repair_expert_parallel()
        super().__init__(*args, **kwargs)

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        identities = [""] * self.world_size
        torch.distributed.all_gather_object(identities, shared_memory_identity(), group=self.device_group)
        # Equal on every rank, so all of them take the same branch and none waits in a collective alone.
        if len(set(identities)) != 1:
            return False
        return bool(super()._all_group_ranks_share_shm_group_name())
