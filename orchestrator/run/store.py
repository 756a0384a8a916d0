"""What a deployment leaves on its nodes, and its event log on the head node.

``~/.local/state/sparkctl/<deployment>/`` on every node, directories 0700 and files 0600. ``XDG_STATE_HOME`` is not
used: a node is not anybody's desktop, and every operator must find the same place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.plan.events import Event
from orchestrator.run.transport import NodeError, Transport

# What ends in .lock would have another deployment's lock as its state directory.
NAME = re.compile(r"(?!.{43})(?!.*\.lock$)[a-z0-9]+((-+|\.)[a-z0-9]+)*")
DEADLINE_S = 20.0

# A log whose last line was cut short by a power failure gets its newline first, so that only that line is lost.
APPEND = r"""
umask 077
mkdir -p "$(dirname "$1")" || exit 1
if [ -s "$1" ] && [ -n "$(tail -c 1 "$1")" ]; then echo >>"$1" || exit 1; fi
cat >>"$1"
"""


@dataclass(frozen=True, slots=True)
class StatePaths:
    """Where things lie on a node whose user's home is ``home``. Pure: nothing is made or looked at."""

    home: str
    deployment: str

    def __post_init__(self) -> None:
        if not self.home.startswith("/"):
            raise ValueError(f"home should be an absolute path, found {self.home}")
        if not NAME.fullmatch(self.deployment):
            raise ValueError(
                f"deployment should be lower-case letters, digits, hyphens and dots, found {self.deployment}"
            )

    @property
    def root(self) -> str:
        return f"{self.home.rstrip('/')}/.local/state/sparkctl/{self.deployment}"

    @property
    def lock(self) -> str:
        return f"{self.root}.lock"

    @property
    def events(self) -> str:
        """Only on the head node."""
        return f"{self.root}/events.jsonl"

    @property
    def current(self) -> str:
        """Holds the number of the generation that serves."""
        return f"{self.root}/current"

    def generation(self, number: int) -> str:
        if number < 1:
            raise ValueError(f"generation should be 1 or more, found {number}")
        return f"{self.root}/g{number}"

    def plan(self, number: int) -> str:
        return f"{self.generation(number)}/plan.json"


@dataclass(frozen=True, slots=True)
class Log:
    """The events that could be read, and how many lines could not."""

    events: tuple[Event, ...]
    unreadable: int = 0


def append(transport: Transport, path: str, events: Iterable[Event]) -> None:
    """Add ``events`` to the log at ``path`` on the node, in one step. Raises ``NodeError``."""
    lines = "".join(event.to_json() + "\n" for event in events)
    if lines:
        _script(transport, (APPEND, path), lines.encode())


def read(transport: Transport, path: str) -> Log:
    """The whole log; empty when there is none yet. Raises ``NodeError``."""
    return parse(_script(transport, ('[ ! -e "$1" ] || cat "$1"', path)))


def parse(content: str) -> Log:
    """A line that is cut short or from a version that we do not know is counted, not believed."""
    found, unreadable = [], 0
    for line in filter(None, content.split("\n")):  # other line ends may stand inside a text
        try:
            found.append(Event.from_json(line))
        except (ValueError, TypeError):
            unreadable += 1
    return Log(tuple(found), unreadable)


def _script(transport: Transport, words: tuple[str, str], stdin: bytes = b"") -> str:
    script, path = words
    answer = transport.run(("sh", "-c", script, "sparkctl-store", path), deadline_s=DEADLINE_S, stdin=stdin)
    if answer.code != 0:
        raise NodeError(transport.node, f"the event log {path} cannot be used: {answer.stderr.strip()}")
    return answer.stdout
