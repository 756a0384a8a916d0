"""The hosts that ``init`` is given: read from the command line, their keys known, the way to them open."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from orchestrator.run.enrol import Shown, enrol, look
from orchestrator.run.sshsettings import Files
from orchestrator.run.transport import AuthRefused, HostKeyUnknown, NodeError
from orchestrator.spec.cluster import Ssh
from orchestrator.verbs.details import from_each
from orchestrator.verbs.errors import UsageError

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def read(words: Sequence[str]) -> dict[str, Ssh]:
    """``[USER@]HOST[:PORT]`` each, IPv6 in brackets; by the word. Raises ``UsageError`` with every problem."""
    found: dict[str, Ssh] = {}
    problems = [
        f"{word}: should be named once, found it twice" for word in sorted({w for w in words if _twice(w, words)})
    ]
    for word in words:
        user, at, place = word.rpartition("@")
        match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?|([0-9a-fA-F:%.]+)", place)
        try:
            host, port = (match[1] or match[3] or match[5], match[2] or match[4]) if match else ("", None)
            given = {"host": host, **({"user": user} if at else {}), **({"port": int(port)} if port else {})}
            found[word] = Ssh.model_validate(given)
        except ValidationError:
            problems.append(f"{word}: should be [USER@]HOST[:PORT], found something else")
    if problems:
        raise UsageError(*problems, remedy="for example: sparkctl init me@spark-1 me@spark-2:2222")
    return found


def _twice(word: str, words: Sequence[str]) -> bool:
    return list(words).count(word) > 1


@dataclass(frozen=True, slots=True)
class Trust:
    """What makes a host key that is not on record acceptable: a fingerprint given beforehand, or a person's yes.

    ``ask`` is None where there is nobody to ask.
    """

    fingerprints: frozenset[str] = frozenset()
    ask: Callable[[Shown], bool] | None = None

    def problems(self) -> list[str]:
        """What is wrong with the fingerprints themselves."""
        wrong = sorted(each for each in self.fingerprints if not _FINGERPRINT.fullmatch(each))
        return [f"--accept-fingerprint: should be SHA256: and 43 characters, found {each}" for each in wrong]


def acquaint(hosts: Mapping[str, Ssh], files: Files, trust: Trust) -> dict[str, NodeError]:
    """Make sure that each host's key is in known_hosts; the error of each where it is not.

    All hosts are looked at together, then a person is asked about one after the other.
    """
    seen, failed = from_each(lambda name: look(name, hosts[name], files), hosts)
    for name, shown in seen.items():
        try:
            _agree(shown, trust)
        except NodeError as error:
            failed[name] = error
    return failed


def _agree(shown: Shown, trust: Trust) -> None:
    if shown.known:
        return
    if shown.fingerprint in trust.fingerprints or (trust.ask and trust.ask(shown)):
        enrol(shown)
        return
    what = f"host key of {shown.name} is unknown: it showed {shown.kind} {shown.fingerprint}"
    if trust.ask:
        raise HostKeyUnknown(shown.node, f"{what}, and you did not accept it", shown.compare)
    given = ", which is none of the fingerprints given" if trust.fingerprints else ""
    once = f"{shown.compare}\nthen add: --accept-fingerprint {shown.fingerprint}"
    raise HostKeyUnknown(shown.node, f"{what}{given}", once)


def with_way_in(error: NodeError) -> NodeError:
    """For a refused login, how to get in with a key of one's own that stays where it is."""
    if not isinstance(error, AuthRefused) or not error.remedy.startswith("ssh-copy-id"):
        return error
    remedy = f"{error.remedy}   (makes your public key known there; if you have no key yet: ssh-keygen -t ed25519)"
    return AuthRefused(error.node, error.what, remedy)
