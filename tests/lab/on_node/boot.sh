#!/usr/bin/env bash
# First process of one node's outer namespaces (mount and pid): lays the node's disk over the shared root file system
# and boots it, again after each reboot. When this process dies the kernel ends the whole node with it, mounts included.
# usage: boot.sh NODE DISK ROOTFS NETNS
set -euo pipefail
node=$1 disk=$2 rootfs=$3 netns=$4

mount -t overlay "lab-$node" -o "lowerdir=$rootfs,upperdir=$disk/upper,workdir=$disk/work" "$disk/root"

# A cgroup of its own in every hierarchy, so that two nodes' systemds do not share one.
for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
  [ -e "$tree/cgroup.procs" ] || continue
  group=$tree/sparkctl-lab/$node
  mkdir -p "$group"
  for level in "$tree/sparkctl-lab" "$group"; do
    for file in cpuset.cpus cpuset.mems; do   # version 1 starts these empty, and an empty one takes no process
      [ -e "$level/$file" ] && [ -z "$(cat "$level/$file")" ] && cat "$tree/$file" > "$level/$file" || true
    done
  done
  echo 0 > "$group/cgroup.procs"
done

export SYSTEMD_NSPAWN_API_VFS_WRITABLE=1
while :; do
  status=0
  # --keep-unit, --register=no: there need be no systemd on the machine itself.
  # keyring and bpf: runc needs both. /var/lib/docker is bound because overlay2 cannot lie on an overlay.
  systemd-nspawn --quiet --boot --directory="$disk/root" --machine="$node" --hostname="$node" \
    --register=no --keep-unit --network-namespace-path="$netns" --bind="$disk/docker:/var/lib/docker" \
    --resolv-conf=off --timezone=off --link-journal=no --capability=all --system-call-filter='@keyring bpf' \
    || status=$?
  [ "$status" = 133 ] || exit "$status"       # 133: the node asked for a reboot
done
