#!/bin/sh
# Makes a virtual environment with sparkctl, its test tools, and real vLLM + Ray for the CPU.
#   PYTHON=python3.12 sh containers/cpu/install.sh DIRECTORY
# No root is needed. With root (or sudo without a password) missing system packages are installed, otherwise they are
# named, or fetched and unpacked into the environment where that is enough (HAProxy on Debian and Ubuntu).
set -eu

venv=${1:?usage: install.sh DIRECTORY}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
torch_cpu_index=https://download.pytorch.org/whl/cpu

say() { printf 'setup: %s\n' "$*" >&2; }
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1; fi
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    say "sparkctl needs Python 3.11 or newer, found $("$python" -V 2>&1 || echo none); set PYTHON=/path/to/python3.12"
    exit 2
}

missing() {  # the Debian packages whose programs this machine lacks
    for pair in haproxy:haproxy rsync:rsync ssh:openssh-client ss:iproute2; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || printf '%s ' "${pair##*:}"
    done
    [ -x /usr/sbin/sshd ] || printf 'openssh-server '
    "$python" -c 'import ensurepip, venv' 2>/dev/null || printf 'python3-venv '
}

unpack_haproxy() {  # without root: Debian's own package, unpacked into the environment
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    work=$(mktemp -d) && to="$venv/opt/haproxy"
    ( cd "$work" && apt-get download -q haproxy liblua5.3-0 liblua5.4-0 libopentracing-c-wrapper0 libopentracing1 \
        libpcre2-posix3 2>/dev/null || apt-get download -q haproxy ) >/dev/null 2>&1 || true
    mkdir -p "$to" && for deb in "$work"/*.deb; do [ -f "$deb" ] && dpkg-deb -x "$deb" "$to"; done
    rm -rf "$work"
    [ -x "$to/usr/sbin/haproxy" ] || return 1
    lib=$(find "$to" -name '*.so*' -exec dirname {} \; | sort -u | tr '\n' ':')
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$lib" "$(cd "$to" && pwd)/usr/sbin/haproxy" > "$venv/bin/haproxy"
    chmod 755 "$venv/bin/haproxy" && "$venv/bin/haproxy" -v >/dev/null 2>&1
}

packages=$(missing)
if [ -n "$packages" ]; then
    say "installing system packages: $packages"
    # sshd must not start by itself: only the tests use the binary.
    # shellcheck disable=SC2086
    if ! { as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
           as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $packages; } >/dev/null 2>&1
    then say "could not install them here; what needs them says so when it runs (sudo apt-get install $packages)"; fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
if ! PATH="$PATH:/usr/sbin" command -v haproxy >/dev/null 2>&1 && [ ! -x "$venv/bin/haproxy" ]; then
    unpack_haproxy && say "HAProxy unpacked into $venv" || say "no HAProxy: sudo apt-get install haproxy"
fi

pip="$venv/bin/python -m pip --disable-pip-version-check -q"
( while sleep 15; do say "still at it, $(du -sm "$venv" 2>/dev/null | cut -f 1) MB so far"; done ) & ticker=$!
trap 'kill "$ticker" 2>/dev/null' EXIT
torch=$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$here/lock.txt")
say "installing vLLM and Ray for the CPU: about 800 MB to download, 2.5 GB on disk, one to five minutes"
if ! $pip install --no-deps "$torch" 2>/dev/null; then
    say "$torch is not where pip looks; taking it from PyTorch's own CPU index (about 200 MB)"
    $pip install --no-deps --index-url "$torch_cpu_index" "$torch"
fi
# --no-deps: the lock is complete, and leaves out what breaks or bloats a CPU install (torchvision, torchaudio, triton).
$pip install --no-deps -r "$here/lock.txt" "$here/vllm-shim" "$here/vllm-cpu-ray"
$pip install -e "$root[dev]"
say "done: $venv"
