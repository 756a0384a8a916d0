#!/usr/bin/env python3
"""A stand-in for ``ib_write_bw`` of perftest, for machines without RDMA: no data moves, but who listens, who connects
and what is printed are as in perftest 4.5. ``STANDIN_GBIT`` is the figure, ``STANDIN_WAIT_S`` how late it listens.
"""

import os
import socket
import sys
import time

ROW = " 65536      {iterations:<10}       0.00               {gbit:.2f} \t\t     0.176554"


def main(words: list[str]) -> int:
    port = int(words[words.index("-p") + 1])
    host = words[-1] if words[-2] != "-d" else ""
    if not host:
        time.sleep(float(os.environ.get("STANDIN_WAIT_S", "0")))
        with socket.create_server(("", port)) as server:
            server.accept()[0].recv(1)
        return 0
    try:
        peer = socket.create_connection((host, port))
    except OSError:
        print(f"Couldn't connect to {host}:{port}", file=sys.stderr)
        print("Unable to open file descriptor for socket connection", file=sys.stderr)
        print(" Unable to init the socket connection", file=sys.stderr)
        return 1
    with peer:
        print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
        print(ROW.format(iterations=353122, gbit=float(os.environ["STANDIN_GBIT"])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
