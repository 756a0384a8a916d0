"""Why a verb ends without being done, as one tree; the number is the exit code.

VerbError               1  something failed on a node, or a node did not answer
  UsageError            2  usage, profile, cluster or pins
  DoesNotFitError       3  the model does not fit
  BlockedError          4  locked by someone else, or the world moved since the plan was made
  RefusedError          5  preflight refused
  InterruptedVerbError  130  the operator pressed Ctrl-C
"""

from __future__ import annotations


class VerbError(Exception):
    """``lines`` are whole sentences for a person; ``remedy`` is the next step."""

    code = 1

    def __init__(self, *lines: str, remedy: str = "") -> None:
        super().__init__("\n".join(lines))
        self.lines, self.remedy = lines, remedy


class UsageError(VerbError):
    code = 2


class DoesNotFitError(VerbError):
    code = 3


class BlockedError(VerbError):
    code = 4


class RefusedError(VerbError):
    code = 5


class InterruptedVerbError(VerbError):
    code = 130
