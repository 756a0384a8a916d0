"""The CPU platform, with the two answers changed that keep it from working with Ray and over hosts."""

from __future__ import annotations

from vllm.platforms.cpu import CpuPlatform


class CpuRayPlatform(CpuPlatform):  # type: ignore[misc]  # vLLM is not typed for us
    """vLLM's CPU platform as the Ray executor accepts it."""

    # One worker takes one of these from Ray. The same word as on a node with a GPU, so that `ray start --num-gpus=1`,
    # the placement group and the check of the planned resources are the same on both; Ray looks for no device.
    ray_device_key: str = "GPU"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """Dotted path of the communicator; vLLM resolves it in the worker, after torch is there."""
        return "vllm_cpu_ray.communicator.AcrossHostsCommunicator"
