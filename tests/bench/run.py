"""``make bench``: every benchmark that this machine can run, one after another, in one run."""

from __future__ import annotations

import os
import sys

import tests.bench.commands
import tests.bench.doctor
import tests.bench.gateway
import tests.bench.lab_doctor
import tests.bench.start

BENCHES = {
    "commands": tests.bench.commands.run,
    "doctor": tests.bench.doctor.run,
    "lab-doctor": tests.bench.lab_doctor.run,
    "gateway": tests.bench.gateway.run,
    "start": tests.bench.start.run,
}


def main() -> None:
    chosen = sys.argv[1:] or list(BENCHES)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before the run")
    for name, bench in BENCHES.items():
        if name in chosen:
            print(f"\n=== {name}", flush=True)
            for line in bench():
                print(line, flush=True)


if __name__ == "__main__":
    main()
