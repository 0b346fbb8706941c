"""Lists and finds environments by reading their files, which are the only source of truth.

Files of other users are untrusted: they are never run or imported, and they cannot make a reader block, follow a link
out of the root, or report another name or owner than those of the directories.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from haienv.errors import Broken, NotFound, UsageError
from haienv.names import SYSTEM, Reference, is_name, layer_of_link, legacy_name
from haienv.store.layout import (
    CURRENT_LINK,
    LAYER_FILE,
    LAYERS_DIR,
    LOCK_FILE,
    METADATA_FILE,
    Home,
    site_packages,
)
from haienv.store.lock_file import sha256_hex
from haienv.store.records import EnvMetadata, Layer, MalformedRecord, parse_layer, parse_metadata
from haienv.store.untrusted_io import LOCK_LIMIT, Unreadable, entries, link_text, read_text

_VERSIONED = re.compile(r"python([0-9]+\.[0-9]+)[a-z]*")
_MAX_BYTES_OF_OTHER_OWNER = 2 << 20  # tomllib needs about a second per MiB


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment as its files describe it.

    `fault` says why it cannot be used; then metadata or layer may be missing. `text` is the exact text of its metadata.
    """

    root: Path
    owner: str
    name: str
    metadata: EnvMetadata
    layer_id: str = ""
    layer: Layer | None = None
    fault: str = ""
    text: str = ""

    def __str__(self) -> str:
        return f"{self.name}[{self.owner}]"

    @property
    def ready(self) -> bool:
        """True if the environment can be used."""
        return not self.fault

    @property
    def directory(self) -> Path:
        """The directory of its metadata."""
        return self.root / self.owner / self.name

    @property
    def path(self) -> Path:
        """The directory of its current layer."""
        return self.root / self.owner / LAYERS_DIR / self.layer_id

    @property
    def usable(self) -> Layer:
        """The record of its layer. Raises Broken if the environment cannot be used."""
        if self.fault:
            raise Broken(f"environment {self} is broken: {self.fault}", "see `haienv doctor`")
        return self.recorded_layer

    @property
    def recorded_layer(self) -> Layer:
        """The record of its layer, even if its Python or a parent is missing: enough to build the layer again."""
        if self.layer is None:
            raise Broken(f"environment {self} is broken: {self.fault}", "see `haienv doctor`")
        return self.layer

    @property
    def sites(self) -> tuple[Path, ...]:
        """Directories of packages: of its layer, its parents (nearest first) and an extended Python."""
        layer = self.recorded_layer
        below = (
            site_packages(self.root / p.owner / LAYERS_DIR / p.layer, layer.minor)
            for p in layer.parents
        )
        return (site_packages(self.path, layer.minor), *below, *map(Path, layer.sites))

    def lock(self) -> str:
        """The text of its lock. Raises Broken."""
        try:
            return read_text(self.path / LOCK_FILE, LOCK_LIMIT)
        except Unreadable as error:
            raise Broken(f"the lock of {self} cannot be read: {error}") from error


def read_environment(home: Home, owner: str, name: str) -> Environment | None:
    """Read one environment; None if there is none that the caller can see."""
    found = _read_once(home, owner, name)
    # Read again: it may just have been removed, or switched to another layer
    if found is not None and found.fault:
        return _read_once(home, owner, name)
    return found


def _read_once(home: Home, owner: str, name: str) -> Environment | None:
    directory = home.directory(owner, name)
    empty = Environment(home.root, owner, name, EnvMetadata())
    if directory.is_symlink() or directory.parent.is_symlink():
        return None
    try:
        text = read_text(directory / METADATA_FILE)
    except Unreadable as error:
        if not os.path.lexists(directory / METADATA_FILE):
            return None
        return replace(empty, fault=str(error))
    try:
        metadata = parse_metadata(text)
    except MalformedRecord as error:
        return replace(empty, fault=f"{METADATA_FILE}: {error}")
    return _with_layer(home, replace(empty, metadata=metadata, text=text))


def _with_layer(home: Home, environment: Environment) -> Environment:
    try:
        layer_id = layer_of_link(link_text(environment.directory / CURRENT_LINK))
    except Unreadable as error:
        return replace(environment, fault=str(error))
    if not layer_id:
        return replace(
            environment, fault=f"{CURRENT_LINK} does not point to a layer of {environment.owner}"
        )
    found = replace(environment, layer_id=layer_id)
    try:
        layer = parse_layer(read_text(found.path / LAYER_FILE))
    except (Unreadable, MalformedRecord) as error:
        return replace(found, fault=f"{LAYER_FILE}: {error}")
    fault = _platform_fault(layer) or layer_fault(home, found.path, layer)
    return replace(found, layer=layer, fault=fault)


def _platform_fault(layer: Layer) -> str:
    """Why its programs cannot run on this kind of machine; empty if they can, or if the platform is unknown."""
    machine = os.uname().machine
    other = layer.platform and not layer.platform.endswith(machine)
    return f"it is for {layer.platform}, this machine is {machine}" if other else ""


def read_layer(home: Home, owner: str, layer_id: str) -> Layer | None:
    """The record of a layer, whether an environment uses it or not; None if it cannot be read."""
    try:
        return parse_layer(read_text(home.layer(owner, layer_id) / LAYER_FILE))
    except (Unreadable, MalformedRecord):
        return None


def layer_fault(home: Home, path: Path, layer: Layer) -> str:
    """Why a layer cannot be used; empty if it can."""
    python = path / "bin" / "python"
    if not os.access(python, os.X_OK):
        return f"its Python {python} cannot be run on this machine"
    if not os.path.lexists(path / LOCK_FILE):
        return f"it has no {LOCK_FILE}"
    if (now := _named_minor(python)) not in ("", layer.minor):
        return f"it was made for Python {layer.minor}, and {layer.interpreter} is {now} on this machine"
    for parent in layer.parents:
        if not os.access(home.layer(parent.owner, parent.layer), os.R_OK | os.X_OK):
            return f"the layer of its parent {parent.name}[{parent.owner}] is missing or hidden"
    return ""


def _named_minor(python: Path) -> str:
    """The minor version in the name of the program that a link resolves to, as in python3.11; empty if it has none."""
    found = _VERSIONED.fullmatch(os.path.basename(os.path.realpath(python)))
    return found[1] if found else ""


def owners(home: Home) -> list[str]:
    """Users that have a directory, sorted by name."""
    return [e.name for e in entries(home.root) if is_name(e.name) and _is_directory(e)]


def list_owner(home: Home, owner: str) -> Iterator[Environment]:
    """Environments of one user that the caller can see, by name; the bytes read of other users are limited."""
    remaining_bytes = sys.maxsize if owner == home.user else _MAX_BYTES_OF_OTHER_OWNER
    for entry in entries(home.root / owner):
        if is_name(entry.name) and _is_directory(entry):
            found = (read_environment if remaining_bytes > 0 else _unread_placeholder)(
                home, owner, entry.name
            )
            if found is not None:
                remaining_bytes -= _file_size(found.directory / METADATA_FILE) + _file_size(
                    found.path / LAYER_FILE
                )
                yield found


def _unread_placeholder(home: Home, owner: str, name: str) -> Environment | None:
    fault = f"{owner} has more than {_MAX_BYTES_OF_OTHER_OWNER >> 20} MiB of metadata, so this environment was not read"
    exists = os.path.lexists(home.directory(owner, name) / METADATA_FILE)
    return Environment(home.root, owner, name, EnvMetadata(), fault=fault) if exists else None


def _file_size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def list_root(home: Home) -> Iterator[Environment]:
    """All environments of one root that the caller can see, by owner and name."""
    for owner in owners(home):
        yield from list_owner(home, owner)


def list_all(home: Home, owner: str = "") -> Iterator[Environment]:
    """Environments (of one user) of all roots; an earlier root hides the same name and owner in later ones."""
    listed: set[tuple[str, str]] = set()
    for each in home.roots():
        for found in list_owner(each, owner) if owner else list_root(each):
            if (found.owner, found.name) not in listed:
                listed.add((found.owner, found.name))
                yield found


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def find(home: Home, reference: Reference) -> Environment:
    """Resolve a reference: the caller's environment, then the system's, then the only one of another user.

    Earlier roots come first. Raises NotFound, or UsageError if several users have the name.
    """
    for candidate in _candidates(home, reference):
        for each in home.roots():
            if found := read_environment(each, candidate.owner, candidate.name):
                return with_lock_checked(found)
    others = [] if reference.owner else _of_other_owners(home, reference.name)
    if len(others) == 1:
        return with_lock_checked(others[0])
    if others:
        names = ", ".join(map(str, others))
        raise UsageError(f"{reference} is ambiguous: {names}", "name one of them as NAME[USER]")
    raise NotFound(f"there is no environment {reference}", "`haienv list` shows all environments")


def with_lock_checked(found: Environment) -> Environment:
    """Set a fault if the lock differs from the recorded hash. Too slow for lists: locks may have megabytes."""
    if not found.ready:
        return found
    try:
        same = (
            sha256_hex(read_text(found.path / LOCK_FILE, LOCK_LIMIT))
            == found.recorded_layer.lock_hash
        )
    except Unreadable as error:
        return replace(found, fault=str(error))
    return (
        found
        if same
        else replace(found, fault=f"{LOCK_FILE} differs from the hash in {LAYER_FILE}")
    )


def _candidates(home: Home, reference: Reference) -> Iterator[Reference]:
    """References to try before all other users are searched."""
    if reference.owner:
        yield reference
        return
    yield from (Reference(reference.name, owner) for owner in (home.user, SYSTEM))
    if legacy := legacy_name(reference.name):
        yield Reference(legacy, SYSTEM)


def _of_other_owners(home: Home, name: str) -> list[Environment]:
    found: dict[str, Environment] = {}
    for each in home.roots():
        for owner in owners(each):
            if owner not in (home.user, SYSTEM, *found) and (
                match := read_environment(each, owner, name)
            ):
                found[owner] = match
    return list(found.values())


def children(home: Home, owner: str, layers: frozenset[str]) -> list[Environment]:
    """Environments of any user that extend one of a user's layers."""
    return [
        each
        for each in list_root(home)
        if each.layer is not None
        and any(p.owner == owner and p.layer in layers for p in each.layer.parents)
    ]


def find_by_lock(home: Home, lock_hash: str, preferred: Reference) -> Environment | None:
    """A usable environment with this lock: preferably the named one, then the caller's, the system's, others'.

    Owners could claim any lock hash, so other users come last.
    """
    candidates = [
        e for e in list_root(home) if e.ready and e.layer and e.layer.lock_hash == lock_hash
    ]
    trusted = (preferred.owner, home.user, SYSTEM)
    return min(
        candidates,
        key=lambda e: (
            Reference(e.name, e.owner) != preferred,
            trusted.index(e.owner) if e.owner in trusted else len(trusted),
            str(e),
        ),
        default=None,
    )


def current_parent(home: Home, child: Environment) -> Environment | None:
    """The environment that now has the name of the nearest parent; None if missing, or if it extends the child."""
    if child.layer is None or not child.layer.parents:
        return None
    nearest = child.layer.parents[0]
    found = read_environment(home, nearest.owner, nearest.name)
    return None if found is None or _extends(found, child) else found


def _extends(found: Environment, child: Environment) -> bool:
    """True if an environment is the child or extends it: names may be reused, and nothing can extend itself."""
    below = found.layer.parents if found.layer else ()
    chain = [(found.owner, found.layer_id), *((p.owner, p.layer) for p in below)]
    return found.directory == child.directory or (child.owner, child.layer_id) in chain
