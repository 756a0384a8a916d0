"""Asks the engine: cheap looks and real completions, each in a thread of its own so that neither waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.agent.plainhttp import plain_client
from orchestrator.agent.probe import Answer, Counters, Look, Probe, answered, looked, next_canary
from orchestrator.agent.transport import moved, sent
from orchestrator.plan.rankfile import Service

LOOK_EVERY_S = 1.0
FIRST_LOOKS_EVERY_S = 0.25
LOOK_TIMEOUT_S = 10.0
COUNTER_SETTLES_S = 3.0
COUNTERS_TIMEOUT_S = 2.0
"""Around a completion that may hang, counters are asked for no longer: three late canaries take three deadlines."""
_GENERATED = "vllm:generation_tokens_total"
_WORK = (_GENERATED, "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_count")
_UNFINISHED = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def counters(text: str) -> Counters:
    """What an engine's ``/metrics`` counts, summed over its engines; None where it does not count that (yet)."""
    names = (*_WORK, *_UNFINISHED)
    wanted = "\n".join(line for line in text.splitlines() if any(name in line for name in names)) + "\n"
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            if sample.name in names:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return Counters(sums.get(_GENERATED), _sum(sums, _WORK), _sum(sums, _UNFINISHED))


def _sum(sums: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    there = [sums[name] for name in names if name in sums]
    return sum(there) if there else None


def model_seen(body: Any, service: Service) -> str:
    """Nothing when ``/v1/models`` names the expected model and context, else what it names."""
    try:
        found = {model["id"]: model.get("max_model_len") for model in body["data"]}
    except (KeyError, TypeError, AttributeError):
        return "/v1/models did not answer with a list of models"
    if service.served_name not in found:
        return f"should serve {service.served_name}, found {', '.join(found) or 'no model'}"
    context = found[service.served_name]
    if context != service.context_tokens:
        return f"{service.served_name} should have {service.context_tokens} tokens of context, found {context}"
    return ""


class Engine:
    """The engine's HTTP API. Its key is read from the file each time and never kept."""

    def __init__(self, service: Service, timeout_s: float, devices: Sequence[str] = ()) -> None:
        self.service, self.devices = service, tuple(devices)
        self.http = plain_client(timeout_s, service.base_url.rstrip("/").removesuffix("/v1"))

    def _headers(self) -> dict[str, str]:
        if not self.service.engine_key_file:
            return {}
        return {"Authorization": f"Bearer {Path(self.service.engine_key_file).read_text().strip()}"}

    def counters(self, timeout_s: float = LOOK_TIMEOUT_S) -> Counters:
        """The counters now, or none where they cannot be had in time."""
        try:
            return counters(self.http.get("/metrics", headers=self._headers(), timeout=timeout_s).text)
        except (httpx.HTTPError, OSError, ValueError):
            return Counters()

    def look(self) -> Look:
        """One cheap look; whatever goes wrong is what was seen."""
        try:
            health = self.http.get("/health")
            if health.status_code != 200:
                return Look(time.monotonic(), f"/health answered {health.status_code}", "not asked")
            models = self.http.get("/v1/models", headers=self._headers())
            seen = f"/v1/models answered {models.status_code}"
            if models.status_code == 200:
                seen = model_seen(models.json(), self.service)
            return Look(time.monotonic(), "", seen, self.counters())
        except httpx.TimeoutException:
            late = f"no answer within {LOOK_TIMEOUT_S:g} s"
            return Look(time.monotonic(), late, late, slow=True)
        except httpx.ConnectError as error:
            return Look(time.monotonic(), str(error) or type(error).__name__, "not asked", shut=True)
        except (httpx.HTTPError, OSError, ValueError) as error:
            return Look(time.monotonic(), str(error) or type(error).__name__, "not asked")

    def complete(self, known: Counters = Counters()) -> Answer:  # noqa: B008 -- frozen
        """One real chat completion. Tokens are counted by ``usage``: a reasoning model may bring no text.

        ``known`` are the counters that stand for those before it where the engine does not tell them in time.
        """
        began_at = time.monotonic()
        before = self.counters(COUNTERS_TIMEOUT_S)
        before = known if before.work is None else before
        tokens, error, slow = 0, "", False
        idle = sent(self.devices) if self.devices else None
        try:
            response = self.http.post("/v1/chat/completions", headers=self._headers(), json=self._question())
            if response.status_code == 200:
                tokens = int(response.json()["usage"]["completion_tokens"])
                error = "" if tokens >= 1 else "the completion brought no token"
            else:
                error = f"the completion answered {response.status_code}: {response.text[:200]}"
        except httpx.TimeoutException:
            error, slow = f"no completion within {self.service.completion_deadline_s:g} s", True
        except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as failure:
            error = f"the completion failed: {failure or type(failure).__name__}"
        ended_at = time.monotonic()
        across = moved(idle, sent(self.devices)) if self.devices else None
        return Answer(began_at, ended_at, tokens, error, slow, before, self._after(before, bool(error)), across)

    def _question(self) -> dict[str, Any]:
        message = {"role": "user", "content": "Reply with OK."}
        return {"model": self.service.served_name, "messages": [message], "temperature": 0, "max_tokens": 4}

    def _after(self, before: Counters, failed: bool) -> Counters:
        """The counters after a completion; the engine may write them a moment later than it answers."""
        until = time.monotonic() + COUNTER_SETTLES_S
        while True:
            after = self.counters(COUNTERS_TIMEOUT_S if failed else LOOK_TIMEOUT_S)
            rose = after.generated is not None and after.generated > (before.generated or 0)
            if rose or failed or time.monotonic() > until:
                return after
            time.sleep(0.1)


class Prober:
    """Keeps the probe of the attempt at hand. ``watch`` names the attempt, 0 for none."""

    def __init__(self, service: Service, devices: Sequence[str] = ()) -> None:
        self.service, self.devices = service, tuple(devices)
        self.probe = Probe()
        self._lock = threading.Lock()
        for loop in (self._look_on, self._canary_on):
            threading.Thread(target=loop, daemon=True).start()

    def watch(self, attempt: int) -> None:
        """Begin anew for another attempt; what is still asked for the old one will be thrown away."""
        with self._lock:
            if self.probe.attempt != attempt:
                now = time.monotonic()
                self.probe = Probe(attempt=attempt, moved_at=now)

    def _update(self, attempt: int, change: Callable[[Probe], Probe]) -> None:
        with self._lock:
            if self.probe.attempt == attempt:
                self.probe = change(self.probe)

    def _look_on(self) -> None:
        engine = Engine(self.service, LOOK_TIMEOUT_S)
        while True:
            attempt = self.probe.attempt
            if attempt:
                look = engine.look()
                self._update(attempt, lambda probe, look=look: looked(probe, look))  # type: ignore[misc]
            time.sleep(LOOK_EVERY_S if self.probe.proof else FIRST_LOOKS_EVERY_S)

    def _canary_on(self) -> None:
        engine = Engine(self.service, self.service.completion_deadline_s, self.devices)
        while True:
            time.sleep(0.2)
            with self._lock:
                self.probe, due = next_canary(self.probe, self.service, time.monotonic())
                attempt, look = self.probe.attempt, self.probe.look
            if attempt and due:
                answer = engine.complete(look.counters if look else Counters())
                self._update(attempt, lambda probe, answer=answer: answered(probe, answer))  # type: ignore[misc]
