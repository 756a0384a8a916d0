"""Polls the other agents' ``GET /rank``, one thread each, so that a silent one delays nobody."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import httpx

from orchestrator.agent.plainhttp import plain_client
from orchestrator.agent.server import token
from orchestrator.agent.views import PeerView
from orchestrator.plan.rankfile import Peer, RankFile, RankStatus

POLL_EVERY_S = 1.0
HURRY_EVERY_S = 0.25
"""The pace while a peer is between two attempts: three such waits make up most of a gang's restart."""
PASSING = ("waiting", "starting", "stopping", "failed")
POLL_TIMEOUT_S = 2.0


class Peers:
    """What the peers last said. Rank 0 polls all; the others rank 0, or all when a step waits for peers."""

    def __init__(self, plan: RankFile) -> None:
        self.plan = plan
        everyone = plan.rank == 0 or any(step.kind == "peers" for step in plan.steps)
        chosen = [peer for peer in plan.peers if peer.rank != plan.rank and (everyone or peer.rank == 0)]
        began_at = time.monotonic()
        self._views = {peer.rank: PeerView(heard_at=began_at) for peer in chosen}
        self._token = token(plan)
        for peer in chosen:
            threading.Thread(target=self._poll_on, args=(peer,), daemon=True).start()

    def views(self) -> dict[int, PeerView]:
        return dict(self._views)

    def _poll_on(self, peer: Peer) -> None:
        host = f"[{peer.address}]" if ":" in peer.address else peer.address
        headers = {"Authorization": f"Bearer {self._token}"}
        url = f"http://{host}:{peer.agent_port}/rank"
        with plain_client(POLL_TIMEOUT_S) as http:
            http.headers.update(headers)
            while True:
                try:
                    view = self._ask(http, url, peer)
                except httpx.HTTPError as error:
                    # The address is of use only here: where nobody answers, the network may be what is wrong.
                    silent = f"its agent does not answer at {host}:{peer.agent_port} ({error or type(error).__name__})"
                    view = replace(self._views[peer.rank], saw=silent)
                except ValueError as error:
                    view = replace(self._views[peer.rank], saw=f"its agent {error}")
                self._views[peer.rank] = view
                passing = view.status is not None and not view.saw and view.status.state in PASSING
                time.sleep(HURRY_EVERY_S if passing else POLL_EVERY_S)

    def _ask(self, http: httpx.Client, url: str, peer: Peer) -> PeerView:
        """One answer. Raises ``ValueError`` for one that is not from this rank of this generation."""
        asked_at = time.monotonic()
        response = http.get(url)
        if response.status_code != 200:
            means = {503: "has no status yet", 401: "does not know our token: it may be of another generation"}
            raise ValueError(means.get(response.status_code, f"answered {response.status_code}"))
        try:
            status = RankStatus.from_json(response.text)
        except ValueError as error:
            raise ValueError(f"answered {error}") from error
        expected = (self.plan.deployment, self.plan.generation, self.plan.plan_digest, peer.rank)
        found = (status.deployment, status.generation, status.plan_digest, status.rank)
        if found != expected:
            raise ValueError(
                f"is another: should be rank {peer.rank} of {self.plan.deployment} generation {self.plan.generation}, "
                f"found rank {status.rank} of {status.deployment} generation {status.generation}"
            )
        return PeerView(status, asked_at, "")
