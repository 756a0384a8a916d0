"""The gateway as text: what it holds, what it refuses to hold, and whether HAProxy takes it without a word."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.plan import gateway
from orchestrator.plan.gateway_answers import ERRORS, OWN_ERRORS
from tests.gateway.rig import ALICE_KEY, BINARY, BOB_KEY, ENGINE_KEY, needs_haproxy, place

ONE = gateway.Backend("rank-0", "192.168.100.11", 8001, "192.168.100.11", 7071, 7070)
TWO = gateway.Backend("rank-4", "192.168.101.13", 8001, "192.168.101.13", 7071, 7070)
SPEC = gateway.GatewaySpec("0.0.0.0", 8000, (ONE,), 8404, 33554432)
V6 = gateway.Backend("v6", "fd00::11", 8001, "fd00::11", 7071, 7070)

SPECS = {
    "one": SPEC,
    "two": dataclasses.replace(SPEC, backends=(ONE, TWO)),
    "no metrics": dataclasses.replace(SPEC, stats_port=None),
    "loopback": dataclasses.replace(SPEC, bind_address="127.0.0.1"),
    "v6": dataclasses.replace(SPEC, bind_address="::", backends=(V6,)),
    "tiny bodies": dataclasses.replace(SPEC, max_body_bytes=1024),
    "huge bodies": dataclasses.replace(SPEC, max_body_bytes=2**40),
    "slow": dataclasses.replace(SPEC, idle_timeout_s=86400, client_stall_s=3600, request_timeout_s=60),
    "wide": dataclasses.replace(
        SPEC, threads=1, max_connections=64, backends=tuple(dataclasses.replace(ONE, name=f"r{n}") for n in range(64))
    ),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_equal_specs_give_equal_bytes(spec: gateway.GatewaySpec) -> None:
    twin = dataclasses.replace(spec, backends=tuple(dataclasses.replace(backend) for backend in spec.backends))
    assert gateway.files(spec) == gateway.files(twin)
    assert all(text.isascii() for text in gateway.files(spec).values())


def test_every_field_of_the_spec_reaches_the_text() -> None:
    other = {
        "bind_address": "10.1.2.3",
        "bind_port": 8123,
        "backends": (TWO,),
        "stats_port": None,
        "max_body_bytes": 1000,
        "retry_after_s": 99,
        "idle_timeout_s": 60,
        "client_stall_s": 7,
        "request_timeout_s": 8,
        "max_connections": 9,
        "threads": 3,
    }
    assert set(other) == {field.name for field in dataclasses.fields(SPEC)}
    for name, value in other.items():
        assert gateway.files(dataclasses.replace(SPEC, **{name: value})) != gateway.files(SPEC), name  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_file_that_the_configuration_names_is_there(spec: gateway.GatewaySpec) -> None:
    files = gateway.files(spec)
    named = set(re.findall(r"\b[\w-]+\.(?:http|map|sock)\b", files[gateway.CONFIG_FILE]))
    assert named == {*files, gateway.KEYS_FILE, gateway.ENGINE_FILE, gateway.SOCKET_FILE} - {gateway.CONFIG_FILE}


def test_every_answer_has_openais_error_shape() -> None:
    files = gateway.files(SPEC)
    bodies = re.findall(r"return status (\d+) content-type application/json string '(.*?)'", files[gateway.CONFIG_FILE])
    own = [(str(status), files[f"{status}.http"].partition("\r\n\r\n")[2]) for status in OWN_ERRORS]
    errors = [(int(status), body) for status, body in [*bodies, *own] if status != "200"]
    assert {status for status, _ in errors} == set(ERRORS)
    for status, body in errors:
        error = json.loads(body)["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert "{" not in error["message"]
        assert error["type"] == ("server_error" if status >= 500 and status != 501 else "invalid_request_error")


@pytest.mark.parametrize("status", OWN_ERRORS)
def test_error_files_are_whole_responses(status: int) -> None:
    head, _, body = gateway.files(SPEC)[f"{status}.http"].partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert f"Content-Length: {len(body)}\r\n" in head + "\r\n"
    assert ("Retry-After: 10" in head) == (status in {502, 503})


def bad(**changes: object) -> gateway.GatewaySpec:
    return dataclasses.replace(SPEC, **changes)  # type: ignore[arg-type]


def bad_backend(**changes: object) -> gateway.GatewaySpec:
    return bad(backends=(dataclasses.replace(ONE, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (bad(bind_address="gateway.example"), "gateway address: should be an IP address, found 'gateway.example'"),
        (bad(bind_address="0.0.0.0\n    stats enable"), "should be an IP address"),
        (bad(bind_port=0), "gateway port: should be 1 to 65535, found 0"),
        (bad(stats_port=70000), "gateway port: should be 1 to 65535, found 70000"),
        (bad(stats_port=8000), "gateway stats_port: should differ from the gateway's own port, found 8000 twice"),
        (bad(backends=()), "gateway backends: should be at least one"),
        (bad(backends=(ONE, ONE)), "each with its own name, found ['rank-0', 'rank-0']"),
        (bad(max_body_bytes=0), "gateway max_body_bytes: should be at least 1, found 0"),
        (bad(threads=0), "gateway threads: should be at least 1, found 0"),
        (bad_backend(name="rank 0"), "backend name: should be letters, digits or ._-, found 'rank 0'"),
        (bad_backend(name="r\nserver x"), "backend name: should be"),
        (bad_backend(host="$(id)"), "should be an IP address"),
        (bad_backend(agent_host="127.0.0.1 disabled"), "should be an IP address"),
        (bad_backend(check_port=-1), "found -1"),
    ],
)
def test_what_cannot_stand_in_a_configuration_is_refused(spec: gateway.GatewaySpec, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        gateway.files(spec)


def test_the_argv_names_the_folder_once_and_whole() -> None:
    folder = "/run/a b/$(c)'\""
    assert gateway.argv(folder) == ("haproxy", "-db", "-C", folder, "-f", "haproxy.cfg")
    assert gateway.check_argv(folder, "/usr/sbin/haproxy") == (
        "/usr/sbin/haproxy",
        "-c",
        "-C",
        folder,
        "-f",
        "haproxy.cfg",
    )


def test_the_keys_map_has_hashes_and_names_sorted_by_name() -> None:
    digest = hashlib.sha256(ALICE_KEY.encode()).hexdigest()
    hashes = {"zoe": gateway.key_hash(BOB_KEY), "alice": gateway.key_hash(ALICE_KEY)}
    assert gateway.keys_map(hashes) == f"{digest} alice\n{gateway.key_hash(BOB_KEY)} zoe\n"
    assert gateway.keys_map({}) == ""
    assert gateway.engine_map(ENGINE_KEY) == f"engine {ENGINE_KEY}\n"


@pytest.mark.parametrize(
    "key", ["", "short", "has a space in it 0123456789", "has\na newline in it 012", "ключ-ключ-ключ-ключ-ключ"]
)
def test_keys_that_no_header_carries_are_refused_and_not_repeated(key: str) -> None:
    for make in (gateway.key_hash, gateway.engine_map):
        with pytest.raises(ValueError, match="should be 16 to 512 letters") as refused:
            make(key)
        assert not key or key not in str(refused.value)


@pytest.mark.parametrize(
    ("hashes", "says"),
    [
        ({"a b": "0" * 64}, "key name: should be"),
        ({"a\nb": "0" * 64}, "key name: should be"),
        ({'a"b': "0" * 64}, "key name: should be"),
        ({"a": ALICE_KEY}, "key a: should be a sha256 in lower-case hex"),
        ({"a": "A" * 64}, "key a: should be a sha256 in lower-case hex"),
        ({"a": "0" * 64, "b": "0" * 64}, "key b: should differ from every other key, found the same as a"),
    ],
)
def test_maps_that_would_mean_something_else_are_refused(hashes: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        gateway.keys_map(hashes)


def test_changes_take_away_first_and_nothing_changes_nothing() -> None:
    a, b, c = "a" * 64, "b" * 64, "c" * 64
    shown = f"0x55aa {a} alice\n0x55bb {b} bob\n\n"
    assert gateway.map_changes(shown, f"{a} alice\n{b} bob\n") == ()
    assert gateway.map_changes(shown, f"{b} robert\n{c} carol\n") == (
        f"del map keys.map {a}",
        f"set map keys.map {b} robert",
        f"add map keys.map {c} carol",
    )


@needs_haproxy
@pytest.mark.parametrize("name", SPECS)
def test_haproxy_takes_it_without_a_warning(tmp_path: Path, name: str) -> None:
    folder = tmp_path / 'it\'s a "folder" $(of) mine'
    for file, text in gateway.files(SPECS[name]).items():
        place(folder / file, text)
    place(folder / gateway.KEYS_FILE, gateway.keys_map({"alice": gateway.key_hash(ALICE_KEY)}))
    place(folder / gateway.ENGINE_FILE, gateway.engine_map(ENGINE_KEY))
    assert BINARY is not None
    judged = subprocess.run(
        [*gateway.check_argv(str(folder), BINARY), "-dW"], capture_output=True, text=True, check=False
    )
    assert (judged.returncode, judged.stderr) == (0, "")
    assert judged.stdout in {"", "Configuration file is valid\n"}


@needs_haproxy
def test_haproxy_does_not_start_without_the_secrets(tmp_path: Path) -> None:
    for file, text in gateway.files(SPEC).items():
        place(tmp_path / "g" / file, text)
    assert BINARY is not None
    command = gateway.check_argv(str(tmp_path / "g"), BINARY)
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert judged.returncode == 1
    assert gateway.KEYS_FILE in judged.stderr
