"""Takes out of a text what must not leave the operator's desk: keys, tokens, serial numbers, hardware addresses. Pure.

Older engines print what they were given, so a log may hold anything. Addresses and names of nodes stay: without them
nobody could follow what happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

GONE = "***"

_SHAPED = re.compile(
    r"\b(?:sk|hf|gh[pousr]|xox[bap]|nvapi|glpat)[-_][A-Za-z0-9_-]{8,}"  # keys, by the shape that their owners give them
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{6,}"
    r"|(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)"
    r"|\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"  # a MAC address
    r"|\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_WORD = r"(?:token|secret(?:_key)?|passw(?:or)?d|api[_-]?keys?|credential|serial(?:[ _-]?n(?:o|umber))?)"
# What stands behind a name that ends in a word for a secret. A path to one, a number or nothing at all is none.
_NAMED = re.compile(
    rf"(?P<before>{_WORD}['\"]?\s?[:=]\s?|--(?:api-key|hf-token)\s)"
    r"(?!['\"]?(?:None|null|true|false|\d+(?:\.\d+)?|\*\*\*)['\"]?(?:[\s,;)}\]]|$)|['\"]?[/~])"
    r"(?P<value>\[[^\]\n]{0,4000}\]?|'[^'\n]{1,500}'?|\"[^\"\n]{1,500}\"?|[^\s,;)}\]'\"]{4,500})",
    re.IGNORECASE,
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """``text`` with ``***`` for every secret in it. ``known`` are values that are secret whatever they look like."""
    for value in sorted({each for each in known if len(each) >= 6}, key=len, reverse=True):
        text = text.replace(value, GONE)
    if "PRIVATE KEY" in text:
        text = _PRIVATE.sub(GONE, text)
    return _SHAPED.sub(GONE, _NAMED.sub(lambda found: f"{found['before']}{GONE}", text))
