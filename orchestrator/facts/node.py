"""What one node answers: the question (one argv, one round trip) and the pure parser of its output.

The question is a POSIX sh script without any effect. Its output is a list of sections, each opened by a line
``== name``; a section that the node cannot answer is empty or carries the tool's own words, and the parser turns that
into ``None`` or a sentence, never into a guess.

What lies in files may be torn, empty or no text at all. Only their lines that begin an object are shown, with a newline
after the last one, so that no file can swallow or forge a header; and pipes are not opened, which would wait for ever.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

STATE_ROOT = ".local/state/sparkctl"
LABEL = "sparkctl"
PRELUDE_CHARS = 80

_SCRIPT = r"""
d=$1; s="$HOME/.local/state/sparkctl"
echo "== ident"; id -un; id -u; uname -n; uname -m; date +%s; echo "$HOME"
echo "== memory"; grep -E '^(MemTotal|MemAvailable):' /proc/meminfo 2>/dev/null
echo "== disk"; df -PB1 "$HOME" 2>/dev/null | tail -n 1
echo "== addresses"; ip -4 -o addr show 2>/dev/null
echo "== ports"; ss -Hltnp 2>/dev/null
echo "== docker"; v=$(docker version --format '{{.Server.Version}} {{.Server.Arch}}' 2>&1 | head -n 3); echo "$v"
case $v in [0-9]*) ;; *) docker() { :; } ;; esac  # what does not answer is not asked three times more
echo "== containers"
f='{{.Names}}|{{.State}}|{{.Label "sparkctl.deployment"}}|{{.Label "sparkctl.generation"}}'
docker ps -a --no-trunc --filter label=sparkctl.deployment \
  --format "$f"'|{{.Label "sparkctl.rank"}}|{{.Label "sparkctl.plan"}}' 2>/dev/null
echo "== others"
docker ps --no-trunc --format \
  '{{.ID}}|{{.Names}}|{{.Image}}|{{.Label "sparkctl.deployment"}}|{{.Networks}}|{{.Ports}}' 2>/dev/null
echo "== images"; docker image ls --digests --no-trunc --format '{{.Repository}}@{{.Digest}}' 2>/dev/null
echo "== units"
for p in "$s"/*/g*/*/unit.pid; do
  [ -f "$p" ] && [ -r "$p" ] || continue
  n=$(sed 's/.*"pid": *\([0-9]*\).*/\1/' "$p" | head -n 1); t=-
  [ -r "/proc/$n/stat" ] && t=$(sed 's/^.*) //; /^[ZX]/d' "/proc/$n/stat" | cut -d ' ' -f 20)
  printf '%s %s %s\n' "$p" "$(head -c 4096 "$p" | tr -d '\n\000')" "${t:--}"
done
o() { [ -f "$1" ] && [ -r "$1" ] && tail -c "$2" "$1" | LC_ALL=C sed -n '/^{/p' && echo; }
echo "== status"; for p in "$s/$d"/g*/rank-*/status.json; do o "$p" 1000000; done
echo "== events"; o "$s/$d/events.jsonl" 4000000
echo "== lock"; [ ! -f "$s/$d.lock/beat" ] || cat "$s/$d.lock/beat"; o "$s/$d.lock/holder.json" 4000
echo "== plans"; for p in "$s/$d"/g*/plan.json; do o "$p" 16000000; done
echo "== leftovers"
for p in "$s"/*/g[0-9]*; do
  [ -d "$p" ] && [ -n "$(find "$p" ! -type d 2>/dev/null | head -n 1)" ] && printf '%s\n' "$p"
done
echo "== end"
"""


def question(deployment: str) -> tuple[str, ...]:
    """The argv that makes a node answer everything the planner, ``status`` and preflight need to know of it."""
    return ("sh", "-c", _SCRIPT, "sparkctl-facts", deployment)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening TCP socket. ``owner`` is "name (pid N)", or empty when the node does not tell (another user's)."""

    address: str
    port: int
    owner: str


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing of ours on a node: a container or a detached process."""

    name: str
    deployment: str
    generation: int
    rank: str
    plan_digest: str
    running: bool


@dataclass(frozen=True, slots=True)
class Container:
    """A running container that is not ours. ``ports`` are the node's own that docker hands to it.

    One on the ``host`` network takes ports without docker knowing.
    """

    id: str
    name: str
    image: str
    ports: frozenset[int] = frozenset()
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node's answers. Sizes in bytes, times in Unix seconds by the node's own clock.

    ``units`` are of every deployment, and so are ``generations``: the directories that hold a file. ``programs`` are
    names of what can be started beside ``python`` where ranks run without containers; None where nobody looked.
    ``lock`` is the last heartbeat of the deploy lock and its holder's JSON, empty when it is free.
    ``prelude`` is what the login shell printed before it answered, shortened.
    """

    node: str
    user: str
    uid: int
    hostname: str
    arch: str
    now: float
    home: str
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    docker: str | None = None
    docker_problem: str = ""
    images: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()
    statuses: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()
    lock: tuple[str, ...] = ()
    programs: frozenset[str] | None = None
    others: tuple[Container, ...] = ()
    python: str = "python3"
    haproxy: str = "haproxy"
    prelude: str = ""


class UnreadableFactsError(ValueError):
    """The node answered something that is not an answer to our question (a login banner that exits, a broken shell)."""


def parse(node: str, text: str) -> NodeFacts:
    """Turn a node's answer into facts. Raises ``UnreadableFactsError`` with what was there instead."""
    answer = sections(text)
    ident = answer["ident"]
    if "end" not in answer or len(ident) < 6:
        raise UnreadableFactsError(f"should have answered our question, found {text.strip()[:120]!r}")
    try:
        uid, now = int(ident[1]), float(ident[4])
    except ValueError:
        raise UnreadableFactsError(f"should have said who it is and what time it is, found {ident[:6]!r}") from None
    memory = dict(_meminfo(answer["memory"]))
    docker, problem = _docker(answer["docker"])
    return NodeFacts(
        node=node,
        user=ident[0],
        uid=uid,
        hostname=ident[2],
        arch=ident[3],
        now=now,
        home=ident[5],
        memory_total_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        disk_free_bytes=_disk_free(answer["disk"]),
        addresses=dict(_addresses(answer["addresses"])),
        listeners=tuple(_listeners(answer["ports"])),
        docker=docker,
        docker_problem=problem,
        others=tuple(_others(answer["others"])),
        images=tuple(line for line in answer["images"] if "@sha256:" in line),
        units=(*_containers(answer["containers"]), *_processes(answer["units"])),
        statuses=tuple(line for line in answer["status"] if line.startswith("{")),
        events=tuple(line for line in answer["events"] if line.startswith("{")),
        plans=tuple(line for line in answer["plans"] if line.startswith("{")),
        generations=tuple(answer["leftovers"]),
        lock=tuple(answer["lock"]),
        prelude=" ".join(text.partition("== ident\n")[0].split())[:PRELUDE_CHARS],
    )


def sections(text: str) -> defaultdict[str, list[str]]:
    """Lines by section, without empty ones; a section that is not there is empty."""
    # Other line ends than newlines may stand inside a record.
    found: defaultdict[str, list[str]] = defaultdict(list)
    current: list[str] = []
    for line in text.split("\n"):
        if line.startswith("== "):
            current = found[line[3:].strip()]
        elif line.strip():
            current.append(line)
    return found


def _meminfo(lines: list[str]) -> list[tuple[str, int]]:
    pairs = (re.match(r"(\w+):\s+(\d+) kB", line) for line in lines)
    return [(match[1], int(match[2]) * 1024) for match in pairs if match]


def _disk_free(lines: list[str]) -> int | None:
    fields = lines[-1].split() if lines else []
    return int(fields[3]) if len(fields) >= 6 and fields[3].isdecimal() else None


def _addresses(lines: list[str]) -> list[tuple[str, str]]:
    """(address, netdev) pairs of ``ip -4 -o addr show``."""
    pairs = (re.match(r"\d+:\s+(\S+)\s+inet\s+([0-9.]+)", line) for line in lines)
    return [(match[2], match[1]) for match in pairs if match]


def _listeners(lines: list[str]) -> list[Listener]:
    """Rows of ``ss -Hltnp``; the process column is there only for our own processes, or for root."""
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) < 5 or ":" not in fields[3]:
            continue
        address, _, port = fields[3].rpartition(":")
        owner = re.search(r'users:\(\("([^"]+)",pid=(\d+)', line)
        if port.isdecimal():
            found.append(Listener(address.strip("[]"), int(port), f"{owner[1]} (pid {owner[2]})" if owner else ""))
    return found


def _docker(lines: list[str]) -> tuple[str | None, str]:
    text = " ".join(lines).strip()
    if re.match(r"^\d+\.\d+", text):
        return text.split()[0], ""
    return None, text or "docker answered nothing"


def _containers(lines: list[str]) -> list[Unit]:
    found = []
    for line in lines:
        fields = line.split("|")
        if len(fields) == 6:
            name, state, deployment, generation, rank, digest = fields
            number = int(generation) if generation.isdecimal() else 0
            found.append(Unit(name, deployment, number, rank, digest, running=state in {"running", "restarting"}))
    return found


def _others(lines: list[str]) -> list[Container]:
    """Rows ``ID|NAME|IMAGE|DEPLOYMENT|NETWORKS|PORTS``; those with a deployment are ours and are told as units."""
    found = []
    for line in lines:
        fields = line.split("|")
        if len(fields) == 6 and not fields[3]:
            ports = frozenset(port for word in fields[5].split(", ") for port in _published(word))
            found.append(Container(fields[0], fields[1], fields[2], ports, on_host="host" in fields[4].split(",")))
    return found


def _published(word: str) -> range:
    """``0.0.0.0:8000->80/tcp`` or ``[::]:9000-9002->9000-9002/tcp``; a port that is only exposed is not published."""
    match = re.search(r":(\d+)(?:-(\d+))?->\S+/tcp$", word)
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)


def _processes(lines: list[str]) -> list[Unit]:
    """Pid files of the process runtime: ``PATH {json} START_TICKS``; it runs if the pid is still the same process."""
    found = []
    for line in lines:
        match = re.match(r"(\S+/([^/\s]+)/g(\d+)/([^/\s]+)/unit\.pid) (\{.*\}) (\S+)$", line)
        if not match:
            continue
        try:
            record = json.loads(match[5])
        except (ValueError, RecursionError):
            continue
        running = str(record.get("start_ticks")) == match[6]
        rank = match[4].removeprefix("rank-")
        found.append(Unit(match[4], match[2], int(match[3]), rank, plan_digest="", running=running))
    return found
