"""A wish with every choice made: what the rest of the plan is computed from."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.spec.cluster import Cluster, Node
from orchestrator.spec.model import Model
from orchestrator.spec.pins import Stack
from orchestrator.spec.profile import Executor, Profile


@dataclass(frozen=True, slots=True)
class Resolved:
    """A wish with every choice made. ``nodes[0]`` is the head and holds rank 0.

    ``draft`` is the second checkpoint of speculative decoding, where the profile names one.
    """

    deployment: str
    cluster: Cluster
    profile: Profile
    model: Model
    stack: Stack
    executor: Executor
    nodes: tuple[Node, ...]
    draft: Model | None = None

    @property
    def tensor(self) -> int:
        """Tensor parallel width: one accelerator per node, so nodes divided by pipeline stages."""
        return len(self.nodes) // self.profile.engine.pipeline

    @property
    def models(self) -> tuple[Model, ...]:
        """Every checkpoint that must be on the nodes."""
        return (self.model,) if self.draft is None else (self.model, self.draft)
