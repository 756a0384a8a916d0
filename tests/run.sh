#!/bin/sh
# Runs every suite that this machine can run and says how long each took; unit tests mostly wait, so they run beside others.
# A suite that cannot run here is named with the reason in the last lines; it never counts as passed.
# Exit code 1 when any suite failed. With CI=true a suite that cannot run is a failure too.
set -u

cd "$(dirname "$0")/.." || exit 1
bin=${VENV:-.venv}/bin
PATH="$(pwd)/$bin:$PATH:/usr/sbin:/sbin"
export PATH
results=$(mktemp) && trap 'rm -f "$results"' EXIT
failed=0

suite() {  # NAME, then a command
    name=$1 && shift
    printf '\n=== %s\n' "$name"
    began=$(date +%s)
    if "$@"; then verdict=passed; else verdict=FAILED; failed=1; fi
    printf '%-10s %-8s %4d s\n' "$name" "$verdict" $(($(date +%s) - began)) >> "$results"
}
beside() { printed=$(mktemp); (suite "$@"; exit $failed) > "$printed" 2>&1 & }  # shown when it is collected
collect() { wait "$!" || failed=1; cat "$printed"; rm -f "$printed"; }
cannot() {  # NAME, REASON
    printf '%-10s %-8s %s\n' "$1" "NOT RUN" "$2" >> "$results"
    [ "${CI:-}" = true ] && failed=1
}

check() { "$bin/ruff" check . && "$bin/ruff" format --check . && "$bin/mypy" && "$bin/lint-imports"; }

beside unit "$bin/pytest" -q tests/unit tests/golden tests/agent
suite check check
suite engine "$bin/pytest" -q tests/engine
if command -v haproxy >/dev/null; then suite gateway "$bin/pytest" -q tests/gateway
else cannot gateway "there is no haproxy; apt-get install haproxy"; fi
if command -v sshd >/dev/null; then suite wire "$bin/pytest" -q tests/wire
else cannot wire "there is no sshd; apt-get install openssh-server"; fi
collect
if command -v haproxy >/dev/null; then suite embedded "$bin/pytest" -q tests/embedded
else cannot embedded "there is no haproxy; apt-get install haproxy"; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    if bash tests/lab/setup.sh; then suite lab "$bin/pytest" -q tests/lab
    else cannot lab "tests/lab/setup.sh could not install what the lab needs"; fi
else
    cannot lab "it boots nodes of its own, which needs root on Debian or a relative of it: sudo make test"
fi

printf '\n'
cat "$results"
exit $failed
