"""The gateway against going to the engine directly: the same client, the same upstream, turn by turn.

The upstream is asyncio in a process of its own and does next to nothing, so that the gateway's share is seen at its
worst: a real engine thinks for milliseconds where this one answers in microseconds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from tests.bench.target import at_least
from tests.gateway.fakes import FakeAgent
from tests.gateway.rig import ALICE_KEY, chat, gateway_over, until

CONNECTIONS = 16
REQUESTS = 100
STREAMS = 15
ROUNDS = 3
TOKENS = 32


@dataclass(frozen=True)
class Upstream:
    """What the gateway's test rig needs to know of an engine."""

    name: str
    port: int

    def close(self) -> None:
        """The process is ended by who started it."""


async def serve() -> None:
    """Answer every request; one that asks for a stream gets ``TOKENS`` events, 2 ms apart, as decoding would."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
                body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
                await (_stream(writer) if b'"stream": true' in body else _answer(writer))
                if fields.get(b"connection") == b"close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _answer(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(TOKENS):
        writer.write(b"10\r\ndata: {token: 1}\r\n")
        await writer.drain()
        await asyncio.sleep(0.002)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def client(port: int, count: int, *, stream: bool) -> tuple[float, list[float]]:
    """``CONNECTIONS`` clients, ``count`` requests each: (requests per second, seconds to the first byte)."""
    body = json.dumps(chat(stream=stream)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {ALICE_KEY}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    first: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count):
            began = perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            first.append(perf_counter() - began)
            await (reader.readuntil(b"0\r\n\r\n") if stream else reader.readexactly(2))
        writer.close()

    began = perf_counter()
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return CONNECTIONS * count / (perf_counter() - began), first


def run() -> list[str]:
    """Medians of ``ROUNDS`` turns and the gateway's share of the direct rate."""
    engine = subprocess.Popen([sys.executable, "-m", "tests.bench.gateway"], stdout=subprocess.PIPE, text=True)
    agent = FakeAgent()
    assert engine.stdout is not None
    direct = int(engine.stdout.readline())
    lines = []
    try:
        with (
            tempfile.TemporaryDirectory() as name,
            gateway_over(Path(name) / "g", (Upstream("rank0", direct), agent)) as front,  # type: ignore[arg-type]
        ):
            until(front.ready, "the gateway to open")
            for what, stream, count in (("requests", False, REQUESTS), ("streams", True, STREAMS)):
                lines += _compare(what, (direct, front.spec.bind_port), stream=stream, count=count)
    finally:
        engine.kill()
        engine.wait()
        agent.close()
    return lines


def _compare(what: str, ports: tuple[int, int], *, stream: bool, count: int) -> list[str]:
    rates: dict[int, list[float]] = {port: [] for port in ports}
    firsts: dict[int, list[float]] = {port: [] for port in ports}
    for _ in range(ROUNDS):
        for port in ports:
            rate, first = asyncio.run(client(port, count, stream=stream))
            rates[port].append(rate)
            firsts[port] += first
    rates_s = [statistics.median(rates[port]) for port in ports]
    first_ms = [statistics.median(firsts[port]) * 1000 for port in ports]
    lines = [
        f"{what:<9} direct {rates_s[0]:7.0f}/s  gateway {rates_s[1]:7.0f}/s  {rates_s[1] / rates_s[0]:.2f}x of direct",
        f"{'':<9} first byte: direct {first_ms[0]:.2f} ms, gateway {first_ms[1]:.2f} ms",
    ]
    return [*lines, at_least("streams/s through the gateway", rates_s[1] / rates_s[0], 0.8, "x")] if stream else lines


if __name__ == "__main__":
    asyncio.run(serve())
