"""known_hosts as OpenSSH reads it."""

from __future__ import annotations

import base64

import pytest

from orchestrator.run.knownhosts import Verdict, fingerprint, judge, kinds, parse, record_name

A, B = (base64.b64encode(name * 8).decode() for name in (b"key a", b"key b"))
BLOB = base64.b64decode(A)


@pytest.mark.parametrize(
    ("content", "name", "state"),
    [
        (f"spark-1 ssh-ed25519 {A}", "spark-1", "ok"),
        (f"spark-1 ssh-ed25519 {A} a comment here", "spark-1", "ok"),
        (f"spark-1,192.168.1.5 ssh-ed25519 {A}", "192.168.1.5", "ok"),
        (f"*.lab,!evil.lab ssh-ed25519 {A}", "x.lab", "ok"),
        (f"*.lab,!evil.lab ssh-ed25519 {A}", "evil.lab", "unknown"),
        (f"spark-? ssh-ed25519 {A}", "spark-1", "ok"),
        (f"SPARK-1 ssh-ed25519 {A}", "spark-1", "ok"),
        (f"[spark-1]:2222 ssh-ed25519 {A}", "[spark-1]:2222", "ok"),
        (f"[spark-1]:2222 ssh-ed25519 {A}", "[spark-1]:2223", "unknown"),
        (f"spark-1 ssh-ed25519 {A}", "[spark-1]:2222", "ok"),
        (f"spark-1 ssh-ed25519 {B}", "[spark-1]:2222", "unknown"),
        (f"[spark-1]:2222 ssh-ed25519 {A}", "spark-1", "unknown"),
        (f"spark-1 ssh-ed25519 {B}", "spark-1", "changed"),
        (f"spark-1 ssh-rsa {B}", "spark-1", "changed"),
        (f"spark-1 ssh-ed25519 {B}\nspark-1 ssh-ed25519 {A}", "spark-1", "ok"),
        (f"spark-1 ssh-ed25519 {A}\n@revoked * ssh-ed25519 {A}", "spark-1", "revoked"),
        (f"@cert-authority * ssh-ed25519 {A}", "spark-1", "unknown"),
        (f"# spark-1 ssh-ed25519 {A}", "spark-1", "unknown"),
        ("spark-1 ssh-ed25519 not*base64\nspark-1\n\n", "spark-1", "unknown"),
        (f"spark-1 ssh-ed25519 schlüssel\nspark-1 ssh-ed25519 {A}", "spark-1", "ok"),
        (f"s[p]ark-1 ssh-ed25519 {A}", "spark-1", "unknown"),
        (f"|1|MDEyMzQ1Njc4OWFiY2RlZmdoaWo=|Dcn0Or98jr+YJY3tfwksiFcKob4= ssh-ed25519 {A}", "spark-1", "ok"),
        (f"|1|MDEyMzQ1Njc4OWFiY2RlZmdoaWo=|Dcn0Or98jr+YJY3tfwksiFcKob4= ssh-ed25519 {A}", "spark-2", "unknown"),
        (f"|1|broken ssh-ed25519 {A}", "spark-1", "unknown"),
    ],
)
def test_judge(content: str, name: str, state: str) -> None:
    assert judge(parse("kh", content), name, "ssh-ed25519", BLOB).state == state


def test_the_line_that_decides_is_named() -> None:
    entries = parse("kh", f"# first\nspark-1 ssh-rsa {B}\nspark-1 ssh-ed25519 {B}\n")
    assert judge(entries, "spark-1", "ssh-ed25519", BLOB) == Verdict("changed", entries[1])
    assert (entries[1].file, entries[1].line) == ("kh", 3)


def test_kinds_on_record_in_the_order_of_the_file() -> None:
    content = f"spark-1 ssh-rsa {A}\nother ecdsa {A}\nspark-1 ssh-ed25519 {A}\nspark-1 ssh-rsa {B}"
    assert kinds(parse("kh", content), "spark-1") == ("ssh-rsa", "ssh-ed25519")


def test_names_on_record() -> None:
    assert [record_name("Spark-1", port) for port in (22, 2222)] == ["spark-1", "[spark-1]:2222"]


def test_fingerprint_reads_as_openssh_s() -> None:
    assert fingerprint(b"") == "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"
