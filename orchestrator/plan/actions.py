"""What can be done to a node, as values. Building one never runs anything.

The design names three actions (Run, Put, Await). Bits need two more, because their source is the operator's own
machine and not an argv: ``SendImage`` and ``SendModel``. They are still only words here; ``run`` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Run:
    """Run ``argv`` on ``node``; exit codes outside ``ok`` fail. ``says`` is what a person is told.

    ``whole``: once begun it is let finish, also after Ctrl-C. It hands work to somebody who goes on without us (docker
    makes a container whose client is gone), so what would be undone might not be there yet.
    """

    node: str
    argv: tuple[str, ...]
    says: str
    deadline_s: float = 60.0
    whole: bool = False
    ok: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``data`` to ``path`` on ``node``: whole or not at all, with ``mode``, directories made with 0700.

    ``secret`` keeps the bytes out of every rendering; ``repr`` never shows them in any case.
    """

    node: str
    path: str
    data: bytes = field(repr=False)
    says: str = ""
    mode: int = 0o600
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Await:
    """Ask ``argv`` on ``node`` every ``every_s`` until the answer passes ``judge``, or ``deadline_s`` is over.

    ``judge`` names a function of ``plan.judges``: (exit code, stdout) -> Verdict. A time-out says what was last seen.
    """

    node: str
    argv: tuple[str, ...]
    judge: str
    says: str
    deadline_s: float
    every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class SendImage:
    """Make ``repository@digest`` present on ``node`` under ``local_tag``; nothing to do when the digest is there."""

    node: str
    repository: str
    digest: str
    local_tag: str
    says: str
    deadline_s: float = 7200.0


@dataclass(frozen=True, slots=True)
class SendModel:
    """Make the model directory ``target`` complete on ``node`` from the operator's ``source`` directory.

    ``manifest`` is the tuple of (relative path, bytes) that a complete directory has; empty when only the source knows.
    ``hashes`` are (relative path, sha256) of the files whose content is pinned.
    """

    node: str
    model: str
    source: str
    target: str
    says: str
    manifest: tuple[tuple[str, int], ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()
    deadline_s: float = 14400.0


Action = Run | Put | Await | SendImage | SendModel


@dataclass(frozen=True, slots=True)
class Phase:
    """A sentence, the actions that run at once over the nodes (in order on each node), and how to take them back.

    ``undo`` holds what takes this phase back if a later one fails or the operator presses Ctrl-C; phases are undone
    last first, and every undo action must be harmless when its phase was only half done.

    ``settles``: once it has begun there is no way back. The phases before are no longer undone, and its own ``undo``
    brings to an end what it began.
    """

    title: str
    actions: tuple[Action, ...]
    undo: tuple[Action, ...] = ()
    settles: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one look told: ``done`` ends the wait, ``failed`` ends it badly, else look again; ``saw`` is for people."""

    done: bool
    saw: str
    failed: bool = False
