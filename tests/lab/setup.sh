#!/usr/bin/env bash
# Makes this machine able to run the lab: installs the packages of packages.txt that are missing, and nothing else.
# Needs root and Debian or a relative of it; safe to run again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "$(id -u)" != 0 ]; then
  echo "tests/lab/setup.sh: must run as root (found uid $(id -u)); run it with sudo" >&2
  exit 1
fi
missing=()
while read -r package _; do
  case $package in ''|'#'*) continue ;; esac
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done < "$here/packages.txt"
if [ ${#missing[@]} = 0 ]; then
  echo "lab: every package is installed"
  exit 0
fi
echo "lab: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -q -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1; }
install_missing() { apt install -y --no-install-recommends "${missing[@]}"; }
# An old package list names versions that the mirror no longer has: refresh it only when installing fails.
install_missing || { apt update && install_missing; } || {
  echo "lab: apt-get could not install ${missing[*]}; its last words:" >&2
  tail -20 "$log" >&2
  exit 1
}
echo "lab: installed"
