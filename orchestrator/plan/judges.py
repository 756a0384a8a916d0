"""What an answer means while waiting: (exit code, stdout) -> Verdict. Named, so that an ``Await`` stays plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.plan.actions import Verdict
from orchestrator.plan.rankfile import RankStatus

OLD_S, DEAD_S = 15.0, 90.0
"""Agents write every two seconds: past the first an old word counts no more, past the second we give up."""


def ready(code: int, stdout: str) -> Verdict:
    """The node's clock and rank 0's status below it: ready, broken for good, or what it is doing."""
    if code != 0:
        return Verdict(done=False, saw="rank 0's agent has not written its status yet")
    now, _, written = stdout.partition("\n")
    try:
        status = RankStatus.from_json(written)
        age_s = float(now) - status.written_at
    except ValueError as error:
        return Verdict(done=False, saw=f"rank 0's status is not readable: {error}")
    if age_s > OLD_S:
        return _silent(age_s)
    if status.ready:
        return Verdict(done=True, saw="every gate is open")
    if status.state == "broken":
        return Verdict(done=False, failed=True, saw=why_broken(status))
    return Verdict(done=False, saw=progress(status))


def _silent(age_s: float) -> Verdict:
    saw = f"rank 0's agent has not written for {age_s:.0f} s: it does not run or hangs"
    if age_s <= DEAD_S:
        return Verdict(done=False, saw=saw)
    remedy = "look whether its node is out of memory or disk, and at `sparkctl logs`, then run `sparkctl up` again"
    return Verdict(done=False, failed=True, saw=f"{saw}; {remedy}")


def progress(status: RankStatus) -> str:
    """One line on a gang that is not ready yet. Why an attempt failed stands in the line of the pause after it."""
    closed = [f"{gate.name} ({gate.saw})" for gate in status.gates if gate.open is not True]
    waits = f"; closed: {closed[0]}" if status.state == "running" and closed else ""
    doing = status.doing if status.doing.startswith(status.state) else f"{status.state}: {status.doing}"
    return f"attempt {status.attempt}, {doing}{waits}" if status.attempt else f"{doing}{waits}"


def why_broken(status: RankStatus) -> str:
    """Why the breaker opened, with the first fatal line of the last attempt."""
    last = status.history[-1].reason if status.history else "no attempt is on record"
    fatal = f"; first fatal line: {status.last_fatal}" if status.last_fatal and status.last_fatal not in last else ""
    many = len(status.history)
    attempts = f"{many} attempt{'' if many == 1 else 's'} that never became ready; the last one"
    return f"gave up after {attempts}: {last}{fatal}"


def gateway(code: int, stdout: str) -> Verdict:
    """The gateway's own /health."""
    if code == 0 and stdout.strip() == "200":
        return Verdict(done=True, saw="the gateway answers")
    return Verdict(done=False, saw="the gateway does not answer 200 yet")


ALL: Mapping[str, Callable[[int, str], Verdict]] = {"ready": ready, "gateway": gateway}
