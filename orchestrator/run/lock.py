"""The deploy lock: one change of a deployment at a time, whoever's laptop it comes from.

It is a directory on the head node, made by ``mkdir``, which is atomic. Inside lie ``holder.json`` and ``beat``, the
time of the last heartbeat by the node's own clock. A holder that has not beaten for 45 s, or that was a process of this
very machine and is gone, is dead, and the lock may be taken over; of two takers one wins.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.run.transport import AuthRefused, HostKeyChanged, HostKeyUnknown, NodeError, Transport, Unreachable

BEAT_EVERY_S = 10.0
DEAD_AFTER_S = 45.0
STEP_DEADLINE_S = 20.0

# One script, so that each step is one command on the node and nothing can come between its parts. Words:
#   $1 take|beat|release   $2 lock directory   $3 our nonce   $4 nonce of a dead holder to take over from, or -
# ``take`` reads holder.json from stdin and prints "held", or "busy", the age of the last beat (s) and the holder.
# A mutex that the kernel lets go of keeps two takers apart where there is flock(1), as on every Linux node; without
# it, renaming the dead holder's directory away leaves a race of microseconds, which the loser's next beat discovers.
# A beat that is no time (a power failure empties files) or lies ahead (the clock was set back) begins anew: a holder
# that lives beats again soon, and one that is gone is found out 45 s later.
SCRIPT = r"""
umask 077
mkdir -p "$(dirname "$2")" || exit 1
if command -v flock >/dev/null 2>&1; then exec 9<"$(dirname "$2")" && flock -w 10 9 || exit 1; fi
nonce_of() { sed -n 's/.*"nonce": "\([0-9a-f]*\)".*/\1/p' "$1/holder.json" 2>/dev/null; }
beat() { date +%s >"$2/beat.new" && mv "$2/beat.new" "$2/beat"; }
gone="$2.gone.$3"
case $1 in
take)
  new=$(cat)
  if [ "$4" != - ] && [ "$(nonce_of "$2")" = "$4" ]; then mv "$2" "$gone" && rm -rf "$gone"; fi
  if mkdir "$2" 2>/dev/null; then
    beat "$@" && printf '%s\n' "$new" >"$2/holder.json" && echo held && exit 0
    rm -rf "$2"; exit 1
  fi
  [ -d "$2" ] || { echo "cannot make $2" >&2; exit 1; }
  now=$(date +%s) at=$(sed -n '1s/^[1-9][0-9]\{0,11\}$/&/p' "$2/beat" 2>/dev/null)
  [ -n "$at" ] && [ "$at" -le "$now" ] || { beat "$@"; at=$now; }
  echo busy; echo $((now - at)); cat "$2/holder.json" 2>/dev/null; exit 0 ;;
beat)
  [ "$(nonce_of "$2")" = "$3" ] || { echo lost; cat "$2/holder.json" 2>/dev/null; exit 0; }
  beat "$@" && echo held ;;
release)
  [ "$(nonce_of "$2")" = "$3" ] || { echo lost; exit 0; }
  mv "$2" "$gone" && rm -rf "$gone" && echo released ;;
esac
"""
_WORDS = ("held", "busy", "lost", "released")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock. ``since`` is Unix time there; ``machine`` tells boots and containers of one host apart."""

    user: str
    host: str
    machine: str
    pid: int
    since: float
    why: str
    nonce: str

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.user}@{self.host} (process {self.pid}) since {since}, for: {self.why}"


class Locked(Exception):
    """Somebody else holds the lock. ``holder`` is None when they have not yet said who they are."""

    def __init__(self, node: str, lock: str, holder: Holder | None, age_s: int) -> None:
        who = str(holder) if holder else "somebody who has not said who they are"
        super().__init__(f"{node}: locked by {who}; last heartbeat {age_s} s ago")
        self.holder = holder
        self.remedy = (
            f"wait for them, or ask them to press Ctrl-C. A holder that is gone is taken over after {DEAD_AFTER_S:g} s "
            "without a heartbeat: run the command again"
        )
        if age_s > DEAD_AFTER_S:  # never while it beats: that would have two at work on one deployment
            self.remedy += f". By hand, on {node}: rm -r {lock}"


class Held:
    """A lock that is ours. ``note`` tells of a take-over. ``lost`` is set once it is no longer ours; stop then."""

    def __init__(self, transport: Transport, lock: str, me: Holder) -> None:
        self.lost = threading.Event()
        self.note, self.why_lost = "", ""
        self._transport, self._lock, self._me = transport, lock, me
        self._over = threading.Event()
        self._on_lost: Callable[[], None] = lambda: None
        self._beat_every_s = BEAT_EVERY_S
        self._thread = threading.Thread(target=self._beat, name=f"lock {lock}", daemon=True)

    def start(self, on_lost: Callable[[], None], beat_every_s: float) -> None:
        self._on_lost, self._beat_every_s = on_lost, beat_every_s
        self._thread.start()

    def release(self) -> None:
        """Let go, if it is still ours. In a thread of its own, so that another Ctrl-C does not leave the lock."""
        self._over.set()
        worker = threading.Thread(target=self._release, daemon=True)
        worker.start()
        try:
            worker.join(STEP_DEADLINE_S)
        except KeyboardInterrupt:
            worker.join(STEP_DEADLINE_S / 4)
            raise

    def _release(self) -> None:
        if self._thread.is_alive():
            self._thread.join(STEP_DEADLINE_S / 2)
        # A cancel meant for an action may hit a try, and what Ctrl-C cut off may have left the link in any state.
        # A node that is gone frees the lock by its silence.
        for pause_s in (0.1, 0.5, 0.0):
            with contextlib.suppress(Exception):
                step(self._transport, "release", self._lock, (self._me.nonce,))
                return
            time.sleep(pause_s)

    def _beat(self) -> None:
        good = time.monotonic()
        while not self._over.wait(self._beat_every_s):
            try:
                said = step(self._transport, "beat", self._lock, (self._me.nonce,))
            except NodeError as problem:
                if time.monotonic() - good > DEAD_AFTER_S:
                    self._lose(f"no heartbeat reached the node for {DEAD_AFTER_S:g} s ({problem.what})")
                    return
                continue
            if said[:1] == ["lost"]:
                taker = holder_from("\n".join(said[1:]))
                self._lose(f"taken over by {taker}" if taker else "somebody removed the lock")
                return
            good = time.monotonic()

    def _lose(self, why: str) -> None:
        self.why_lost = why
        self.lost.set()
        self._on_lost()


@contextlib.contextmanager
def held(
    transport: Transport,
    path: str,
    why: str,
    on_lost: Callable[[], None] = lambda: None,
    beat_every_s: float = BEAT_EVERY_S,
) -> Iterator[Held]:
    """Hold the deploy lock of the deployment whose state directory is ``path`` (the lock is ``path`` + ``.lock``).

    Raises ``Locked`` when somebody else holds it, ``NodeError`` when the node does not answer. ``on_lost`` is called
    from another thread when the lock is taken away while held; it is the place to set the flag that ends the work.
    """
    lock, me = f"{path.rstrip('/')}.lock", _myself(why)
    mine = Held(transport, lock, me)
    try:
        mine.note = _take(transport, lock, me)
    except (Locked, Unreachable, HostKeyUnknown, HostKeyChanged, AuthRefused):
        raise
    except BaseException:  # Ctrl-C or a lost connection, perhaps between the node's mkdir and its answer
        mine.release()
        raise
    try:
        mine.start(on_lost, beat_every_s)
        yield mine
    finally:
        mine.release()


def step(transport: Transport, what: str, lock: str, words: tuple[str, ...], stdin: bytes = b"") -> list[str]:
    """One step of the script on the node; its output lines. Raises ``NodeError``."""
    argv = ("sh", "-c", SCRIPT, "sparkctl-lock", what, lock, *words)
    answer = transport.run(argv, deadline_s=STEP_DEADLINE_S, stdin=stdin)
    if answer.code != 0:
        why = answer.stderr.strip() or f"exit code {answer.code}"
        raise NodeError(transport.node, f"the deploy lock {lock} cannot be used: {why}", f"ls -la {lock}")
    said = answer.stdout.splitlines()
    if not said or said[0] not in _WORDS:  # a login shell that greets would otherwise be taken for a holder
        what = f"the deploy lock {lock} should answer {', '.join(_WORDS)}, found {answer.stdout.strip()[:80]!r}"
        raise NodeError(
            transport.node, what, "sparkctl doctor   (a shell that prints before every answer: SHELL_PRINTS)"
        )
    return said


def _take(transport: Transport, lock: str, me: Holder) -> str:
    """Raises ``Locked``. Answers with a note when a dead holder was taken over."""
    mine, dead, note = json.dumps(asdict(me)).encode(), "-", ""
    for _ in range(3):
        said = step(transport, "take", lock, (me.nonce, dead), mine)
        if said[:1] == ["held"]:
            return note
        age_s, other = int(said[1]), holder_from("\n".join(said[2:]))
        why_dead = _why_dead(other, age_s, me)
        if not why_dead:
            raise Locked(transport.node, lock, other, age_s)
        dead = other.nonce if other else ""
        note = f"took over the deploy lock of {other or 'an unknown holder'}: {why_dead}"
    raise Locked(transport.node, lock, other, age_s)


def _why_dead(other: Holder | None, age_s: int, me: Holder) -> str:
    if other and (other.host, other.machine) == (me.host, me.machine) and not _alive(other.pid):
        return f"its process {other.pid} on this machine is gone"
    return f"its last heartbeat was {age_s} s ago" if age_s > DEAD_AFTER_S else ""


def holder_from(content: str) -> Holder | None:
    try:
        holder = Holder(**json.loads(content))
        return holder if str(holder) else None  # a time that cannot be told is no holder's
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _myself(why: str) -> Holder:
    """``machine`` names this boot and pid namespace, so that a pid is only looked up where it means something."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        machine = f"{uuid.getnode():x}"
    return Holder(
        getpass.getuser(), socket.gethostname(), machine, os.getpid(), time.time(), why, secrets.token_hex(16)
    )
