"""What the doctor and ``init`` ask a node beside ``node.question``: one POSIX sh script without effect, one round trip.

It reads sysfs and proc first and asks a tool only for what the kernel does not show in a file. A tool that is absent or
hangs (ten seconds each) leaves its section empty. Linux documents the files in Documentation/ABI: sysfs-class-net,
sysfs-class-infiniband.

So neither ibdev2netdev nor show_gids nor ethtool is asked: a node may lack their packages, and what is wanted of them
stands in these files (``tests/unit/test_detail.py`` holds the one against the other).
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.facts.reach import PING, Ping

# GID tables have 256 rows and most are empty, so files are read by the shell itself and not by 3,000 times cat.
_SCRIPT = r"""
r=$1; shift
t() { if command -v timeout >/dev/null 2>&1; then timeout 10 "$@"; else "$@"; fi; }
one() { v=; { read -r v < "$1"; } 2>/dev/null; }
show() { one "$2"; [ -z "$v" ] || printf '%s %s\n' "$1" "$v"; }
last() { [ -e "$2" ] && l=$(readlink -f "$2" 2>/dev/null) && printf '%s %s\n' "$1" "${l##*/}"; }
echo "== clock"; date +%s.%N
echo "== ident"; uname -n; uname -m; uname -r; id -un; echo "${SSH_CONNECTION:--}"
echo "== os"; cat "$r/etc/os-release" 2>/dev/null
echo "== memory"
grep -E '^(MemTotal|MemFree|MemAvailable|Cached|SwapTotal|SwapFree|CmaTotal):' "$r/proc/meminfo" 2>/dev/null
echo "== netdevs"
for d in "$r"/sys/class/net/*; do
  [ -e "$d/mtu" ] || continue
  printf 'netdev %s\n' "${d##*/}"
  for f in operstate flags carrier mtu speed phys_switch_id phys_port_name; do show "$f" "$d/$f"; done
  last device "$d/device"; last driver "$d/device/driver"
  if [ -e "$d/wireless" ] || [ -e "$d/phy80211" ]; then echo 'wireless yes'; fi
done
echo "== addresses"; ip -j addr show 2>/dev/null
echo "== rdma"
for d in "$r"/sys/class/infiniband/*; do
  p=$d/ports/1; [ -d "$p" ] || continue
  printf 'rdma %s\n' "${d##*/}"
  for n in "$d"/device/net/*; do [ ! -e "$n" ] || printf 'net %s\n' "${n##*/}"; done
  show state "$p/state"; show rate "$p/rate"; show firmware "$d/fw_ver"
  for f in "$p"/gids/*; do
    one "$f"; case $v in *[1-9a-f]*) ;; *) continue ;; esac
    i=${f##*/}; g=$v
    one "$p/gid_attrs/ndevs/$i"; n=${v:--}
    one "$p/gid_attrs/types/$i"; printf 'gid %s %s %s %s\n' "$i" "$g" "$n" "$v"
  done
  for f in "$p"/hw_counters/*; do [ ! -f "$f" ] || show "counter ${f##*/}" "$f"; done
done
echo "== gpu"; t nvidia-smi --query-gpu=name,driver_version,power.draw --format=csv,noheader,nounits 2>/dev/null
# Names of programs only: what stands behind them may hold a key. A container is told by its control group.
held() { c=$(sed -n 's/.*\(docker[-/]\)\([0-9a-f]\{64\}\).*/\2/p' "/proc/$2/cgroup" 2>/dev/null | head -n 1)
  printf '%s %s %s %s %s %s\n' "$1" "$2" "$3" "${4:--}" "${c:--}" "$5"; }
echo "== holders"
ps -eo pid=,rss=,user:32=,comm= --sort=-rss 2>/dev/null | head -n 5 | while read -r n k u c; do
  held memory "$n" "$k" "$u" "$c"
done
t nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits 2>/dev/null \
  | head -n 8 | while IFS=', ' read -r n k c; do
  case $n in ''|*[!0-9]*) continue ;; esac
  held gpu "$n" "$k" "$(ps -o user:32= -p "$n" 2>/dev/null | tr -d ' ')" "${c##*/}"
done
echo "== runtimes"; t docker info --format '{{range $n, $_ := .Runtimes}}{{println $n}}{{end}}' 2>/dev/null
echo "== images"
for a in "$@"; do case $a in image=*)
  a=${a#image=}
  v=$(t docker image inspect --format '{{json .}}' "$a" 2>/dev/null) && printf '%s\t%s\n' "$a" "$v" ;;
esac; done
echo "== disks"
for a in "$@"; do case $a in path=*)
  a=${a#path=}
  case $a in "~"|"~/"*) q=$HOME${a#"~"} ;; /*) q=$a ;; *) q=$HOME/$a ;; esac
  while [ -n "$q" ] && [ ! -e "$q" ]; do q=${q%/*}; done
  v=$(df -PTB1 "${q:-/}" 2>/dev/null | tail -n 1) && printf '%s\t%s\n' "$a" "$v" ;;
esac; done
echo "== routes"
for a in "$@"; do case $a in to=*)
  a=${a#to=}; v=$(ip -j route get "$a" 2>/dev/null) && printf '%s\t%s\n' "$a" "$v" ;;
esac; done
echo "== services"
t systemctl list-units --type=service --state=running --plain --no-legend --no-pager 2>/dev/null
echo "== pings"; ping_all "$@"
echo "== end"
"""


def question(
    *,
    images: Iterable[str] = (),
    paths: Iterable[str] = (),
    addresses: Iterable[str] = (),
    pings: Iterable[Ping] = (),
    root: str = "",
) -> tuple[str, ...]:
    """The argv to run on a node; ``detail_answer.parse`` reads its output.

    ``images`` are looked up in docker, ``paths`` for the filesystem that holds them (``~/`` is the node user's home;
    for a path that does not exist yet, its nearest parent), ``addresses`` for the route to them. ``root`` stands before
    /sys, /proc and /etc, so that a test can point the script at a tree of its own.
    """
    words = [f"image={each}" for each in images]
    words += [f"path={each}" for each in paths]
    words += [f"to={each}" for each in addresses]
    return ("sh", "-c", PING + _SCRIPT, "sparkctl-detail", root, *words, *(ping.word for ping in pings))
