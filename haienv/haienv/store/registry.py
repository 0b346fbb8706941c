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

from haienv.digests import hash_text
from haienv.errors import Broken, NotFound, UsageError
from haienv.names import SYSTEM, Reference, is_name, parse_layer_link, translate_legacy_name
from haienv.store.layout import (
    CURRENT_LINK,
    LAYER_FILE,
    LAYERS_DIR,
    LOCK_FILE,
    METADATA_FILE,
    Home,
    site_packages,
)
from haienv.store.records import EnvMetadata, Layer, MalformedRecord, parse_layer, parse_metadata
from haienv.store.untrusted_io import (
    LOCK_LIMIT_BYTES,
    Unreadable,
    list_entries,
    read_link,
    read_text,
)

_VERSIONED = re.compile(r"python([0-9]+\.[0-9]+)[a-z]*")
_MAX_BYTES_OF_OTHER_OWNER = 2 << 20  # tomllib needs about a second per MiB


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment as its files describe it.

    If the environment cannot be used, `fault` says why, and metadata or layer may be missing. `text` is the exact text
    of the metadata file.
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
    def is_ready(self) -> bool:
        """True if the environment can be used."""
        return not self.fault

    @property
    def directory(self) -> Path:
        """The directory with the metadata of the environment."""
        return self.root / self.owner / self.name

    @property
    def path(self) -> Path:
        """The directory of the current layer."""
        return self.root / self.owner / LAYERS_DIR / self.layer_id

    @property
    def usable_layer(self) -> Layer:
        """The record of its layer. Raise Broken if the environment cannot be used."""
        if self.fault:
            raise Broken(f"environment {self} is broken: {self.fault}", "see `haienv doctor`")
        return self.recorded_layer

    @property
    def recorded_layer(self) -> Layer:
        """The record of the layer, also if the Python or a parent is missing: it suffices to build the layer again."""
        if self.layer is None:
            raise Broken(f"environment {self} is broken: {self.fault}", "see `haienv doctor`")
        return self.layer

    @property
    def sites(self) -> tuple[Path, ...]:
        """The directories of packages: of the layer, its parents (nearest first), and an extended Python."""
        layer = self.recorded_layer
        parent_sites = (
            site_packages(self.root / p.owner / LAYERS_DIR / p.layer, layer.minor_version)
            for p in layer.parents
        )
        own_site = site_packages(self.path, layer.minor_version)
        return (own_site, *parent_sites, *map(Path, layer.sites))

    def lock(self) -> str:
        """Return the text of the lock. Raise Broken if it cannot be read."""
        try:
            return read_text(self.path / LOCK_FILE, LOCK_LIMIT_BYTES)
        except Unreadable as error:
            raise Broken(f"the lock of {self} cannot be read: {error}") from error


def read_environment(home: Home, owner: str, name: str) -> Environment | None:
    """Read one environment. Return None if the caller can see none of this name."""
    environment = _read_once(home, owner, name)
    if environment is not None and environment.fault:
        # Another command may just have removed the environment, or switched it to another layer.
        return _read_once(home, owner, name)
    return environment


def _read_once(home: Home, owner: str, name: str) -> Environment | None:
    """Read one environment. Files that are invalid or cannot be read set its fault."""
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
    """Return the environment with its current layer, or with a fault if the layer cannot be used."""
    try:
        layer_id = parse_layer_link(read_link(environment.directory / CURRENT_LINK))
    except Unreadable as error:
        return replace(environment, fault=str(error))
    if not layer_id:
        return replace(
            environment, fault=f"{CURRENT_LINK} does not point to a layer of {environment.owner}"
        )
    environment = replace(environment, layer_id=layer_id)
    try:
        layer = parse_layer(read_text(environment.path / LAYER_FILE))
    except (Unreadable, MalformedRecord) as error:
        return replace(environment, fault=f"{LAYER_FILE}: {error}")
    fault = _platform_fault(layer) or layer_fault(home, environment.path, layer)
    return replace(environment, layer=layer, fault=fault)


def _platform_fault(layer: Layer) -> str:
    """Return why this kind of machine cannot run a layer; empty if it can, or if the platform is unknown."""
    machine = os.uname().machine
    is_foreign = layer.platform and not layer.platform.endswith(machine)
    return f"it is for {layer.platform}, this machine is {machine}" if is_foreign else ""


def read_layer(home: Home, owner: str, layer_id: str) -> Layer | None:
    """Return the record of a layer, which need not be in use; None if the record cannot be read."""
    try:
        return parse_layer(read_text(home.layer(owner, layer_id) / LAYER_FILE))
    except (Unreadable, MalformedRecord):
        return None


def layer_fault(home: Home, path: Path, layer: Layer) -> str:
    """Return why a layer cannot be used; empty if it can."""
    python = path / "bin" / "python"
    if not os.access(python, os.X_OK):
        return f"its Python {python} cannot be run on this machine"
    if not os.path.lexists(path / LOCK_FILE):
        return f"it has no {LOCK_FILE}"
    if (actual := _minor_from_name(python)) not in ("", layer.minor_version):
        return f"it was made for Python {layer.minor_version}, and {layer.interpreter} is {actual} on this machine"
    for parent in layer.parents:
        if not os.access(home.layer(parent.owner, parent.layer), os.R_OK | os.X_OK):
            return f"the layer of its parent {parent.name}[{parent.owner}] is missing or hidden"
    return ""


def _minor_from_name(python: Path) -> str:
    """Resolve a link to a Python, and return the minor version in its name, as in python3.11; empty if none."""
    match = _VERSIONED.fullmatch(os.path.basename(os.path.realpath(python)))
    return match[1] if match else ""


def list_owners(home: Home) -> list[str]:
    """Return the users that have a directory, sorted by name."""
    return [e.name for e in list_entries(home.root) if is_name(e.name) and _is_directory(e)]


def list_environments_of(home: Home, owner: str) -> Iterator[Environment]:
    """Yield the environments of one user that the caller can see, by name. Limit the bytes of other users."""
    remaining_bytes = sys.maxsize if owner == home.user else _MAX_BYTES_OF_OTHER_OWNER
    for entry in list_entries(home.root / owner):
        if is_name(entry.name) and _is_directory(entry):
            read = read_environment if remaining_bytes > 0 else _unread_placeholder
            environment = read(home, owner, entry.name)
            if environment is not None:
                remaining_bytes -= _file_size(environment.directory / METADATA_FILE)
                remaining_bytes -= _file_size(environment.path / LAYER_FILE)
                yield environment


def _unread_placeholder(home: Home, owner: str, name: str) -> Environment | None:
    fault = f"{owner} has more than {_MAX_BYTES_OF_OTHER_OWNER >> 20} MiB of metadata, so this environment was not read"
    exists = os.path.lexists(home.directory(owner, name) / METADATA_FILE)
    return Environment(home.root, owner, name, EnvMetadata(), fault=fault) if exists else None


def _file_size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def list_environments_in_root(home: Home) -> Iterator[Environment]:
    """Yield all environments of one root that the caller can see, by owner and name."""
    for owner in list_owners(home):
        yield from list_environments_of(home, owner)


def list_environments(home: Home, owner: str = "") -> Iterator[Environment]:
    """Yield the environments of all roots, or those of one user there. The first root with a name hides later ones."""
    listed: set[tuple[str, str]] = set()
    for root in home.roots():
        in_root = list_environments_of(root, owner) if owner else list_environments_in_root(root)
        for environment in in_root:
            if (environment.owner, environment.name) not in listed:
                listed.add((environment.owner, environment.name))
                yield environment


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def find_by_reference(home: Home, reference: Reference) -> Environment:
    """Find the environment of a reference: the caller's, then the system's, then the only one of another user.

    Earlier roots come first. Raise NotFound, or UsageError if several other users have the name.
    """
    for candidate in _candidate_references(home, reference):
        for root in home.roots():
            if environment := read_environment(root, candidate.owner, candidate.name):
                return check_lock(environment)
    others = [] if reference.owner else _find_of_other_owners(home, reference.name)
    if len(others) == 1:
        return check_lock(others[0])
    if others:
        names = ", ".join(map(str, others))
        raise UsageError(f"{reference} is ambiguous: {names}", "name one of them as NAME[USER]")
    raise NotFound(f"there is no environment {reference}", "`haienv list` shows all environments")


def check_lock(environment: Environment) -> Environment:
    """Set the fault if the lock differs from the recorded hash. Lists omit this check: locks may have megabytes."""
    if not environment.is_ready:
        return environment
    try:
        lock_hash = hash_text(read_text(environment.path / LOCK_FILE, LOCK_LIMIT_BYTES))
    except Unreadable as error:
        return replace(environment, fault=str(error))
    if lock_hash == environment.recorded_layer.lock_hash:
        return environment
    return replace(environment, fault=f"{LOCK_FILE} differs from the hash in {LAYER_FILE}")


def _candidate_references(home: Home, reference: Reference) -> Iterator[Reference]:
    """Yield the references to try before the environments of all other users are searched."""
    if reference.owner:
        yield reference
        return
    yield from (Reference(reference.name, owner) for owner in (home.user, SYSTEM))
    if legacy := translate_legacy_name(reference.name):
        yield Reference(legacy, SYSTEM)


def _find_of_other_owners(home: Home, name: str) -> list[Environment]:
    by_owner: dict[str, Environment] = {}
    for root in home.roots():
        for owner in list_owners(root):
            if owner not in (home.user, SYSTEM, *by_owner) and (
                environment := read_environment(root, owner, name)
            ):
                by_owner[owner] = environment
    return list(by_owner.values())


def find_children(home: Home, owner: str, layers: frozenset[str]) -> list[Environment]:
    """Return the environments of all users that extend one of the owner's layers."""
    return [
        each
        for each in list_environments_in_root(home)
        if each.layer is not None
        and any(p.owner == owner and p.layer in layers for p in each.layer.parents)
    ]


def find_by_lock(home: Home, lock_hash: str, preferred: Reference) -> Environment | None:
    """Return a usable environment with this lock: the preferred one, else the caller's, the system's, or another.

    Environments of other users come last, because a user can write any lock hash into the files.
    """
    candidates = [
        e
        for e in list_environments_in_root(home)
        if e.is_ready and e.layer and e.layer.lock_hash == lock_hash
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


def find_current_parent(home: Home, child: Environment) -> Environment | None:
    """Return the environment that now has the name of the nearest parent.

    Return None if there is none, or if that environment extends the child.
    """
    if child.layer is None or not child.layer.parents:
        return None
    nearest = child.layer.parents[0]
    parent = read_environment(home, nearest.owner, nearest.name)
    return None if parent is None or _is_or_extends(parent, child) else parent


def _is_or_extends(environment: Environment, child: Environment) -> bool:
    """Return True if an environment is the child or extends it. Names may be reused, but no layer can extend itself."""
    parents = environment.layer.parents if environment.layer else ()
    layers = [(environment.owner, environment.layer_id), *((p.owner, p.layer) for p in parents)]
    return environment.directory == child.directory or (child.owner, child.layer_id) in layers
