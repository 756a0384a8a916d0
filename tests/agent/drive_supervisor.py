"""Carries out one rank file's attempts without an agent.

In a process of its own, since a supervisor kills all it finds below itself. Prints a line of JSON for each new phase;
``start N``, ``kill`` and ``say`` (the line again, after one more look) come on standard input; ends when that does.
"""

import json
import select
import sys
import time
from pathlib import Path

from orchestrator.agent.supervisor import Supervisor
from orchestrator.plan.rankfile import RankFile


def main() -> None:
    supervisor = Supervisor(RankFile.from_json(Path(sys.argv[1]).read_text()), lambda line: None)
    said = ""
    while True:
        if select.select([sys.stdin], [], [], 0.05)[0]:
            words = sys.stdin.readline().split()
            if not words:
                return
            if words[0] == "start":
                supervisor.start(int(words[1]), time.monotonic())
            elif words[0] == "say":
                said = ""
            else:
                supervisor.kill(time.monotonic())
        own = supervisor.poll(time.monotonic(), "")
        line = json.dumps(
            {
                "phase": own.phase,
                "reason": own.reason,
                "attempt": supervisor.attempt,
                "doing": supervisor.doing,
                "fatal": supervisor.last_fatal,
                "processes": supervisor.processes() if own.phase != "killing" else {},
            }
        )
        if line != said:
            said = line
            print(line, flush=True)


if __name__ == "__main__":
    main()
