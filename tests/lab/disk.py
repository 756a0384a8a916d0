"""One node's disk: what lies over the shared root file system before its first boot."""

import json
import os
import shutil
import subprocess
from pathlib import Path

ON_NODE = Path(__file__).with_name("on_node")
SPARK_UID = 1000
_PROGRAMS = ("lab-runc", "lab-fixup", "nvidia-container-runtime-hook")
_FIXUP_UNIT = "etc/systemd/system/lab-fixup.service"
_DOCKERD = {
    "runtimes": {"lab": {"path": "/usr/local/sbin/lab-runc"}, "nvidia": {"path": "/usr/local/sbin/lab-runc"}},
    "default-runtime": "lab",
    # Containers use the node's own network, as in production; bridges and NAT need kernel parts that may be missing.
    "bridge": "none",
    "iptables": False,
    "ip6tables": False,
    "ip-masq": False,
    "storage-driver": "overlay2",
    "cgroup-parent": "/docker",
}
# Its interface for kubelets would listen on another port at each boot; docker does not use it.
_CONTAINERD = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
_SSHD = """\
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
HostKey /etc/ssh/ssh_host_ed25519_key
MaxStartups 50:30:100
MaxSessions 50
UseDNS no
"""


def make_key(path: Path, comment: str) -> str:
    """Makes an ed25519 key pair without passphrase at `path` unless it is there; returns the public line."""
    if not path.exists():
        subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)), check=True)
    return path.with_suffix(".pub").read_text().strip()


class Disk:
    """A folder with a node's overlay (`upper`, `work`, mounted at `root`) and its /var/lib/docker (`docker`)."""

    def __init__(self, folder: Path, rootfs: Path) -> None:
        self.folder = folder
        self.rootfs = rootfs

    def lay(self, name: str, operator_key: str) -> str:
        """Writes an empty disk for node `name` and returns its public host key. `operator_key` may log in as spark."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for part in ("upper", "work", "root", "docker"):
            (self.folder / part).mkdir(parents=True)
        host_key = make_key(self.folder / "host_key", name)
        self._put("etc/ssh/ssh_host_ed25519_key", (self.folder / "host_key").read_text(), 0o600)
        self._put("etc/ssh/ssh_host_ed25519_key.pub", host_key + "\n")
        self._put("etc/ssh/sshd_config.d/lab.conf", _SSHD)
        self._put("etc/hostname", name + "\n")
        self._put("etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
        self._put("etc/docker/daemon.json", json.dumps(_DOCKERD))
        self._put("etc/containerd/config.toml", _CONTAINERD)
        self._put("home/spark/.ssh/authorized_keys", operator_key + "\n", 0o600, SPARK_UID)
        for program in _PROGRAMS:
            self._put(f"usr/local/sbin/{program}", (ON_NODE / program).read_text(), 0o755)
        self._put(_FIXUP_UNIT, (ON_NODE / "lab-fixup.service").read_text())
        wants = self._parent("etc/systemd/system/sysinit.target.wants/lab-fixup.service")
        wants.symlink_to("../lab-fixup.service")
        return host_key

    def _put(self, path: str, text: str, mode: int = 0o644, owner: int = 0) -> None:
        target = self._parent(path)
        target.write_text(text)
        target.chmod(mode)
        os.chown(target, owner, owner)

    def _parent(self, path: str) -> Path:
        """Makes the folders above `path` in the overlay as they are below it: the upper layer's owner and mode win."""
        upper, lower = self.folder / "upper", self.rootfs
        for part in Path(path).parts[:-1]:
            upper, lower = upper / part, lower / part
            if not upper.exists():
                upper.mkdir(mode=0o755)
                if lower.exists():
                    status = lower.stat()
                    os.chown(upper, status.st_uid, status.st_gid)
                    upper.chmod(status.st_mode & 0o7777)
        return upper / Path(path).name
