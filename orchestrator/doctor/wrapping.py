"""Takes off what a collector put around the lines of a log, and parts a log into which several ranks write. Pure.

`sparkctl logs` and compose tell rank after rank, or as the answers come: where a line stands among those of other ranks
says nothing of when it was written. So each rank gets a log of its own, and only their times have an order.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from orchestrator.doctor.incident import Log

LOOKED_AT = 2000
"""How much of a line is looked at, in characters: engines dump whole states in one line."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# docker's json-file; a line that was cut has no end.
_PACKED = re.compile(r'^\{"log": ?"(?P<text>(?:[^"\\]|\\.)*)(?:".*?"time": ?"(?P<time>[^"]{1,40})")?')
# "spark-1 0 | " (sparkctl logs), "head-1  | " (compose)
_MERGED = re.compile(r"^(?P<node>[\w.-]{1,64}) +(?:(?P<rank>\d{1,4}|gateway) +)?\| ?")
# What compose says itself has no such front: of one container, or of all.
_ENDED = re.compile(r"^(?P<node>[\w.-]{1,64}) exited with code \d")
_TO_ALL = "Gracefully Stopping... press Ctrl+C again"


def clean(line: str) -> str:
    """The part of a line that is looked at: without colours, out of docker's JSON (with its time in front)."""
    line = line[:LOOKED_AT]
    packed = _PACKED.match(line) if line.startswith('{"log":') else None
    if packed:
        line = f"{packed['time'] or ''} {_unescaped(packed['text'])}".lstrip()
    line = line.rstrip("\r\n")
    return _COLOUR.sub("", line) if "\x1b" in line else line


def parts(log: Log) -> tuple[Log, ...]:
    """A log for each rank that writes into this one, with clean lines; ``numbers`` says where they stood."""
    lines = tuple(map(clean, log.lines))
    owners = [_MERGED.match(line) if "|" in line[:80] else None for line in lines]
    if log.node or 2 * sum(owner is not None for owner in owners) <= sum(line != "" for line in lines):
        return (replace(log, lines=lines),)
    told: dict[tuple[str, str], list[tuple[int, str]]] = {}
    whose = ("", "")
    for number, (line, owner) in enumerate(zip(lines, owners, strict=True), 1):
        if owner:
            whose = owner["node"], owner["rank"] or ""
        ended = _ENDED.match(line)
        named = (ended["node"], "") if ended and (ended["node"], "") in told else whose
        told.setdefault(named, [])
        for one in told if _TO_ALL in line else (named,):
            told[one].append((number, line[owner.end() :] if owner else line))
    return tuple(
        replace(
            log,
            lines=tuple(line for _, line in rows),
            node=node or log.node,
            rank=rank or log.rank,
            numbers=tuple(number for number, _ in rows),
        )
        for (node, rank), rows in told.items()
    )


def _unescaped(text: str) -> str:
    """What a JSON string says, as a terminal would show it; the text itself where its end was cut off badly."""
    try:
        text = str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text
    return text.rstrip("\r\n").rpartition("\r")[2]
