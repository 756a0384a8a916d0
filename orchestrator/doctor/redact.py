"""Takes out of a text what must not leave the operator's desk: keys, tokens, serial numbers, hardware addresses. Pure.

Older engines print what they were given, so a log may hold anything. Addresses and names of nodes stay: without them
nobody could follow what happened. A GID that holds an IPv4 address stays for the same reason; a GUID, and a GID made of
one, name a piece of hardware and go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

GONE = "***"

_SHAPED = re.compile(
    r"\b(?:sk|hf|gh[pousr]|xox[bap]|nvapi|glpat)[-_][A-Za-z0-9_-]{8,}"  # keys, by the shape that their owners give them
    r"|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{35}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
    r"|(?<=[Bb]earer )(?!(?:unless|if|realm)\b)[A-Za-z0-9._~+/=-]{6,}"
    r"|(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)"
    r"|(?<![0-9a-fA-F:-])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:-])"  # a MAC address
    # A node GUID, 38a3:e500:03ce:e09c or 0x38a3e50003cee09c, which no clock and no shortened address looks like.
    r"|(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}(?![0-9a-fA-F:])"
    r"|\b(?:node|port|sys(?:tem)?_image|sys_img)_guid['\"]?\s*[:=]?\s*['\"]?(?:0x)?[0-9a-fA-F]{16}\b"
    # The last half of an address that was made of a MAC address (EUI-64 has ff:fe in its middle).
    r"|(?<=:)[0-9a-fA-F]{1,4}:[0-9a-fA-F]{0,2}[fF]{2}:[fF][eE][0-9a-fA-F]{2}:[0-9a-fA-F]{1,4}(?![0-9a-fA-F:])"
    # InfiniBand puts a port's GUID there as it is.
    r"|(?:(?<=fe80::)|(?<=fe80:0000:0000:0000:))(?:[0-9a-f]{1,4}:){3}[0-9a-f]{1,4}\b"
    r"|\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_WORD = (
    r"(?:(?<!per[ _-])(?<!num[ _-])(?<!max[ _-])(?<!min[ _-])token(?!['\"]?\s?[:=]\s?\d+\.\d)"
    r"|secret(?:[_-]?(?:access[_-]?)?key)?|access[_-]?key|private[_-]?key|passw(?:or)?d|passphrase"
    r"|api[_-]?keys?|credentials?)"
)
# A path to a secret, the name of a switch or nothing at all is no secret. A number is one (a PIN, a password of digits)
# unless it counts tokens, which the words before "token" say.
_PLAIN = r"(?!['\"]?(?:None|null|true|false|\*\*\*)['\"]?(?:[\s,;)}\]]|$)|['\"]?[/~])"
_VALUE = r"(?P<value>\[[^\]\n]{0,4000}\]?|'[^'\n]{1,500}'?|\"[^\"\n]{1,500}\"?|[^\s,;)}\]'\"]{4,500})"
_NAMED = re.compile(rf"(?P<before>{_WORD}['\"]?\s{{0,3}}[:=]\s{{0,3}}){_PLAIN}{_VALUE}", re.IGNORECASE)
# The word after an option that takes a secret, in a command line or in the list that one was made of.
_OPTION = re.compile(
    rf"(?P<before>(?<![\w-])--?(?:[a-z]+-)*(?:api-key|hf-token|token|password|passphrase|secret)(?:['\"]\s?,\s?|\s)){_PLAIN}"
    r"(?P<value>'[^'\n]{1,500}'?|\"[^\"\n]{1,500}\"?|(?!-)[^\s,;)}\]'\"]{4,500})",
    re.IGNORECASE,
)
_SCHEME = re.compile(
    r"(?P<before>\b(?:proxy-)?authorization['\"]?\s?[:=]\s?['\"]?(?:(?:basic|digest|token|negotiate|apikey)\s)?)"
    r"(?!(?:bearer|basic|digest|token|negotiate|apikey)\b|\*\*\*)(?P<value>[A-Za-z0-9._~+/=-]{6,})",
    re.IGNORECASE,
)
# Whatever names one machine: dmidecode's line, the column of nvidia-smi -q, a JSON field of lshw or lsblk.
_SERIAL = re.compile(
    r"(?P<before>\bserial(?:[ _-]?(?:n(?:o|um|umber))?)?['\"]?\s{0,40}[:=]\s?['\"]?)"
    r"(?!N/A|null|None|Not\b|To be\b|\*\*\*)(?P<value>[A-Za-z0-9][A-Za-z0-9-]{3,40})\b",
    re.IGNORECASE,
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """``text`` with ``***`` for every secret in it. ``known`` are values that are secret whatever they look like."""
    for value in sorted({each for each in known if len(each) >= 6}, key=len, reverse=True):
        text = text.replace(value, GONE)
    if "PRIVATE KEY" in text:
        text = _PRIVATE.sub(GONE, text)
    for pattern in (_NAMED, _OPTION, _SCHEME, _SERIAL):
        text = pattern.sub(lambda found: f"{found['before']}{GONE}", text)
    return _SHAPED.sub(GONE, text)
