"""The nodes' root file system: Debian made by mmdebstrap once, from this machine's own mirror, kept and shared."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path("/var/tmp/sparkctl-lab")

NODE_SUITE = "trixie"
NODE_PACKAGES = (
    *("systemd-sysv", "dbus", "docker.io", "docker-cli", "iptables", "nftables", "openssh-server", "iproute2"),
    *("iputils-ping", "procps", "sudo", "rsync", "zstd", "curl", "ca-certificates", "python3", "util-linux"),
)
# Timers would start processes at times of their own, and a snapshot of a node must hold still. Kernel modules are the
# machine's affair, and a unit that fails would make a sound node look degraded.
_MASKED = ("systemd-modules-load.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer")
NODE_HOOKS = (
    'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname; : > "$1"/etc/machine-id',
    'rm -rf "$1"/var/lib/docker; mkdir -m 710 "$1"/var/lib/docker',
    'chroot "$1" useradd --uid 1000 --create-home --shell /bin/bash --groups docker,sudo spark',
    'chroot "$1" install -d -m 700 -o spark -g spark /home/spark/.ssh',
    'echo "spark ALL=(ALL) NOPASSWD:ALL" > "$1"/etc/sudoers.d/spark; chmod 440 "$1"/etc/sudoers.d/spark',
    f'cd "$1"/etc/systemd/system && for unit in {" ".join(_MASKED)}; do ln -s /dev/null $unit; done',
)
_DOCUMENTATION = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")


def debian_mirror() -> str:
    """The Debian mirror that this machine's own apt uses. Raises RuntimeError when apt knows of none."""
    wanted = ("--format", "$(SITE)", "Created-By: Packages", "Origin: Debian", "Label: Debian")
    # `apt-get indextargets` knows origins only after `apt-get update`; the configured sites it always knows.
    for arguments in (wanted, wanted[:3]):
        found = subprocess.run(("apt-get", "indextargets", *arguments), capture_output=True, text=True, check=False)
        for site in found.stdout.split():
            if site.rstrip("/").endswith("/debian"):
                return site
    raise RuntimeError("apt names no Debian mirror; add one (URIs: …/debian) to /etc/apt/sources.list.d and try again")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file beside `path`, so that two runs never make the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def recipe_hash(*parts: object) -> str:
    """The first 12 hex digits of a sha256 over JSON-able values: the name of what is made from them."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def mmdebstrap(suite: str, packages: tuple[str, ...], hooks: tuple[str, ...], target: Path, *options: str) -> None:
    """Builds a Debian root file system at `target` (a directory, or a tar when the name ends so); 20–40 s.

    Raises RuntimeError with mmdebstrap's last lines when it fails; nothing is left at `target` then.
    """
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}", *options]
    argv += ['--aptopt=APT::Install-Recommends "false"']
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _DOCUMENTATION]
    argv += [f"--customize-hook={hook}" for hook in hooks]
    # mmdebstrap gives files no later time than this, so that equal packages make equal bytes.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    argv += [suite, str(target), debian_mirror()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        shutil.rmtree(target, ignore_errors=True) if target.is_dir() else target.unlink(missing_ok=True)
        raise RuntimeError(f"mmdebstrap could not make {suite}: " + "\n".join(done.stderr.splitlines()[-15:]))


def node_rootfs() -> Path:
    """The directory with the nodes' root file system; made on first use (about 30 s), then found again."""
    made = CACHE / f"rootfs-{recipe_hash(NODE_SUITE, NODE_PACKAGES, NODE_HOOKS, _DOCUMENTATION)}"
    with locked(made):
        if not made.is_dir():
            half = made.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            mmdebstrap(NODE_SUITE, NODE_PACKAGES, NODE_HOOKS, half, "--format=directory", "--skip=cleanup/apt/lists")
            half.rename(made)
    return made
