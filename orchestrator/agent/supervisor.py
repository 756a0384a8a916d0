"""Carries out one rank's start sequence, watches its daemons, and ends all of it without a survivor.

Polled, never blocking for long, so that the agent goes on answering: ``start`` and ``kill`` return at once
and ``poll`` says how far it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from orchestrator.agent.belongings import give, remove, shared_memory
from orchestrator.agent.fatal import first_fatal, last_line, last_words
from orchestrator.agent.proctree import become_subreaper, descendants, living, marked, send, table
from orchestrator.agent.steps import MARK, Children, Echo, connects, empty, ending, launch, tail
from orchestrator.agent.views import Own
from orchestrator.plan.rankfile import RankFile, Step

KEPT_ATTEMPTS = 5
SHARED_EVERY_S = 5.0


class Supervisor:
    """The processes of one rank. All times are the caller's monotonic seconds."""

    def __init__(self, plan: RankFile, say: Callable[[str], None]) -> None:
        self.plan, self.say = plan, say
        self.logs = Path(plan.state_dir) / "logs"
        self.own = Own()
        self.doing = ""
        self.last_fatal = ""
        self.attempt = 0
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._kept: dict[str, Children] = {}
        self._until: subprocess.Popen[bytes] | None = None
        self._echoes: list[Echo] = []
        self._index, self._step_since, self._next_try = 0, 0.0, 0.0
        self._kill_since, self._termed, self._left = 0.0, set[int](), dict[str, int]()
        self._shared, self._shared_at = set[str](), 0.0
        become_subreaper()

    # ---- commands

    def start(self, attempt: int, now: float) -> None:
        """Begin the sequence of this attempt; there must be nothing left of another."""
        self.attempt, self.own, self.doing = attempt, Own("steps"), ""
        self._daemons, self._kept, self._until, self._echoes, self._index = {}, {}, None, [], 0
        self._step_since = self._next_try = now
        try:
            for folder in (self.logs, self._directory()):
                folder.mkdir(exist_ok=True)
                give(folder, Path(self.plan.state_dir))
            if self.plan.scratch:
                empty(self.plan.scratch)
        except OSError as error:
            self.own = Own("failed", f"cannot make its directories: {error}")
        self._forget_old_logs()

    def kill(self, now: float) -> None:
        """Begin to end everything: SIGTERM, after the grace SIGKILL until /proc shows nothing of ours."""
        if self.own.phase == "killing":
            return
        if self.own.phase in ("steps", "up"):
            self.last_fatal = self._find_fatal("")
        self.own, self._kill_since, self._termed = Own("killing", self.own.reason), now, set()
        self._until = None

    def poll(self, now: float, peers_missing: str) -> Own:
        """Reap, copy output, go on with the sequence; what this rank's processes are now."""
        self._reap()
        for echo in self._echoes:
            echo.pump()
        if self.own.phase == "killing":
            self._kill_on(now)
        if self.own.phase in ("steps", "up"):
            self._watch()
            if now - self._shared_at > SHARED_EVERY_S:
                self._shared_at = now
                self._shared |= shared_memory(self._ours())
        while self.own.phase == "steps" and self._advance(now, peers_missing):
            self._index += 1
            self._step_since = self._next_try = now
            if self._index == len(self.plan.steps):
                self.own, self.doing = Own("up"), ""
        return self.own

    def processes(self) -> dict[str, int]:
        """Name to pid: the daemons that run, and while killing whatever is left."""
        if self.own.phase == "killing":
            return self._left
        return {name: child.pid for name, child in self._daemons.items() if child.returncode is None}

    def voices(self) -> list[Path]:
        """Where processes of this attempt write: its own logs, and those that Ray keeps of its workers (in ``r``)."""
        found: list[Path] = []
        with contextlib.suppress(OSError):  # a folder may go while it is read
            found += self._directory().glob("*.log")
            if self.plan.scratch:
                found += Path(self.plan.scratch).glob("r/session_2*/logs/worker-*")
        return sorted(found)

    # ---- the sequence

    def _advance(self, now: float, peers_missing: str) -> bool:
        """Try the step at hand. True when it is done."""
        if self._index >= len(self.plan.steps):
            return False
        step = self.plan.steps[self._index]
        if step.kind == "daemon":
            return self._launch(step) is not None
        if step.kind == "peers":
            saw, done = peers_missing, not peers_missing
        elif step.kind == "until":
            saw, done = self._run_until(step, now)
        else:
            saw, done = self._try_tcp(step, now)
        self.doing = f"{step.name}: {saw}" if saw else step.name
        if not done and now - self._step_since > step.deadline_s and self.own.phase == "steps":
            self._fail(step, f"not done within {step.deadline_s:g} s; last seen: {saw or 'nothing'}")
        return done

    def _run_until(self, step: Step, now: float) -> tuple[str, bool]:
        log = self._log(step)
        if self._until is not None and self._until.returncode is not None:
            done = self._until.returncode == 0
            self._until, self._next_try = None, now + step.every_s
            return last_line(tail(log, 4000)), done
        if self._until is None and now >= self._next_try:
            self._until = self._launch(step)
        return last_line(tail(log, 4000)), False

    def _try_tcp(self, step: Step, now: float) -> tuple[str, bool]:
        if now < self._next_try:
            return self.doing.partition(": ")[2], False
        self._next_try = now + step.every_s
        names = {peer.address: peer.node for peer in self.plan.peers}
        saw = connects(step.host, step.port, names.get(step.host, step.host))
        return saw, not saw

    def _launch(self, step: Step) -> subprocess.Popen[bytes] | None:
        self.doing = step.name
        log = self._log(step)
        if not any(echo.log == log for echo in self._echoes):
            self._echoes.append(Echo(log, f"{step.name}: ", self.say))
        try:
            child = launch(step, self.plan.state_dir, log)
        except OSError as error:
            self._fail(step, f"cannot be started: {error}")
            return None
        self._children[child.pid] = child
        if step.kind == "daemon":
            self._daemons[step.name] = child
            if step.children:
                self._kept[step.name] = Children(child.pid, step.children)
        return child

    def _watch(self) -> None:
        for step in self.plan.steps:
            child = self._daemons.get(step.name)
            if child is not None and child.returncode is not None:
                # What ended by itself has mostly said why, if not in words that are known here.
                words = last_words(tail(self._log(step))) if child.returncode >= 0 else ""
                self._fail(step, ending(child.returncode), f"; its last line: {words}" if words else "")
                return
            lost = self._kept[step.name].ended() if step.name in self._kept else ""
            if lost:
                self._fail(step, lost)
                return

    def _fail(self, step: Step, reason: str, otherwise: str = "") -> None:
        self.last_fatal = self._find_fatal(step.name)
        why = f": {self.last_fatal}" if self.last_fatal else otherwise
        why = "" if self.last_fatal and self.last_fatal in reason else why
        self.own = Own("failed", f"step {step.name} {reason}{why}")
        self.doing = self.own.reason

    def _find_fatal(self, first: str) -> str:
        logs = sorted(self._directory().glob("*.log"), key=lambda log: (log.stem != first, log.name))
        return first_fatal(*map(tail, logs))

    # ---- the end

    def _ours(self) -> dict[int, str]:
        procs = table()
        stray = marked(f"{MARK}={self.plan.state_dir}", str(self.logs), procs)
        pids = living(stray | descendants(stray | {os.getpid()}, procs), procs)
        return {pid: procs[pid].name for pid in pids}

    def _kill_on(self, now: float) -> None:
        left = self._ours()
        self._left = {f"{name}-{pid}": pid for pid, name in left.items()}
        if not left:
            self._reap()
            remove(self._shared)
            self.own, self.doing, self._daemons, self._shared = Own(), "", {}, set()
            return
        self._shared |= shared_memory(left)
        names = ", ".join(sorted(set(left.values())))
        self.doing = f"ending {len(left)} processes: {names}"
        send(left.keys() - self._termed, signal.SIGTERM)
        self._termed.update(left)
        if now - self._kill_since > self.plan.policy.stop_grace_s:
            send(left, signal.SIGKILL)

    def _reap(self) -> None:
        """Collect every child that ended, ours and the orphans that came to us."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            child = self._children.pop(ended.si_pid, None)
            if child is not None:
                child.poll()
            else:
                os.waitpid(ended.si_pid, 0)

    # ---- files

    def _directory(self) -> Path:
        return self.logs / f"attempt-{self.attempt}"

    def _log(self, step: Step) -> Path:
        return self._directory() / f"{step.name}.log"

    def _forget_old_logs(self) -> None:
        numbered = [path for path in self.logs.glob("attempt-*") if path.name[8:].isdigit()]
        for path in sorted(numbered, key=lambda path: int(path.name[8:]))[:-KEPT_ATTEMPTS]:
            shutil.rmtree(path, ignore_errors=True)
