"""Asking nodes for their details and for pings: all at once, one round trip each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.facts import detail_question, reach
from orchestrator.facts.detail import NodeDetail
from orchestrator.facts.detail_answer import parse
from orchestrator.facts.node import UnreadableFactsError, sections
from orchestrator.facts.reach import Ping
from orchestrator.run.at_once import at_once
from orchestrator.run.transport import NodeError, Transport

# Four tools may hang for ten seconds each before the node answers without them.
DEADLINE_S = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Details:
    """What the nodes said, and which did not answer and why; in the order in which they were asked."""

    details: Mapping[str, NodeDetail]
    silent: Mapping[str, NodeError]


def gather(transports: Mapping[str, Transport], question: Mapping[str, tuple[str, ...]] | None = None) -> Details:
    """Ask every node at once. ``question`` holds an argv of ``detail_question`` for nodes that are asked for more."""

    def ask(name: str) -> NodeDetail:
        argv = (question or {}).get(name) or detail_question.question()
        asked_at = time.time()
        said = transports[name].run(argv, deadline_s=DEADLINE_S).stdout
        try:
            return parse(name, said, asked_at)
        except UnreadableFactsError as error:
            raise NodeError(name, str(error), "look at what the shell of that user prints when it starts") from None

    details, silent = from_each(ask, transports, transports)
    return Details(details, silent)


@dataclass(frozen=True, slots=True)
class Echoes:
    """The answers of the pings of each node, and the nodes that could not be asked any more."""

    reached: Mapping[str, Mapping[Ping, bool]]
    silent: Mapping[str, NodeError]


def ping(transports: Mapping[str, Transport], pings: Mapping[str, tuple[Ping, ...]]) -> Echoes:
    """Send the pings of each node, all at once."""

    def send(name: str) -> Mapping[Ping, bool]:
        said = transports[name].run(reach.question(pings[name]), deadline_s=DEADLINE_S).stdout
        return reach.answers(sections(said).get("pings", []))

    return Echoes(*from_each(send, pings, transports))


def from_each(
    job: Callable[[str], T], names: Mapping[str, object], seats: Mapping[str, Transport] | None = None
) -> tuple[dict[str, T], dict[str, NodeError]]:
    """Run ``job`` for every name in parallel: what came out, and the ``NodeError`` of each that failed."""

    def one(name: str) -> T | NodeError:
        try:
            return job(name)
        except NodeError as error:
            return error

    every = at_once(one, names, seats)
    done = {name: answer for name, answer in every.items() if not isinstance(answer, NodeError)}
    return done, {name: answer for name, answer in every.items() if isinstance(answer, NodeError)}
