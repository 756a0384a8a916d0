"""What an unquoted YAML word means. One reading only; words that YAML 1.1 and 1.2 read differently are traps.

A timestamp and a clock time (``2026-11-30``, ``22:22``) are text, ``1e5`` is a number, and ``yes``, ``on`` and ``010``
are traps: they get a stand-in value so that the rest of the file is checked as well, and the reason they are refused.
"""

from __future__ import annotations

import math
import re

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_YES_NO = re.compile(r"yes|no|on|off", re.IGNORECASE)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_ZERO_LED = re.compile(r"[-+]?0[0-9_]+|0o[0-7]+|[-+]?0b[01_]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LARGEST = 2**63 - 1
_NUMERIC = "+-.0123456789"
_LONGEST_WORD = len("false")


def read_plain(text: str) -> tuple[str | int | float | bool | None, str]:
    """The value of an unquoted word and, for a trap, the words that say what it should be (empty otherwise)."""
    if len(text) > _LONGEST_WORD and text[0] not in _NUMERIC:  # most of what people write
        return text, ""
    if _NULL.fullmatch(text):
        return None, ""
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return bool(_TRUE.fullmatch(text)), ""
    if _YES_NO.fullmatch(text):
        return True, "should be true or false, or in quotes when text is meant"
    if len(text) > 400 or text[0] not in _NUMERIC:
        return text, ""
    return _number(text)


def _number(text: str) -> tuple[str | int | float, str]:
    if _ZERO_LED.fullmatch(text):
        return 1, "should be a number without a leading zero, or in quotes when text is meant"
    if _INTEGER.fullmatch(text) or _HEX.fullmatch(text):
        number = int(text, 16 if "x" in text else 10)
        if abs(number) > _LARGEST:
            return 1, f"should be a number up to {_LARGEST}"
        return number, ""
    if _NOT_FINITE.fullmatch(text):
        return 1.0, "should be a finite number"
    if _FLOAT.fullmatch(text):
        value = float(text)
        return (value, "") if math.isfinite(value) else (1.0, "should be a finite number")
    return text, ""
