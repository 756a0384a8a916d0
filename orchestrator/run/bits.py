"""The hands that carry bits: what ``SendImage`` and ``SendModel`` mean for a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.plan.actions import SendImage, SendModel
from orchestrator.run.images import Source, Talk, send_image
from orchestrator.run.local import LocalTransport
from orchestrator.run.models import Origin, send_model
from orchestrator.run.openssh import Way
from orchestrator.run.sshsettings import Files
from orchestrator.run.transport import Transport
from orchestrator.spec.cluster import Cluster
from orchestrator.spec.model import Model


class Bits:
    """Carries images and models to the nodes of one cluster; one call at a time on a node, any number of nodes at once.

    ``models`` are the pins by name, for the download command of an error; ``files`` stand in for the operator's own SSH
    files, as for the transports. Cancelling the transport ends what is under way on its node; ``cancel`` ends all.
    """

    def __init__(
        self,
        cluster: Cluster,
        models: Mapping[str, Model] | None = None,
        files: Files | None = None,
    ) -> None:
        self._files = files or Files()
        self._images_from = Path(cluster.bits.images_from).expanduser()
        self._models = models or {}
        self._ssh = {node.name: node.ssh for node in cluster.nodes if node.ssh is not None}
        self._cancelled = threading.Event()

    def send_image(self, action: SendImage, transport: Transport, progress: Callable[[str], None]) -> str:
        """Answers what was done, for people: ``already there`` when nothing was. Raises a ``NodeError``."""
        source = Source(self._images_from, self._way(action.node, transport))
        return send_image(action, transport, source, Talk(progress, self._cancelled.is_set))

    def send_model(self, action: SendModel, transport: Transport, progress: Callable[[str], None]) -> str:
        """As ``send_image``."""
        origin = Origin(self._way(action.node, transport), _download(self._models.get(action.model)))
        return send_model(action, transport, origin, Talk(progress, self._cancelled.is_set))

    def cancel(self) -> None:
        self._cancelled.set()

    def _way(self, node: str, transport: Transport) -> Way | None:
        """``None`` for the node that we stand on, whatever address the cluster file gives it."""
        ssh = self._ssh.get(node)
        return None if ssh is None or isinstance(transport, LocalTransport) else Way(node, ssh, self._files)


def _download(model: Model | None) -> str:
    if model is None or model.repository is None:
        return ""
    revision = f" --revision {model.revision}" if model.revision else ""
    return f"hf download {model.repository}{revision}"
