"""Every code that the doctor knows, with its meaning and its remedy: for waivers and for the page of codes."""

from __future__ import annotations

from types import ModuleType

from orchestrator.doctor import (
    clock,
    frames,
    image,
    login,
    memory,
    node,
    parity,
    paths,
    planned,
    rails,
    rendered,
    wires,
)
from orchestrator.doctor.code import Code
from orchestrator.spec.pins import KnownBadTable

# The findings of these are made by ``preflight``, which knows the ports and the units of a plan.
BEFORE_A_START = (
    Code(
        "DOCKER_ABSENT",
        "docker",
        "Ranks are containers of docker.",
        "sudo apt-get update && sudo apt-get install -y docker.io",
    ),
    Code("DOCKER_DOWN", "a running docker", "Ranks are containers of docker.", "sudo systemctl start docker"),
    Code(
        "DOCKER_NO_RIGHTS",
        "a user in group docker",
        "sparkctl never uses sudo.",
        "sudo usermod -aG docker USER, then log in again",
    ),
    Code(
        "PROGRAM_ABSENT",
        "ray, vllm and haproxy, for a profile that runs without containers",
        "Without containers the node itself must have them.",
        "in a clone of sparkctl's repository: make up; apt-get install haproxy",
    ),
    Code(
        "PORT_TAKEN",
        "free ports",
        "Whatever listens there would get the requests that are meant for us.",
        "sudo ss -ltnp 'sport = :PORT'; stop what it shows, or choose another port in the profile or cluster.yaml",
    ),
    Code(
        "NODE_IN_USE",
        "a node that serves one deployment",
        "Memory of a Spark is enough for one engine.",
        "sparkctl down NAME, or docker rm --force of what no record explains",
    ),
    Code(
        "IMAGE_DIGEST_UNKNOWN",
        "an image pinned by digest",
        "A tag may be another image tomorrow; nodes that got different ones wait for each other for ever.",
        "build or resolve it as containers/README.md says and write the digest into the stack",
    ),
)
FABRIC_TEST_MISSING = Code(
    "FABRIC_TEST_MISSING",
    "a recent fabric test, where the profile asks for one",
    "A link that is up and slow is found by measuring only.",
    "sparkctl fabric test PROFILE",
)
# Nothing could be brought to the nodes or checked there with these.
NEVER_WAIVED = login.UNANSWERED | {login.SHELL_PRINTS.code, "IMAGE_DIGEST_UNKNOWN"}
_ROOMS: tuple[ModuleType, ...] = (node, image, parity, memory, wires, rails, frames, paths, clock, planned, rendered)


def codes() -> dict[str, Code]:
    """Code by name, in the order of the families."""
    found = [*_of(login), *BEFORE_A_START, FABRIC_TEST_MISSING]
    for room in _ROOMS:
        found += _of(room)
    return {each.code: each for each in found}


def _of(room: ModuleType) -> list[Code]:
    return [value for value in vars(room).values() if isinstance(value, Code)]


def names(table: KnownBadTable) -> frozenset[str]:
    """Every code that a finding may carry: those of the rules and those of the table of known combinations."""
    return frozenset(codes()) | {each.code for each in table.combinations}
