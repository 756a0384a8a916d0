"""What nodes answer, healthy and odd, becomes facts; what is no answer is said to be none."""

from __future__ import annotations

import subprocess

import pytest

from orchestrator.facts.node import Container, Listener, UnreadableFactsError, parse, question

ANSWER = """\
Welcome to DGX OS
== ident
spark
1000
spark-1
aarch64
1780000000
/home/spark
== memory
MemTotal:       127601452 kB
MemAvailable:   121280000 kB
== disk
/dev/nvme0n1p2 3936818806784 1000000000000 2936818806784 26% /
== addresses
1: lo    inet 127.0.0.1/8 scope host lo
4: enp1s0f0np0    inet 192.168.100.11/24 brd 192.168.100.255 scope global enp1s0f0np0
== ports
LISTEN 0 128 0.0.0.0:22 0.0.0.0:*
LISTEN 0 4096 127.0.0.1:7070 0.0.0.0:* users:(("python3",pid=812,fd=6))
LISTEN 0 511 *:8000 *:* users:(("node",pid=99,fd=18),("node",pid=100,fd=18))
LISTEN 0 4096 [::1]:631 [::]:*
== docker
28.2.2 arm64
== containers
sparkctl-demo-g2-rank-0|running|demo|2|0|sha256:abc
broken line
== others
0123abcd|ollama|ollama/ollama:latest||bridge|0.0.0.0:11434->11434/tcp, [::]:11434->11434/tcp
4567cdef|vllm-node|eugr/spark-vllm||host|
89abef01|many|x/y:1||bridge|0.0.0.0:9000-9002->9000-9002/tcp, 8080/tcp, 0.0.0.0:53->53/udp
4242abcd|sparkctl-demo-g2-rank-0|local/x|demo|host|
broken|line
== images
sparkctl.local/x@<none>
docker.io/library/haproxy@sha256:0b0e
== units
/home/spark/.local/state/sparkctl/tiny/g1/rank-0/unit.pid {"pid": 812, "start_ticks": 4242} 4242
/home/spark/.local/state/sparkctl/tiny/g1/gateway/unit.pid {"pid": 813, "start_ticks": 4243} -
== status
{"rank": 0}
== events
== plans
== leftovers
/home/spark/.local/state/sparkctl/tiny/g1
== end
"""


def test_a_full_answer() -> None:
    facts = parse("spark-1", ANSWER)
    assert (facts.user, facts.uid, facts.arch, facts.home) == ("spark", 1000, "aarch64", "/home/spark")
    assert facts.memory_total_bytes == 127601452 * 1024
    assert facts.disk_free_bytes == 2936818806784
    assert facts.addresses == {"127.0.0.1": "lo", "192.168.100.11": "enp1s0f0np0"}
    assert facts.docker == "28.2.2"
    assert facts.others == (
        Container("0123abcd", "ollama", "ollama/ollama:latest", frozenset({11434})),
        Container("4567cdef", "vllm-node", "eugr/spark-vllm", on_host=True),
        Container("89abef01", "many", "x/y:1", frozenset({9000, 9001, 9002})),
    )
    assert facts.images == ("docker.io/library/haproxy@sha256:0b0e",)
    assert Listener("127.0.0.1", 7070, "python3 (pid 812)") in facts.listeners
    assert Listener("*", 8000, "node (pid 99)") in facts.listeners
    assert Listener("0.0.0.0", 22, "") in facts.listeners
    assert [(unit.name, unit.rank, unit.running) for unit in facts.units] == [
        ("sparkctl-demo-g2-rank-0", "0", True),
        ("rank-0", "0", True),
        ("gateway", "gateway", False),
    ]


def test_what_a_shell_prints_before_the_answer_is_kept_and_shortened() -> None:
    assert parse("spark-1", ANSWER).prelude == "Welcome to DGX OS"
    assert parse("spark-1", ANSWER.removeprefix("Welcome to DGX OS\n")).prelude == ""
    loud = parse("spark-1", ANSWER.replace("Welcome to DGX OS", "\r\n \x1b[1mhello\n" * 100)).prelude
    assert (len(loud), loud.splitlines()) == (80, [loud])


@pytest.mark.parametrize("text", ["", "This account is currently not available.\n", ANSWER.replace("== end\n", "")])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(UnreadableFactsError, match="should have answered our question"):
        parse("spark-1", text)


def test_a_node_without_docker_says_why() -> None:
    facts = parse("n", ANSWER.replace("28.2.2 arm64", "sh: 1: docker: not found"))
    assert facts.docker is None
    assert "not found" in facts.docker_problem


def test_this_very_machine_answers_the_question() -> None:
    answer = subprocess.run(question("no-such-deployment"), capture_output=True, text=True, check=False).stdout
    facts = parse("here", answer)
    assert facts.home.startswith("/")
    assert facts.units == ()
    assert facts.now > 1_700_000_000
