"""Secrets out of text, whatever version of an engine wrote it: older ones print what they were given. Pure."""

from __future__ import annotations

import re

_NAME = r"(?:hf_token|hugging_?face_hub_token|(?:vllm_)?api[_-]?keys?|password|secret_key)"
_NAMED = re.compile(
    rf"(?P<before>['\"]?\b{_NAME}['\"]?\s?[:=]\s?|--(?:api-key|hf-token)\s)(?!None\b)(?P<value>\[[^\]\n]{{0,4000}}\]?|'[^'\n]{{1,500}}'?"
    r"|\"[^\"\n]{1,500}\"?|[^\s,;)}\]]{4,500})",
    re.IGNORECASE,
)
_SHAPED = re.compile(r"\bhf_[A-Za-z0-9]{8,}|\bsk-[A-Za-z0-9_-]{8,}|(?<=[Bb]earer )[A-Za-z0-9._~+/-]{8,}")
_HINTS = ("oken", "OKEN", "api", "API", "Api", "assw", "ASSW", "ecret", "ECRET", "hf_", "sk-", "earer ")


def redact(text: str) -> str:
    """``text`` with ``***`` for the value of every token, key and password, by its name or by its shape."""
    if not any(hint in text for hint in _HINTS):
        return text
    return _SHAPED.sub("***", _NAMED.sub(lambda found: f"{found['before']}***", text))
