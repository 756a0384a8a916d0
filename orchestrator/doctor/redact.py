"""Takes out of a text what must not leave the operator's desk: keys, tokens, serial numbers, hardware addresses. Pure.

Addresses and names of nodes stay: without them nobody could follow what happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

GONE = "***"

_SHAPES = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        # Keys by the shape that their owners give them.
        (r"\b(?:sk|hf|gh[pousr]|xox[bap]|nvapi|glpat)[-_][A-Za-z0-9_-]{8,}", 0),
        (r"\bAKIA[0-9A-Z]{16}\b", 0),
        (r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", 0),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        # What stands behind a word that announces a secret, as a header, a variable, a flag or JSON.
        (r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{6,}", 0),
        (r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)", 0),
        # Hardware: MAC and RDMA port addresses, serial numbers of GPUs, boards and disks.
        (r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b", 0),
        (r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", 0),
    )
)
_NAMED = re.compile(
    r"""(?ix) ( ["']? [A-Z0-9_.-]*
        (?: token | secret | passw(?:or)?d | api[_-]?key | credential | serial(?:[ _-]?n(?:o|umber))? )
        [A-Z0-9_.-]* ["']? \s* [:=] \s* ["']? ) ( [^\s"',;}\]]{4,} )"""
)
# A path to a secret, or a count of tokens, is none.
_HARMLESS = re.compile(r"[/~].*|\d+(\.\d+)?|true|false|null|none|\*\*\*", re.IGNORECASE)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """``text`` with ``***`` for every secret in it. ``known`` are values that are secret whatever they look like."""
    for value in sorted({each for each in known if len(each) >= 6}, key=len, reverse=True):
        text = text.replace(value, GONE)
    for shape in _SHAPES:
        text = shape.sub(GONE, text)
    return _NAMED.sub(lambda match: match[0] if _HARMLESS.fullmatch(match[2]) else match[1] + GONE, text)
