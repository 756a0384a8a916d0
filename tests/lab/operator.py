"""The operator of the lab: a folder with a cluster file, a profile and pins for what the nodes will run."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from tests.lab.image import Layout
from tests.lab.nodes import Lab
from tests.operator import Operator

# Everything that a shell, an SSH client or docker could take for something else.
ODD = "-two words $(id) `id` 'quoted' \"too\" ünïcode 🦊\nline"
ROOT = Path(__file__).parents[2]
NAME = "lab"


def make(folder: Path, lab: Lab, image: Layout, model: Path) -> Operator:
    """Everything that an operator writes, and the bits where sparkctl looks for them on his machine."""
    home = folder / "home"
    images, models = home / "images", home / "models"
    for path in (folder / "tmp", folder / "profiles", folder / "pins" / "stacks", images, models):
        path.mkdir(parents=True)
    (images / image.ref.digest.replace(":", "-")).symlink_to(image.path)
    (models / "tiny-moe").symlink_to(model)
    _write(folder / "profiles" / f"{NAME}.yaml", _profile())
    _write(folder / "pins" / "stacks" / f"{NAME}.yaml", _stack(image))
    _write(folder / "cluster.yaml", _cluster(folder, lab))
    (folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {lab.key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {lab.known_hosts}\n"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKCTL_"))}
    env |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "", "TMPDIR": str(folder / "tmp")}
    return Operator(folder, env, 8000, NAME, lab.nodes[0].address)


def _write(path: Path, value: object) -> None:
    path.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")


def _profile() -> dict[str, object]:
    """The shipped ``tiny``, in containers: the same engine, another runtime."""
    profile: dict[str, object] = yaml.safe_load((ROOT / "profiles" / "tiny.yaml").read_text(encoding="utf-8"))
    return profile | {
        "name": NAME,
        "runtime": "docker",
        "stack": {"ray": NAME, "mp": NAME},
        "shm_bytes": 2_000_000_000,
        "env": {**dict(profile["env"]), "ODD": ODD},  # type: ignore[call-overload]
        # Whatever is said here, the engine calls itself by it in every answer.
        "engine_args": {**dict(profile["engine_args"]), "response-role": ODD},  # type: ignore[call-overload]
    }


def _stack(image: Layout) -> dict[str, object]:
    stack: dict[str, object] = yaml.safe_load((ROOT / "pins/stacks/vllm-cpu.yaml").read_text(encoding="utf-8"))
    pinned = {"repository": image.ref.repository, "digest": image.ref.digest, "confidence": "built"}
    return stack | {"name": NAME, "image": pinned, "gateway": dict(pinned)}


def _cluster(folder: Path, lab: Lab) -> dict[str, object]:
    nodes = [
        {
            "name": node.name,
            "ssh": {"host": node.address, "user": "spark"},
            "accelerator": "none",
            "rails": [
                {"netdev": netdev, "address": address}
                for netdev, address in zip(("enp1s0f0np0", "enP2p1s0f0np0"), node.fabric, strict=True)
            ],
        }
        for node in lab.nodes
    ]
    home = folder / "home"
    return {
        "name": "lab",
        "topology": "switch",
        "nodes": nodes,
        "bits": {"models_from": str(home / "models"), "images_from": str(home / "images")},
        "ssh_config": str(folder / "ssh_config"),
    }
