"""The agent's life: look, decide, act, publish; a few times a second, until asked to stop."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from orchestrator.agent.belongings import give, give_all
from orchestrator.agent.gang import decide, outlook, peers_missing
from orchestrator.agent.gates import Sight, all_gates, judge
from orchestrator.agent.memory import Gang, recall, remember
from orchestrator.agent.peers import Peers
from orchestrator.agent.probe import Probe
from orchestrator.agent.prober import COUNTERS_TIMEOUT_S, Engine, Prober
from orchestrator.agent.server import Board, Notice, serve, token
from orchestrator.agent.supervisor import Supervisor
from orchestrator.agent.transport import Ear
from orchestrator.agent.views import LIVE, Command, Own, Seen, Start, Verdict
from orchestrator.plan.rankfile import Gate, RankFile, RankStatus

TICK_S = 0.2
WRITE_EVERY_S = 2.0
BIND_EVERY_S = 1.0
LISTEN_EVERY_S = 2.0
HEARD_S = 1.0
"""After so long the gateway, which asks twice a second, has heard that nothing new may come."""
DISTRIBUTIONS = ("vllm", "ray", "torch", "flashinfer-python", "nvidia-nccl-cu13", "transformers")


def say(line: str) -> None:
    """One line to whoever collects this process's output; nobody listening is no reason to die."""
    try:
        print(line, flush=True)
    except OSError:
        return


def loaded_versions(pinned: Iterable[str]) -> dict[str, str]:
    """The versions that a process of this Python would load, for those of the stack and the pinned that are there."""
    found = {}
    for name in sorted({*DISTRIBUTIONS, *pinned}):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def write(path: Path, text: str, sync: bool = False) -> None:
    """Replace a 0600 file whole. A disk that is full is said, not died of: the gang itself needs no file."""
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.touch(mode=0o600)
        give(fresh, path.parent)
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        say(f"sparkctl: cannot write {path}: {error}")


def read_memory(path: Path) -> Mapping[str, object]:
    """What the last agent of this state directory remembered; nothing when it cannot be read."""
    try:
        memory = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return memory if isinstance(memory, dict) else {}


class Agent:
    """One rank's agent. Raises ``OSError`` or ``ValueError`` at once when its files are not usable."""

    def __init__(self, plan: RankFile) -> None:
        self.plan, self.agent_id = plan, secrets.token_hex(8)
        self.directory = Path(plan.state_dir)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.versions = loaded_versions(plan.pins)
        self.stop, self.hurry = threading.Event(), threading.Event()
        token(plan)
        self.board = Board()
        self.supervisor = Supervisor(plan, say)
        self.memory = read_memory(self.directory / "gang.json")
        self.gang = recall(plan, self.memory, time.monotonic(), time.time())
        self.ear, self.listened_at = Ear(plan.rdma), 0.0
        self.status: RankStatus | None = None
        self.written_at = 0.0
        self.finishing = ""

    def run(self) -> int:
        """Live until SIGTERM or SIGINT; then let running answers finish, end everything and return 0.

        A second signal cuts the answers off.
        """
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: (self.hurry if self.stop.is_set() else self.stop).set())
        self._listen()
        peers = Peers(self.plan)
        prober = Prober(self.plan.service, self.plan.rdma) if self.plan.rank == 0 else None
        # An agent that was killed may have left processes behind: nothing begins before they are gone.
        self.supervisor.kill(time.monotonic())
        while not self.stop.wait(TICK_S):
            self._tick(peers, prober)
        if prober:
            self._let_finish(peers, prober)
        self._leave()
        return 0

    def _listen(self) -> None:
        while not self.stop.is_set():
            try:
                return serve(self.plan, self.board)
            except OSError as error:
                where = f"{self.plan.address}:{self.plan.agent_port}"
                self._publish(replace(self.gang, reason=f"cannot listen on {where} yet: {error}"), (), False)
            self.stop.wait(BIND_EVERY_S)
        return None

    def _tick(self, peers: Peers, prober: Prober | None) -> None:
        now, views = time.monotonic(), peers.views()
        own = self.supervisor.poll(now, peers_missing(self.plan, self.gang.attempt, views, now))
        probe = prober.probe if prober else Probe()
        sight = Sight(now, own, self.versions, views, probe, self._transport(now, probe))
        gates = all_gates(self.plan, self.gang, sight)
        verdict = judge(self.plan, self.gang, sight, gates) if self.plan.rank == 0 else Verdict()
        gang, command = decide(self.plan, self.gang, Seen(now, time.time(), own, views, verdict))
        if gang.state != self.gang.state:
            why = outlook(self.plan, gang, now, time.time())
            say(f"sparkctl: attempt {gang.attempt} {gang.state}" + (f": {why}" if why else ""))
        self.gang = gang
        self._remember()
        self._act(command, now)
        if prober:
            prober.watch(gang.attempt if gang.state == "running" else 0)
        self._publish(gang, gates, verdict.ready and gang.state == "running" and not self.stop.is_set())

    def _let_finish(self, peers: Peers, prober: Prober) -> None:
        """Wait for the answers that run; the gateway lets nothing new in, for the board says so since the signal.

        The gang lives on meanwhile: a rank that dies ends the wait, for the answers have died with it.
        """
        if not self.plan.policy.drain_s or not self.gang.was_ready:
            return
        engine = Engine(self.plan.service, COUNTERS_TIMEOUT_S)
        began = time.monotonic()
        until = began + self.plan.policy.drain_s
        while self.gang.state == "running" and time.monotonic() < until and not self.hurry.wait(TICK_S):
            self._tick(peers, prober)
            if time.monotonic() - began < HEARD_S:
                continue
            unfinished = engine.counters(COUNTERS_TIMEOUT_S).unfinished
            if not unfinished:
                return
            self.finishing = f"asked to stop: letting {unfinished:.0f} running answers finish"

    def _act(self, command: Command, now: float) -> None:
        if isinstance(command, Start):
            self.ear = Ear(self.plan.rdma)
            self.supervisor.start(command.attempt, now)
        elif command is not None:
            self.supervisor.kill(now)

    def _transport(self, now: float, probe: Probe) -> tuple[Gate, ...]:
        """The gate of the fabric where the plan names RDMA devices; logs are read every two seconds."""
        if not self.plan.rdma:
            return ()
        if now - self.listened_at >= LISTEN_EVERY_S:
            self.listened_at = now
            self.ear.listen(self.supervisor.voices())
        if self.plan.rank != 0:
            return (self.ear.gate(),)
        proof = probe.proof if probe.attempt == self.gang.attempt else None
        return (self.ear.gate_across(proof.moved if proof else None),)

    def _remember(self) -> None:
        memory = remember(self.plan, self.gang)
        if memory != self.memory:
            self.memory = memory
            write(self.directory / "gang.json", json.dumps(memory), sync=True)

    def _leave(self) -> None:
        """End everything within the grace and a little; an orderly stop forgives the breaker its failures."""
        until = time.monotonic() + self.plan.policy.stop_grace_s + 2.0
        gang = replace(self.gang, state="stopping", reason="asked to stop")
        self.supervisor.kill(time.monotonic())
        self.supervisor.last_fatal = ""  # what was asked to end has failed at nothing
        own = Own("killing")
        while own.phase != "idle" and time.monotonic() < until:
            own = self.supervisor.poll(time.monotonic(), "")
            self._publish(gang, (), False)
            time.sleep(TICK_S / 2)
        self.gang = replace(gang, state="stopped", forgiven_at=time.time())
        self._remember()
        self._publish(self.gang, (), False)
        give_all(self.directory)
        say("sparkctl: stopped" + ("" if own.phase == "idle" else f"; {self.supervisor.doing}"))

    def _publish(self, gang: Gang, gates: tuple[Gate, ...], ready: bool) -> None:
        now, plan = time.monotonic(), self.plan
        status = RankStatus(
            deployment=plan.deployment,
            generation=plan.generation,
            plan_digest=plan.plan_digest,
            rank=plan.rank,
            node=plan.node,
            agent_id=self.agent_id,
            state=gang.state,
            attempt=gang.attempt,
            doing=self._doing(gang, gates),
            ready=ready,
            gates=gates,
            versions=self.versions,
            processes=self.supervisor.processes(),
            history=gang.history,
            last_fatal=self.supervisor.last_fatal,
            written_at=time.time(),
        )
        leaving = gang.state == "stopped" or self.stop.is_set()
        self.board.notice = Notice(status, now, gang.was_ready, leaving, gang.failed_total)
        unchanged = self.status is not None and replace(self.status, written_at=status.written_at) == status
        if not unchanged or now - self.written_at >= WRITE_EVERY_S:
            self.status, self.written_at = status, now
            write(self.directory / "status.json", status.to_json())

    def _doing(self, gang: Gang, gates: tuple[Gate, ...]) -> str:
        if gang.state in LIVE:
            # Which gates and what they saw stands beside this in the same status, so it is not said here as well.
            opened = sum(1 for gate in gates if gate.open)
            shut = f"{opened} of {len(gates)} gates open" if opened < len(gates) else ""
            return self.finishing or self.supervisor.doing or shut or "serving"
        if gang.state == "stopping":
            return "; ".join(text for text in (gang.reason, self.supervisor.doing) if text)
        return outlook(self.plan, gang, time.monotonic(), time.time())


def run(path: str) -> int:
    """Run the agent of a rank file. 2 when the file or what it names is not usable."""
    try:
        agent = Agent(RankFile.from_json(Path(path).read_text()))
    except (OSError, ValueError) as error:
        print(f"sparkctl agent: {path}: {error}", file=sys.stderr)
        return 2
    return agent.run()
