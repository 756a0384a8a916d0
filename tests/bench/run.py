"""``make bench``: every benchmark that this machine can run, one after another, in one run."""

from __future__ import annotations

import os
import sys

from tests.bench import commands, gateway, start


def main() -> None:
    chosen = sys.argv[1:] or ["commands", "gateway", "start"]
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before the run")
    for name, bench in (("commands", commands.run), ("gateway", gateway.run), ("start", start.run)):
        if name in chosen:
            print(f"\n=== {name}", flush=True)
            for line in bench():
                print(line, flush=True)


if __name__ == "__main__":
    main()
