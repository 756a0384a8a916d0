"""What must not leave the desk is taken out, and what one needs to understand stays."""

from __future__ import annotations

import itertools
import random
import string
from pathlib import Path

import pytest

from orchestrator.doctor.redact import redact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer ***"),
        ("key sk-sparkctl-ZKJU2KoRf6ipfPiUy1 in a line", "key *** in a line"),
        ("HF_TOKEN=hf_TESTONLY000000000000", "HF_TOKEN=***"),
        ('{"api_key": "abcdef123456", "port": 8000}', '{"api_key": ***, "port": 8000}'),
        ("VLLM_API_KEY='secretvalue'", "VLLM_API_KEY=***"),
        ("password: hunter22", "password: ***"),
        ("https://me:secret@example.org/x", "https://***@example.org/x"),
        ("link/ether 4c:bb:47:00:11:22 brd", "link/ether *** brd"),
        ("GPU 0: NVIDIA GB10 (UUID: GPU-12345678-1234-1234-1234-123456789abc)", "GPU 0: NVIDIA GB10 (UUID: ***)"),
        ("Serial Number: 1234567890A", "Serial Number: ***"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\nafter", "***\nafter"),
        ("a token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def here", "a token *** here"),
    ],
)
def test_secrets_are_taken_out(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens=8192, tokens: 12345",
        "VLLM_API_KEY_FILE=/home/spark/.local/state/sparkctl/x/g1/rank-0/engine.key",
        "RAY_AUTH_TOKEN_PATH: /run/sparkctl/ray.token",
        "192.168.100.11 enp1s0f0np0 rocep1s0f0 fe80::1 sha256:0123456789abcdef",
        '"prompt_tokens": 17, "completion_tokens": null, "token": true',
        "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_known_value_goes_whatever_it_looks_like() -> None:
    assert redact("the word is opensesame, twice: opensesame", ["opensesame", "of"]) == "the word is ***, twice: ***"


# Shapes of secrets, each made anew from a seed, and the ways in which programs write a value beside its name.
SEED = 20261130


def secrets() -> list[str]:
    dice = random.Random(SEED)

    def of(letters: str, length: int) -> str:
        return "".join(dice.choice(letters) for _ in range(length))

    word, hexes = string.ascii_letters + string.digits, "0123456789abcdef"
    return [
        of(string.digits, 8),
        of(string.digits, 13),
        of(string.ascii_lowercase, 9) + "99",
        of(word, 24),
        of(word, 38) + "/" + of(word, 4) + "+" + of(word, 3) + "==",
        of(hexes, 32),
        f"{of(word, 8)}-{of(word, 4)}_{of(word, 12)}",
        "correcthorsebattery",
    ]


NAMES = (
    "password", "PASSWD", "passphrase", "api_key", "api-key", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "secret",
    "secret_key", "HF_TOKEN", "auth_token", "client_secret", "private_key", "credential",
)  # fmt: skip
WRITTEN = (
    "{name}={value}",
    "{name}: {value}",
    "{name} = {value}",
    "export {name}='{value}'",
    '{{"{name}": "{value}", "port": 8000}}',
    '{{"{name}":"{value}"}}',
    "{{'{name}': '{value}'}}",
    "Namespace(port=8000, {name}='{value}', model=None)",
    "{name}=['{value}', 'second']",
    '  {name}: "{value}"  # yaml',
)
SPOKEN = (
    "--api-key {value} --port 8000",
    "--api-key={value} --port 8000",
    '["serve", "--api-key", "{value}", "--port", "8000"]',
    '["--api-key","{value}"]',
    "['--hf-token', '{value}']",
    "--token {value}",
    "Authorization: Bearer {value}",
    "Authorization: Basic {value}",
    "'Authorization': 'Token {value}'",
    "authorization: {value}",
    "https://user:{value}@example.org/v1",
    "Serial Number: {value}",
    "    Serial Number                         : {value}",
    '"serial": "{value}"',
    "serial_number={value}",
)


@pytest.mark.parametrize("value", secrets())
def test_no_secret_survives_however_it_is_written(value: str) -> None:
    lines = [form.format(name=name, value=value) for name, form in itertools.product(NAMES, WRITTEN)]
    in_urls_and_serials = not set("/+=_") & set(value)
    lines += [
        form.format(value=value)
        for form in SPOKEN
        if in_urls_and_serials or not ("://" in form or "erial" in form)  # neither of them holds such letters
    ]
    kept = [line for line in lines if value in redact(f"INFO 11-30 before\n{line}\nafter")]
    assert kept == []


@pytest.mark.parametrize(
    "value",
    [
        "38a3:e500:03ce:e09c",
        "4c:bb:47:00:11:22",
        "4c-bb-47-00-11-22",
        "3aa3:e5ff:fece:e09c",
        "ghp_0123456789abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
@pytest.mark.parametrize(
    "form", ["node_guid: {0}", "{0}", "fe80::{0}/64", "x [{0}]", "fe80:0000:0000:0000:{0}", "a={0},"]
)
def test_what_names_one_machine_or_is_a_key_by_its_shape_goes(value: str, form: str) -> None:
    if "fe80" not in form or value.count(":") == 3:
        assert value not in redact(form.format(value))


def test_ordinary_lines_do_not_change() -> None:
    root = Path(__file__).parents[1]
    lines = [
        "max_tokens=4096, max_num_batched_tokens: 8192, --max-tokens 4096, max_token=4096",
        "cost per token: 11305, Avg prompt throughput: 12.3 tokens/s, token: 12.34 ms",
        "2026-11-30T01:41:04.123 (EngineCore pid=12) INFO 11-30 01:47:40 [core.py:12] token budget 8192",
        "inet6 fe80::1/64 scope link, ::ffff:192.168.100.11, 0000:0000:0000:0000:0000:ffff:c0a8:640b RoCE v2",
        "0000:01:00.0 mlx5_core: Rx 12:34:56 sha256:0123456789abcdef, 38a3e50003cee09c p0",
        "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [1]roceP2p1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.11<0>",
        "eos_token_id=2, pad_token=None, token_type_ids, tokenizer='/models/x', secrets: 0, user 1000:1000",
        "usage: vllm serve [--api-key KEY] serial console ttyS0: 115200",
    ]
    for path in sorted((root / "cases").glob("healthy*.log")):
        lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
    assert [(line, redact(line)) for line in lines if redact(line) != line] == []
