"""Lets vLLM's Ray executor run on CPUs, also when the ranks are on different hosts.

Stock vLLM 0.32 refuses Ray on its CPU platform, takes shared memory for granted between the ranks of a group, and
ignores the expert map of expert parallel. This plugin changes those three and nothing else. It exists for the embedded
default and for tests; a node with an accelerator never has it installed.

vLLM calls ``register`` through the entry point group ``vllm.platform_plugins`` in every one of its processes, so
nothing heavy may be imported here.
"""

from __future__ import annotations

import os

SWITCH = "VLLM_CPU_RAY"
"""Environment variable; ``0`` leaves vLLM as it is, which tells a fault of the plugin from one of vLLM."""


def register() -> str | None:
    """Names the platform class for vLLM, or None where the plugin is switched off."""
    if os.environ.get(SWITCH, "1") == "0":
        return None
    return "vllm_cpu_ray.platform.CpuRayPlatform"
