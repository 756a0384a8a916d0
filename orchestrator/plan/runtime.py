"""A unit as command lines: what docker is told, or what the agent's own small launcher is told.

Both runtimes answer the same four questions (start, stop, start again, remove), so phases do not know which it is.
Docker: ``--network host``, never privileged. SIGTERM reaches the agent, which ends the whole attempt within its grace.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.plan.launch import LaunchPlan, Unit

LABELS = ("deployment", "generation", "rank", "plan")

# docker's own --follow ends with the container, which may be about to start again.
_FOLLOW = """\
docker logs --tail "$2" --follow "$1" || exit
while since=$(date +%s.%N); sleep 1; docker container inspect "$1" >/dev/null 2>&1; do
  docker logs --since "$since" --follow "$1"
done
"""
# "No such container" and "permission denied" are one exit code to docker: only a list without the name says it is gone.
_STOP = 'docker stop --time "$2" "$1" >/dev/null 2>&1\n'
_GONE = """\
left=$(docker ps {which}--format '{{{{.Names}}}}') || exit 1
if printf '%s\\n' "$left" | grep -Fxq -e "$1"; then echo "docker did not end $1" >&2; exit 1; fi
"""


def start(plan: LaunchPlan, unit: Unit) -> tuple[str, ...]:
    """Make the unit and start it; it survives the SSH session, and with docker also a reboot of the node."""
    if unit.container is None:
        return _launcher(plan, unit, "spawn", *_pairs("--env", unit.env), "--", *unit.argv)
    container = unit.container
    labels = (plan.deployment, str(plan.generation), unit.rank, plan.digest)
    return (
        *("docker", "run", "--detach", "--name", unit.name, "--network", "host", "--restart", "unless-stopped"),
        *_pairs("--label", {f"sparkctl.{key}": value for key, value in zip(LABELS, labels, strict=True)}),
        *("--user", container.user),
        *(("--gpus", container.gpus) if container.gpus else ()),
        *_each("--device", container.devices),
        *_each("--cap-add", container.capabilities),
        *_each("--ulimit", container.ulimits),
        *("--shm-size", str(container.shm_bytes)),
        *("--stop-signal", container.stop_signal, "--stop-timeout", str(unit.stop_grace_s)),
        *_each("--volume", tuple(f"{m.source}:{m.target}{':ro' if m.read_only else ''}" for m in unit.mounts)),
        *_pairs("--env", unit.env),
        *("--entrypoint", unit.argv[0], container.image, *unit.argv[1:]),
    )


def once(unit: Unit, env: Mapping[str, str], words: tuple[str, ...]) -> tuple[str, ...]:
    """Run the unit's own interpreter for a moment, as the unit would run, with ``words``; it reads standard input."""
    container = unit.container
    if container is None:
        return ("env", *(f"{key}={value}" for key, value in sorted(env.items())), unit.argv[0], *words)
    return (
        *("docker", "run", "--rm", "--interactive", "--pull", "never", "--network", "host", "--user", container.user),
        *(("--gpus", container.gpus) if container.gpus else ()),
        *_each("--device", container.devices),
        *_each("--cap-add", container.capabilities),
        *_each("--ulimit", container.ulimits),
        *("--shm-size", str(container.shm_bytes)),
        *_pairs("--env", env),
        *("--entrypoint", unit.argv[0], container.image, *words),
    )


def stop(plan: LaunchPlan, unit: Unit) -> tuple[str, ...]:
    """End the unit but keep what ``start_again`` needs. Harmless when it is not there."""
    if unit.container is None:
        return _halt(plan, unit)
    return ("sh", "-c", _STOP + _GONE.format(which=""), "stop", unit.name, str(unit.stop_grace_s))


def start_again(plan: LaunchPlan, unit: Unit) -> tuple[str, ...]:
    """Take a ``stop`` back."""
    if unit.container is None:
        return start(plan, unit)
    script = 'docker container inspect "$1" >/dev/null 2>&1 || exit 0; exec docker start "$1"'
    return ("sh", "-c", script, "start", unit.name)


def remove(plan: LaunchPlan, unit: Unit) -> tuple[str, ...]:
    """End the unit and leave nothing of it. Harmless when it is not there or only half made."""
    if unit.container is None:
        scratch = ("--scratch", unit.scratch) if unit.scratch else ()
        return _halt(plan, unit, *scratch)
    script = _STOP + 'docker rm --force --volumes "$1" >/dev/null 2>&1\n' + _GONE.format(which="--all ")
    return ("sh", "-c", script, "remove", unit.name, str(unit.stop_grace_s))


def logs(unit: Unit, *, follow: bool, lines: int) -> tuple[str, ...]:
    """Read the unit's output: the last ``lines`` lines, and with ``follow`` what comes after them."""
    if unit.container is None:
        return ("tail", "-n", str(lines), *(("-F",) if follow else ()), f"{unit.directory}/unit.log")
    if follow:
        return ("sh", "-c", _FOLLOW, "logs", unit.name, str(lines))
    return ("docker", "logs", "--tail", str(lines), unit.name)


def _launcher(plan: LaunchPlan, unit: Unit, verb: str, *rest: str) -> tuple[str, ...]:
    python = plan.ranks[0].unit.argv[0]
    agent = f"{plan.state[unit.node]}/agent/{plan.agent_sha256}.pyz"
    return (python, agent, verb, "--dir", unit.directory, "--name", "unit", *rest)


def _halt(plan: LaunchPlan, unit: Unit, *rest: str) -> tuple[str, ...]:
    """Without the agent's archive nothing was ever started: an ``up`` that was cut off had only written its plan."""
    argv = _launcher(plan, unit, "halt", "--grace", str(unit.stop_grace_s), *rest)
    return ("sh", "-c", '[ -e "$2" ] || exit 0; exec "$@"', "halt", *argv)


def _pairs(flag: str, values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for key, value in sorted(values.items()) for word in (flag, f"{key}={value}"))


def _each(flag: str, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (flag, value))
