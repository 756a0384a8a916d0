"""The edge that reads what the operator and the package hold: profiles, pins and the cluster file.

A profile is named, never pathed: a name is checked before any file is opened. What stands first wins: the current
directory, then ``~/.config/sparkctl``, then what travels with the package. All errors are ``SpecError``.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orchestrator.spec.cluster import Cluster, Spec
from orchestrator.spec.machine import Machine
from orchestrator.spec.model import Model
from orchestrator.spec.parsing import MOST_BYTES, parse
from orchestrator.spec.pins import KnownBadTable, Stack
from orchestrator.spec.problems import Problem, SpecError, shorten
from orchestrator.spec.profile import Profile

if TYPE_CHECKING:
    from orchestrator.spec.signatures import SignatureTable

T = TypeVar("T", Profile, Stack, Model, Machine)
Table = TypeVar("Table", bound=Spec)

# A name that ends like a file is a path that somebody typed, and as a deployment's name .lock would be another's lock.
_NAME = re.compile(r"(?!.{43})(?!.*\.(ya?ml|lock)$)[a-z0-9]+((-+|\.)[a-z0-9]+)*")
_FOLDERS = {"profile": "profiles", "stack": "pins/stacks", "model": "pins/models", "machine": "pins/machines"}


def open_catalog(cluster: str | None = None) -> Catalog:
    """The catalog of this process: the current directory, the operator's own folder, the package's.

    ``cluster`` is the path that ``--cluster`` names; without it, ``SPARKCTL_CLUSTER`` may name one.
    """
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sparkctl"
    package = Path(__file__).resolve().parent.parent
    shipped = package / "data" if (package / "data").is_dir() else package.parent
    chosen = cluster or os.environ.get("SPARKCTL_CLUSTER")
    return Catalog((Path.cwd(), config), shipped=shipped, cluster_path=Path(chosen).expanduser() if chosen else None)


@dataclass(frozen=True, slots=True)
class Catalog:
    """``roots`` are searched in order for everything; ``shipped`` after them, and never for a cluster file."""

    roots: tuple[Path, ...]
    shipped: Path | None = None
    cluster_path: Path | None = None

    def profile(self, name: str) -> Profile:
        return self._load("profile", name, Profile)

    def stack(self, name: str) -> Stack:
        return self._load("stack", name, Stack)

    def model(self, name: str) -> Model:
        return self._load("model", name, Model)

    def machine(self, name: str) -> Machine:
        return self._load("machine", name, Machine)

    def known_bad(self) -> KnownBadTable:
        """The table of combinations that fail: the first ``pins/known-bad.yaml`` that there is."""
        return self._table("known-bad", KnownBadTable) or KnownBadTable(combinations=())

    def signatures(self) -> SignatureTable:
        """The table of what lines of output mean: the first ``pins/signatures.yaml`` that there is."""
        from orchestrator.spec.signatures import SignatureTable  # only what reads logs needs it

        return self._table("signatures", SignatureTable) or SignatureTable(signatures=())

    def _table(self, name: str, kind: type[Table]) -> Table | None:
        for root in self._roots():
            path = root / "pins" / f"{name}.yaml"
            if os.path.lexists(path):
                return parse(_read(path, path.parent), _shown(path), kind)
        return None

    def names(self, what: str = "profile") -> tuple[str, ...]:
        """What there is of ``profile``, ``stack``, ``model`` or ``machine``, in alphabetical order."""
        found: set[str] = set()
        for folder in self._folders(what):
            try:
                found.update(path.stem for path in folder.iterdir() if path.suffix == ".yaml")
            except OSError:
                continue
        return tuple(sorted(name for name in found if _NAME.fullmatch(name)))

    def makers(self) -> dict[str, str]:
        """Where the programs lie that a model's ``made_by`` names, by that name. Only the package's own are run."""
        if self.shipped is None:
            return {}
        found = self.shipped.glob("containers/*/make_*.py")
        return {path.relative_to(self.shipped).as_posix(): str(path) for path in found}

    def cluster(self) -> Cluster | None:
        """The operator's machines; ``None`` when there is no cluster file and none was asked for."""
        path = self._cluster_file()
        if path is None:
            return None
        if not os.path.lexists(path):
            says = "should be a cluster file, found nothing; docs/cluster.md has a commented one to start from"
            raise SpecError([Problem(_shown(path), says)])
        return parse(_read(path, None), _shown(path), Cluster)

    @property
    def cluster_file(self) -> str:
        """What messages call the cluster file, also where there is none."""
        path = self._cluster_file()
        return "cluster.yaml" if path is None else _shown(path)

    def _cluster_file(self) -> Path | None:
        """The file that was asked for, whether it is there or not, or the first one that is there."""
        if self.cluster_path is not None:
            return self.cluster_path
        paths = (root / "cluster.yaml" for root in self.roots)
        return next((path for path in paths if os.path.lexists(path)), None)

    def _folders(self, what: str) -> tuple[Path, ...]:
        return tuple(root / _FOLDERS[what] for root in self._roots())

    def _roots(self) -> tuple[Path, ...]:
        return self.roots if self.shipped is None else (*self.roots, self.shipped)

    def _load(self, what: str, name: str, kind: type[T]) -> T:
        if not _NAME.fullmatch(name):
            raise SpecError([Problem(what, self._not_a_name(what, name))])
        for folder in self._folders(what):
            path = folder / f"{name}.yaml"
            if os.path.lexists(path):
                return _named(parse(_read(path, folder), _shown(path), kind), name, _shown(path))
        other = next((path for path in self._misspelt(what, name) if os.path.lexists(path)), None)
        if other is not None:
            raise SpecError([Problem(what, f"should end in .yaml, found {_shown(other)}; rename it")])
        raise SpecError([Problem(what, self._missing(what, name), (name,))])

    def _not_a_name(self, what: str, name: str) -> str:
        base = re.sub(r"\.ya?ml$", "", name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])
        says = f"should be the name of a {what}"
        if "/" in name or "\\" in name or name.endswith((".yaml", ".yml")) or name in {".", ".."}:
            says += f", not a path (files are looked for in {_FOLDERS[what]}/ here and in ~/.config/sparkctl/)"
        elif name.endswith(".lock"):
            says += ", and none ends in .lock, as the lock of a deployment does"
        else:
            says += " (letters a-z, digits, inner hyphens and dots, at most 42)"
        return f"{says}, found {shorten(name) or 'nothing'}{_there_is(self._nearest(what, base))}"

    def _misspelt(self, what: str, name: str) -> tuple[Path, ...]:
        return tuple(folder / f"{name}.yml" for folder in self._folders(what))

    def _missing(self, what: str, name: str) -> str:
        names = self._nearest(what, name)
        from difflib import get_close_matches  # for what went wrong only

        near = get_close_matches(name, names, n=1)
        there = _there_is(names)
        if not near:
            return f"there is no such {what}{there}"
        return f"there is no such {what}; did you mean {near[0]}? T{there.removeprefix('; t')}"

    def _nearest(self, what: str, name: str) -> list[str]:
        """All names, the nearest first."""
        names = self.names(what)
        from difflib import get_close_matches  # for what went wrong only

        near = get_close_matches(name[:64], names, n=5, cutoff=0.4)
        return [*near, *(other for other in names if other not in near)]


def _there_is(names: list[str]) -> str:
    if not names:
        return "; there is none yet"
    return f"; there is {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"


def _named(value: T, name: str, where: str) -> T:
    if value.name != name:
        raise SpecError([Problem(where, f"should be {name}, as the file is called, found {value.name}", ("name",))])
    return value


def _read(path: Path, folder: Path | None) -> bytes:
    """The bytes of a regular file, at most one more than a file may have. Never waits, as on a FIFO.

    With ``folder``, a link that leads out of it is refused: what is named must be what is there.
    """
    where = _shown(path)
    try:
        real = path.resolve(strict=True)
        if folder is not None and folder.resolve() not in real.parents:
            raise SpecError([Problem(where, f"should be a file of {_shown(folder)}/, found a link to {real}")])
        handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, RuntimeError) as error:
        raise SpecError([Problem(where, _unreadable(path, error))]) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise SpecError([Problem(where, f"should be a regular file, found {_type_of(status.st_mode)}")])
        if status.st_size > MOST_BYTES:
            raise SpecError([Problem(where, f"should be at most {MOST_BYTES} bytes, found {status.st_size}")])
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(MOST_BYTES + 1)
    finally:
        os.close(handle)


def _unreadable(path: Path, error: OSError | RuntimeError) -> str:
    if isinstance(error, FileNotFoundError):
        dangling = path.is_symlink()
        return f"should be a file, found {'a link to nothing' if dangling else 'nothing'}"
    if isinstance(error, PermissionError):
        return f"should be readable by you, found permission denied; chmod u+r {path}"
    return f"should be readable, found {getattr(error, 'strerror', None) or error}"


def _type_of(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _shown(path: Path) -> str:
    """A path as a person writes it: relative under the current directory, with ``~`` under home."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_absolute() and path.is_relative_to(base) and path != base:
            return prefix + str(path.relative_to(base))
    return str(path)
