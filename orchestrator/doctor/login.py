"""The family SSH and user: why a node did not answer, and what an answer tells of the login that it came through.

What is known to be wrong fails; where nobody could look the verdict is unknown: a node that is off may be well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from orchestrator.doctor.code import Code
from orchestrator.doctor.finding import Finding
from orchestrator.doctor.sight import Sight

SSH_UNREACHABLE = Code(
    "SSH_UNREACHABLE",
    "a node whose sshd answers",
    "It may be off, still starting or at another address. What runs there, and whether it is well, nobody knows.",
    "ssh -v HOST true",
)
SSH_HOST_KEY_UNKNOWN = Code(
    "SSH_HOST_KEY_UNKNOWN",
    "a host key that known_hosts vouches for",
    "Nothing is sent to a machine that may be another one, and sparkctl takes no key on trust.",
    "compare the fingerprints, then: ssh-keyscan -t ed25519 HOST >> ~/.ssh/known_hosts",
)
SSH_HOST_KEY_CHANGED = Code(
    "SSH_HOST_KEY_CHANGED",
    "the host key that is on record",
    "The node was installed anew, or another machine answers in its place; nothing is sent there until a person has "
    "looked.",
    "compare the fingerprints; if the node was installed anew: ssh-keygen -R HOST, then ssh HOST true and answer yes",
)
SSH_AUTH_REFUSED = Code(
    "SSH_AUTH_REFUSED",
    "a login with one of your keys",
    "sparkctl answers no prompt: the node must take a key that has no passphrase or that your agent holds.",
    "ssh-copy-id HOST; for a key with a passphrase: ssh-add FILE",
)
SSH_CONNECTION_LOST = Code(
    "SSH_CONNECTION_LOST",
    "a connection that lasts until the answer is there",
    "The node went down, ran out of memory or lost its network while it was asked. Whether it is well, nobody knows.",
    "ssh HOST uptime",
)
NODE_SLOW = Code(
    "NODE_SLOW",
    "an answer in time",
    "A login works and a few questions take half a minute: something waits for a disk, for docker or for memory.",
    "ssh HOST 'uptime; ps -eo stat,pid,wchan:24,args | grep ^D'",
)
NODE_SILENT = Code(
    "NODE_SILENT",
    "an answer that can be understood",
    "The user's shell says or runs something else in its place. What runs there, and whether it is well, nobody knows.",
    "ssh HOST echo well   (must print well and nothing else; look at what that user's shell runs when it starts)",
)
SHELL_PRINTS = Code(
    "SHELL_PRINTS",
    "a shell that prints nothing of its own",
    "What it prints stands before the answer of every command: the deploy lock, rsync and SFTP read it as theirs and "
    "end with errors that name anything but the cause.",
    "as that user on the node: sed -i '1i case $- in *i*) ;; *) return ;; esac' ~/.bashrc   (the rest is then for "
    "terminals only; another shell has another file)",
)
SAME_MACHINE = Code(
    "SAME_MACHINE",
    "a machine of its own for every node",
    "Two nodes that are one box would share its memory, its ports and its GPU, and the other box stays idle.",
    "correct ssh/host of one of them in cluster.yaml: ssh HOST hostname",
)
# Why a node told nothing. Without an answer nothing else is known of it, so these are always shown and never waived.
UNANSWERED = frozenset(
    each.code
    for each in (
        SSH_UNREACHABLE,
        SSH_HOST_KEY_UNKNOWN,
        SSH_HOST_KEY_CHANGED,
        SSH_AUTH_REFUSED,
        SSH_CONNECTION_LOST,
        NODE_SLOW,
        NODE_SILENT,
    )
)


def findings(sight: Sight) -> Iterator[Finding]:
    for node in sight.nodes:
        facts = sight.facts.get(node.name)
        if facts is None:
            yield SHELL_PRINTS.unknown(node.name, "the node did not answer")
        elif facts.prelude:
            yield SHELL_PRINTS.fail(node.name, repr(facts.prelude))
        else:
            yield SHELL_PRINTS.passed(node.name, f"nothing before the answer to {facts.user}")
    yield from _machines(sight)


def _machines(sight: Sight) -> Iterator[Finding]:
    """One machine has one host name and one set of addresses; names alone may be equal on machines set up alike."""
    wired = [node.name for node, _ in sight.on_wires()]
    if len(wired) < 2:
        return
    found: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)
    for name in wired:
        facts = sight.facts.get(name)
        held = frozenset(each for each in facts.addresses if not each.startswith("127.")) if facts else frozenset()
        if facts and held:
            found[facts.hostname, held].append(name)
    told = {name for names in found.values() for name in names}
    for (hostname, held), names in found.items():
        if len(names) > 1:
            said = f"{' and '.join(names)} are both {hostname} with {', '.join(sorted(held))}"
            yield SAME_MACHINE.fail(", ".join(names), said)
    if len(told) < len(wired):
        yield SAME_MACHINE.unknown("", f"{', '.join(name for name in wired if name not in told)} did not tell")
    elif len(found) == len(wired):
        yield SAME_MACHINE.passed("", f"{len(wired)} machines")
