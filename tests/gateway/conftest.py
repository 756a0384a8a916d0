"""One ready gateway for every test that changes nothing about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.gateway.fakes import FakeAgent, FakeEngine
from tests.gateway.rig import Gateway, gateway_over, until


@dataclass
class Ready:
    """A gateway with one engine behind it, open to clients."""

    gateway: Gateway
    engine: FakeEngine
    agent: FakeAgent


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    engine, agent = FakeEngine(), FakeAgent()
    folder = tmp_path_factory.mktemp("gateway") / "odd $(name) 'of' \"a\" földer"
    with gateway_over(folder, (engine, agent)) as running:
        until(running.ready, "the gateway opens")
        yield Ready(running, engine, agent)


@pytest.fixture
def ready(shared: Ready) -> Ready:
    """The shared gateway, with an engine that has seen nothing yet and streams that wait."""
    shared.engine.seen.clear()
    shared.engine.go.clear()
    shared.engine.hung_up.clear()
    while shared.engine.streaming.acquire(blocking=False):
        pass
    return shared
