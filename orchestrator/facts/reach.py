"""Which address answers a ping out of which netdev: the question and the parser of its output.

A ping is bound to a netdev (``ping -I``), because the kernel's own choice of a route would prove another cable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SMALL_BYTES = 56

# Each ping is a background job that prints one whole line; a node without ping, or whose user may not send one, prints
# none, and nothing is then known.
PING = r"""
ping_all() {
  command -v ping >/dev/null 2>&1 || return 0
  for a in "$@"; do
    case $a in ping=*) ;; *) continue ;; esac
    a=${a#ping=}; n=${a#*,}; d=${n#*,}; n=${n%%,*}
    (
      o=$(LC_ALL=C ping -n -q -M do -s "$n" -I "$d" -c 1 -W 1 "${a%%,*}" 2>&1); r=$?
      case $r:$o in 0:*) w=yes ;; *"not permitted"*) exit ;; *) w=no ;; esac
      printf '%s %s %s %s\n' "$d" "${a%%,*}" "$n" "$w"
    ) &
  done
  wait
}
"""

_SCRIPT = f'{PING}\necho "== pings"; ping_all "$@"\necho "== end"\n'


@dataclass(frozen=True, slots=True)
class Ping:
    """One echo request with the don't-fragment bit. ``size`` is ping's own: payload bytes, 28 less than the MTU."""

    address: str
    netdev: str
    size: int = SMALL_BYTES

    @property
    def word(self) -> str:
        return f"ping={self.address},{self.size},{self.netdev}"


def question(pings: Iterable[Ping]) -> tuple[str, ...]:
    """The argv that sends all ``pings`` at once; about a second, however many."""
    return ("sh", "-c", _SCRIPT, "sparkctl-reach", *(ping.word for ping in pings))


def answers(lines: Iterable[str]) -> Mapping[Ping, bool]:
    """Lines ``NETDEV ADDRESS SIZE yes|no``; a ping that is missing here was not sent."""
    rows = (line.split() for line in lines)
    return {Ping(row[1], row[0], int(row[2])): row[3] == "yes" for row in rows if len(row) == 4 and row[2].isdigit()}
