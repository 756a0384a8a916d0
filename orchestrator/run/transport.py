"""The seam between a decision and a node: two transports, SSH (``ssh.py``) and this machine (``local.py``).

A command is a tuple of strings; quoting happens once, inside the transport, so an argument arrives byte-identical.

    NodeError                 any way in which a node did not do what was asked
      Unreachable             no connection: refused, no route, time-out, name not found
      HostKeyUnknown          the node's key is in no known_hosts file
      HostKeyChanged          the node shows another key than the one on record
      AuthRefused             the node takes none of our keys (or a key needs a passphrase and no agent holds it)
      ConnectionLost          the connection ended in the middle of a command
      DeadlineExceeded        the command did not end in time
      CommandFailed           the command ended with an exit code that is not ok
      PutFailed               a file could not be written: disk full, no permission, a file where a directory should be
      Cancelled               the operator pressed Ctrl-C
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class NodeError(Exception):
    """A node did not do what was asked. ``remedy`` is the next step, as a command to paste where there is one."""

    def __init__(self, node: str, what: str, remedy: str = "") -> None:
        super().__init__(f"{node}: {what}")
        self.node, self.what, self.remedy = node, what, remedy


class Unreachable(NodeError):
    pass


class HostKeyUnknown(NodeError):
    pass


class HostKeyChanged(NodeError):
    pass


class AuthRefused(NodeError):
    pass


class ConnectionLost(NodeError):
    pass


class DeadlineExceeded(NodeError):
    pass


class CommandFailed(NodeError):
    pass


class PutFailed(NodeError):
    pass


class Cancelled(NodeError):
    pass


@dataclass(frozen=True, slots=True)
class Result:
    """What a command answered. Text is UTF-8 with undecodable bytes replaced."""

    code: int
    stdout: str
    stderr: str


class Transport(Protocol):
    """One node. Methods block, and calls may overlap: a heartbeat runs beside an action; ``cancel`` ends all."""

    node: str

    def run(self, argv: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"") -> Result:
        """Run ``argv`` and answer with its exit code, whatever it is. Raises a ``NodeError`` if there is no answer."""

    def put(self, path: str, data: bytes, mode: int) -> None:
        """Write a file whole or not at all (temporary file beside it, then rename); missing directories become 0700."""

    def follow(self, argv: tuple[str, ...], line: Callable[[str], None], stop: Callable[[], bool]) -> int:
        """Run ``argv``, hand over each line of output as it comes, and end early when ``stop()`` is true. Exit code."""

    def cancel(self) -> None:
        """End what is running at once, from another thread; a running ``run`` raises ``Cancelled``."""

    def close(self) -> None:
        """Let go of the connection. Harmless when there is none."""
