"""An image on a node, by digest: found there, sent from the operator's layout, or pulled by the node itself.

A sent image goes through a registry on this machine's loopback, carried to the node's loopback by ``ssh -R``. Against
``docker save | ssh docker load`` it is sent by digest, only the layers that are missing, and a cut connection resumes.

The name under which an image was pulled is kept beside our tag: docker's classic store knows a digest only by the name
it was pulled under, so removing that name would make the next start send the image again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.plan.actions import SendImage
from orchestrator.run import dockersays
from orchestrator.run.dockersays import DiskFullError, gigabytes
from orchestrator.run.layout import BrokenLayoutError, find
from orchestrator.run.openssh import TunnelRefused, Way, cancelled_with, tunnel
from orchestrator.run.registry import Registry, serving
from orchestrator.run.transport import Cancelled, DeadlineExceeded, NodeError, Result, Transport

ASK_DEADLINE_S = 60.0
TELL_EVERY_S = 1.0


class ImageMissingError(NodeError):
    """The image is nowhere to be had; the message says which ways were tried."""


class WrongArchitectureError(NodeError):
    """The image is for another kind of processor than the node's."""


class _PullFailedError(Exception):
    """One way did not work; another may."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where images come from: ``images_from`` holds the operator's layouts; ``way`` is ``None`` for this machine."""

    images_from: Path
    way: Way | None


@dataclass(frozen=True, slots=True)
class Talk:
    """What a long action is told and tells: a line for people, and when to stop."""

    progress: Callable[[str], None]
    stop: Callable[[], bool]


def send_image(action: SendImage, transport: Transport, source: Source, talk: Talk) -> str:
    """Make the image present under ``action.local_tag``; answers what was done. Raises a ``NodeError``."""
    return _Sender(action, transport, source, talk).run()


class _Sender:
    def __init__(self, action: SendImage, transport: Transport, source: Source, talk: Talk) -> None:
        self._action, self._transport, self._source, self._talk = action, transport, source, talk
        self._node = action.node
        self._end_s = time.monotonic() + action.deadline_s
        self._sent_bytes = 0

    def run(self) -> str:
        action = self._action
        if not action.digest:
            raise ImageMissingError(
                self._node,
                f"image {action.repository} should have a digest in its pins, found none",
                "build it or resolve its tag, and write the digest into pins/stacks",
            )
        inspected = self._docker("image", "inspect", "--format", "{{json .}}", action.local_tag)
        found = dockersays.present(inspected.stdout) if inspected.code == 0 else None
        if found is not None and found.is_of(action.digest):
            return "already there"
        listed = self._docker("image", "ls", "--all", "--digests", "--no-trunc", "--format", "{{.Digest}} {{.ID}}")
        image = dockersays.image_of(listed.stdout, action.digest)
        if image is not None:
            self._tag(image)
            return "already there, now tagged"
        return self._bring()

    def _bring(self) -> str:
        tried = []
        for way in (self._from_the_operator, self._from_upstream):
            try:
                name, done = way()
            except (_PullFailedError, TunnelRefused) as error:
                tried.append(error.what if isinstance(error, TunnelRefused) else str(error))
                continue
            self._tag(name)
            return done
        action = self._action
        reference = f"{action.repository}@{action.digest}"
        layout = self._source.images_from / action.digest.replace(":", "-")
        raise ImageMissingError(
            self._node,
            f"image {reference} is not to be had. Tried: {'; '.join(tried)}",
            f"crane pull --format oci {reference} {layout}   (or docker login on the node)",
        )

    def _from_the_operator(self) -> tuple[str, str]:
        action = self._action
        arch = self._docker("version", "--format", "{{.Server.Arch}}").stdout.strip()
        try:
            layout = find(self._source.images_from.expanduser(), action.digest, arch)
        except BrokenLayoutError as error:
            raise _PullFailedError(f"from this machine: {error}") from None
        if arch and layout.architectures and arch not in layout.architectures:
            raise self._wrong_architecture(", ".join(sorted(layout.architectures)), arch)
        self._sent_bytes = layout.total_bytes
        with serving(layout.path) as registry, self._reached(registry) as port:
            name = f"127.0.0.1:{port}/{_path_of(action.repository)}@{action.digest}"
            self._pull(name, lambda: f"{gigabytes(registry.served_bytes)} of {gigabytes(layout.total_bytes)}")
            return name, f"sent {gigabytes(registry.served_bytes)}"

    @contextlib.contextmanager
    def _reached(self, registry: Registry) -> Iterator[int]:
        if self._source.way is None:
            yield registry.port
            return
        with contextlib.ExitStack() as stack:
            with cancelled_with(self._transport) as cancelled:
                made = tunnel(self._source.way, registry.port, lambda: cancelled() or self._talk.stop())
                port = stack.enter_context(made)
            yield port

    def _from_upstream(self) -> tuple[str, str]:
        name = f"{self._action.repository}@{self._action.digest}"
        self._pull(name, lambda: "")
        return name, "pulled by the node"

    def _pull(self, name: str, sent: Callable[[], str]) -> None:
        pull, told_s = dockersays.Pull(), [0.0]

        def stop() -> bool:
            now = time.monotonic()
            if now - told_s[0] >= TELL_EVERY_S:
                told_s[0] = now
                self._talk.progress(", ".join(part for part in (sent(), str(pull)) if part))
            return self._talk.stop() or now > self._end_s

        code = self._transport.follow(("docker", "pull", name), pull.line, stop)
        if code != 0:
            self._explain(name, code, "\n".join(pull.said))

    def _explain(self, name: str, code: int, said: str) -> None:
        if self._talk.stop():
            raise Cancelled(self._node, f"docker pull {name} was cancelled")
        if time.monotonic() > self._end_s:
            limit_s = self._action.deadline_s
            raise DeadlineExceeded(self._node, f"docker pull {name} did not end within {limit_s:g} s; it was ended")
        unusable = dockersays.unusable(self._node, code, said)
        if unusable is not None:
            raise unusable
        if dockersays.is_disk_full(said):
            raise self._disk_full()
        if dockersays.is_wrong_architecture(said):
            raise WrongArchitectureError(
                self._node, dockersays.why(said), "pin an image that has the node's architecture"
            )
        where = "from this machine" if name.startswith("127.0.0.1:") else f"docker pull {name} on the node"
        raise _PullFailedError(f"{where}: {dockersays.why(said)}")

    def _disk_full(self) -> DiskFullError:
        """Says how much is free where docker keeps images, for the operator to compare with what the image takes."""
        root = self._docker("info", "--format", "{{.DockerRootDir}}").stdout.strip() or "/var/lib/docker"
        free = self._transport.run(("df", "-B1", "--output=avail", "--", root), deadline_s=ASK_DEADLINE_S)
        words = free.stdout.split()
        left = f"; {gigabytes(int(words[-1]))} free now" if words and words[-1].isdigit() else ""
        size = f", {gigabytes(self._sent_bytes)} to send," if self._sent_bytes else ""
        return DiskFullError(
            self._node,
            f"the disk that holds {root} ran full while image {self._action.repository}{size} was unpacked{left}",
            "docker system df; docker image prune   on the node",
        )

    def _tag(self, image: str) -> None:
        """Tag, then look: what runs must be what was pinned, and must run on this processor."""
        action = self._action
        tagged = self._docker("tag", image, action.local_tag)
        if tagged.code != 0:
            raise NodeError(self._node, f"docker tag {action.local_tag}: {dockersays.why(tagged.stderr)}")
        inspected = self._docker("image", "inspect", "--format", "{{json .}}", action.local_tag)
        found = dockersays.present(inspected.stdout)
        if found is None or not found.is_of(action.digest):
            shown = ", ".join(found.digests) if found and found.digests else "no digest"
            raise NodeError(
                self._node,
                f"{action.local_tag} should be {action.digest}, found {shown}",
                f"docker image rm {action.local_tag}   on the node, then try again",
            )
        arch = self._docker("version", "--format", "{{.Server.Arch}}").stdout.strip()
        if arch and found.architecture and arch != found.architecture:
            raise self._wrong_architecture(found.architecture, arch)

    def _wrong_architecture(self, found: str, wanted: str) -> WrongArchitectureError:
        action = self._action
        what = f"image {action.repository}@{action.digest[:19]} should be for {wanted}, found {found or 'none'}"
        return WrongArchitectureError(self._node, what, f"pin the digest of an image for linux/{wanted}")

    def _docker(self, *words: str) -> Result:
        """Raises ``DockerUnusableError`` when it is docker itself that does not work."""
        result = self._transport.run(("docker", *words), deadline_s=ASK_DEADLINE_S)
        unusable = dockersays.unusable(self._node, result.code, result.stderr)
        if unusable is not None:
            raise unusable
        return result


def _path_of(repository: str) -> str:
    """The repository without its registry host: what stands before the first slash when it looks like a host."""
    first, slash, rest = repository.partition("/")
    return rest if slash and (first == "localhost" or set(first) & {".", ":"}) else repository
