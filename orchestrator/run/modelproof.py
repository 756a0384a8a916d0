"""Whether the files of a model on a node are the pinned ones: their sha256, worked out there, told as it goes on.

Names and sizes are not enough: two public checkpoints of DeepSeek-V4-Flash have the same of both in all 48 shards.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from orchestrator.plan.actions import SendModel
from orchestrator.run.dockersays import gigabytes
from orchestrator.run.images import Talk
from orchestrator.run.transport import Cancelled, NodeError, Transport

# hashlib lets go of the interpreter, so threads are enough. What was read is dropped from the page cache again: on
# unified memory it is memory that the model wants.
_PROGRAM = """
import concurrent.futures, hashlib, os, sys, threading, time
root, names, hashes = os.path.expanduser(sys.argv[1]), sys.argv[2::2], sys.argv[3::2]
guard, done, told = threading.Lock(), [0], [time.monotonic()]
def look(name):
    digest = hashlib.sha256()
    with open(os.path.join(root, name), "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
            with guard:
                done[0] += len(block)
                if time.monotonic() - told[0] > 1:
                    told[0] = time.monotonic()
                    print("done", done[0], flush=True)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()
with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
    for name, wanted, found in zip(names, hashes, pool.map(look, names)):
        if found != wanted:
            print("bad", names.index(name), found, flush=True)
"""


class WrongContentError(NodeError):
    """A file of a model has the name and the size of the pinned one, and is another."""


def prove(action: SendModel, transport: Transport, hashes: Mapping[str, str], talk: Talk) -> None:
    """Read every file of ``hashes`` (path below the target -> sha256) on the node. Raises ``WrongContentError``."""
    names, bad, said = sorted(hashes), {}, []
    sizes = dict(action.manifest)
    whole = gigabytes(sum(sizes.get(name, 0) for name in names))

    def line(text: str) -> None:
        match text.split():
            case ["done", count]:
                talk.progress(f"sha256 of {gigabytes(int(count))} of {whole}")
            case ["bad", number, found]:
                bad[names[int(number)]] = found
            case _:
                said.append(text)

    words = [word for name in names for word in (name, hashes[name])]
    code = transport.follow(("python3", "-c", _PROGRAM, action.target, *words), line, talk.stop)
    if talk.stop():
        raise Cancelled(action.node, f"checking model {action.model} was cancelled")
    if bad:
        raise _wrong(action, hashes, bad)
    if code != 0:
        raise NodeError(action.node, f"cannot read model {action.model}: {said[-1] if said else f'exit code {code}'}")


def _wrong(action: SendModel, hashes: Mapping[str, str], bad: Mapping[str, str]) -> WrongContentError:
    name, *others = bad
    more = f", and so for {len(others)} more files" if others else ""
    what = f"{action.target}/{name} should have sha256 {hashes[name]}, found {bad[name]}{more}"
    why = "it is damaged, or of another repository with the same names and sizes"
    here = shlex.quote(f"{action.source}/{name}")
    there = shlex.join(["rm", "--", *(f"{action.target}/{each}" for each in bad)])
    remedy = f"compare on this machine: sha256sum {here}; when that is right, on {action.node}: {there}, then up again"
    return WrongContentError(action.node, f"{what}: {why}", remedy)
