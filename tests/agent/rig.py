"""Real agents, as archives on bare interpreters, each on a loopback address of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from orchestrator.plan.rankfile import Peer, Policy, RankFile, RankStatus, Service, Step
from tests.agent.fake_engine import CONTEXT_TOKENS

DEADLINE_S = 90.0
ENGINE = Path(__file__).with_name("fake_engine.py")
# A daemon as Ray is one: its child sits in a session of its own and does not end at SIGTERM.
STUBBORN = "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.2; done' & exec sleep 1000"
FAST = Policy(backoff_s=(0.1,), unreachable_s=60.0, join_deadline_s=60.0, stop_grace_s=0.5)


def free_port(address: str = "127.0.0.1") -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def until(look: Callable[[], object], what: str) -> None:
    """Wait until ``look`` is true; an ``AssertionError`` with its last answer after the deadline."""
    end = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < end, f"{what}: last seen {found!r}"
        time.sleep(0.1)


def pids_marked(text: str) -> dict[int, str]:
    """Pid to command line of every process whose environment has ``text``: from outside, by /proc alone."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return {pid: words for pid, words in found.items() if words}


def sweep(mark: str) -> None:
    """Kill what carries the mark, again and again: one that is being killed may just have started another."""
    while found := pids_marked(mark):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


class LocalGang:
    """Some ranks on 127.0.0.2, 127.0.0.3, …; rank 0 has a FakeEngine, every rank a stubborn daemon."""

    def __init__(self, archive: Path, directory: Path, ranks: int = 2) -> None:
        self.archive, self.directory = archive, directory
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        self.token = "secret of this generation"
        self.http = httpx.Client(timeout=5, verify=False, trust_env=False)
        for name, content in {"token": self.token, "key": "engine key", "model": "tiny"}.items():
            (directory / name).write_text(content)
        addresses = [f"127.0.0.{rank + 2}" for rank in range(ranks)]
        peers = tuple(Peer(rank, f"node-{rank}", at, free_port(at)) for rank, at in enumerate(addresses))
        self.plans = [self._plan(rank, peers) for rank in range(ranks)]

    def _plan(self, rank: int, peers: tuple[Peer, ...]) -> RankFile:
        port = free_port()
        stubborn = Step("node", "daemon", ("sh", "-c", STUBBORN))
        engine = (
            Step("peers", "peers", deadline_s=DEADLINE_S),
            Step("engine", "daemon", (sys.executable, str(ENGINE), str(port), str(self.directory))),
            Step("port", "tcp", host="127.0.0.1", port=port, every_s=0.1),
        )
        return RankFile(
            deployment="test",
            generation=1,
            plan_digest="digest",
            rank=rank,
            node=peers[rank].node,
            address=peers[rank].address,
            executor="ray",
            peers=peers,
            agent_port=peers[rank].agent_port,
            check_port=free_port(peers[rank].address),
            state_dir=str(self.directory / f"rank-{rank}"),
            agent_token_file=str(self.directory / "token"),
            steps=(stubborn, *engine) if rank == 0 else (stubborn,),
            service=Service(
                base_url=f"http://127.0.0.1:{port}",
                served_name="tiny",
                context_tokens=CONTEXT_TOKENS,
                engine_key_file=str(self.directory / "key"),
                ready_deadline_s=DEADLINE_S,
                completion_deadline_s=10.0,
                canary_every_s=0.5,
            ),
            policy=FAST,
        )

    def start(self, *ranks: int, env: Mapping[str, str] | None = None) -> None:
        for rank in ranks or range(len(self.plans)):
            path = self.directory / f"rank-{rank}.json"
            path.write_text(self.plans[rank].to_json())
            argv = (sys.executable, "-I", "-S", str(self.archive), "run", str(path))
            with (self.directory / f"rank-{rank}.out").open("ab") as out:
                self.agents[rank] = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **(env or {})})

    def get(self, rank: int, path: str, token: str = "") -> httpx.Response:
        plan = self.plans[rank]
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return self.http.get(f"http://{plan.address}:{plan.agent_port}{path}", headers=headers)

    def status(self, rank: int) -> RankStatus | None:
        try:
            return RankStatus.from_json(self.get(rank, "/rank").text)
        except (httpx.HTTPError, ValueError):
            return None

    def wait(self, rank: int, wanted: Callable[[RankStatus], object]) -> RankStatus:
        """The first status of a rank that is as wanted; an ``AssertionError`` with the last one after the deadline."""
        end = time.monotonic() + DEADLINE_S
        while True:
            found = self.status(rank)
            if found and wanted(found):
                return found
            assert time.monotonic() < end, f"rank {rank} last said {found}"
            time.sleep(0.1)

    def wait_ready(self, attempt: int) -> RankStatus:
        return self.wait(0, lambda found: found.ready and found.attempt == attempt)

    def complete(self) -> httpx.Response:
        """One completion straight from the engine."""
        headers = {"Authorization": f"Bearer {(self.directory / 'key').read_text()}"}
        return httpx.post(f"{self.plans[0].service.base_url}/v1/chat/completions", headers=headers, json={}, timeout=60)

    def check(self) -> str:
        """What HAProxy's agent-check would read."""
        with socket.create_connection((self.plans[0].address, self.plans[0].check_port), timeout=5) as link:
            return link.makefile().read()

    def daemons(self, rank: int) -> dict[int, str]:
        return pids_marked(f"SPARKCTL_STATE_DIR={self.plans[rank].state_dir}\0")

    def log(self, rank: int) -> str:
        return (self.directory / f"rank-{rank}.out").read_text()

    def stop(self) -> None:
        """End the agents, then whatever a test left: nothing may outlive it."""
        self.http.close()
        for agent in self.agents.values():
            agent.send_signal(signal.SIGTERM)
        for agent in self.agents.values():
            try:
                agent.wait(30)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        sweep(f"SPARKCTL_STATE_DIR={self.directory}/")
