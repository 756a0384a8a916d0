"""What must not leave the desk is taken out, and what one needs to understand stays."""

from __future__ import annotations

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
