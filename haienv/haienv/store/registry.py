"""Which environments there are: read from the files themselves, which are the only truth.

Nothing of another user is ever run or imported here, and nothing that they wrote can make a reader wait,
follow a link out of the root, or see another name or owner than those of the directories.
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
from haienv.store.lock import sha256_hex
from haienv.store.records import EnvMetadata, Layer, MalformedRecord, parse_layer, parse_metadata
from haienv.store.untrusted_io import LOCK_LIMIT, Unreadable, entries, link_text, read_text

_VERSIONED = re.compile(r"python([0-9]+\.[0-9]+)[a-z]*")
_MAX_BYTES_OF_OTHER_OWNER = 2 << 20  # Python's reader of TOML takes a second for each MiB


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment as its files tell. `fault` says why it cannot be used; then label or layer may be missing.

    `text` is that of its label, word for word.
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
        """True when it can be used."""
        return not self.fault

    @property
    def directory(self) -> Path:
        """Where its label lies."""
        return self.root / self.owner / self.name

    @property
    def path(self) -> Path:
        """Its layer: where its files lie now."""
        return self.root / self.owner / LAYERS_DIR / self.layer_id

    @property
    def usable(self) -> Layer:
        """What its layer is, or Broken."""
        if self.fault:
            raise Broken(f"environment {self} is broken: {self.fault}", "see `haienv doctor`")
        return self.recorded_layer

    @property
    def recorded_layer(self) -> Layer:
        """The same where its Python cannot be run, or a parent is gone: enough to make it anew."""
        if self.layer is None:
            raise Broken(f"environment {self} is broken: {self.fault}", "see `haienv doctor`")
        return self.layer

    @property
    def sites(self) -> tuple[Path, ...]:
        """Directories of packages, nearest first: its own, those of its parents, of an extended Python."""
        layer = self.recorded_layer
        below = (
            site_packages(self.root / p.owner / LAYERS_DIR / p.layer, layer.minor)
            for p in layer.parents
        )
        return (site_packages(self.path, layer.minor), *below, *map(Path, layer.sites))

    def lock(self) -> str:
        """The text of its lock."""
        try:
            return read_text(self.path / LOCK_FILE, LOCK_LIMIT)
        except Unreadable as error:
            raise Broken(f"the lock of {self} cannot be read: {error}") from error


def read_environment(home: Home, owner: str, name: str) -> Environment | None:
    """One environment; None when there is none that the caller sees."""
    found = _read_once(home, owner, name)
    # Perhaps it is being removed, or switched to another layer
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


def _with_layer(home: Home, known: Environment) -> Environment:
    try:
        layer_id = layer_of_link(link_text(known.directory / CURRENT_LINK))
    except Unreadable as error:
        return replace(known, fault=str(error))
    if not layer_id:
        return replace(known, fault=f"{CURRENT_LINK} does not point to a layer of {known.owner}")
    found = replace(known, layer_id=layer_id)
    try:
        layer = parse_layer(read_text(found.path / LAYER_FILE))
    except (Unreadable, MalformedRecord) as error:
        return replace(found, fault=f"{LAYER_FILE}: {error}")
    fault = _platform_fault(layer) or layer_fault(home, found.path, layer)
    return replace(found, layer=layer, fault=fault)


def _platform_fault(layer: Layer) -> str:
    """Why its programs cannot run on machines of this kind; empty: they can, or nobody said."""
    here = os.uname().machine
    other = layer.platform and not layer.platform.endswith(here)
    return f"it is for {layer.platform}, this machine is {here}" if other else ""


def read_layer(home: Home, owner: str, layer_id: str) -> Layer | None:
    """What a layer is, whether an environment has it or not; None: it cannot be read."""
    try:
        return parse_layer(read_text(home.layer(owner, layer_id) / LAYER_FILE))
    except (Unreadable, MalformedRecord):
        return None


def layer_fault(home: Home, path: Path, layer: Layer) -> str:
    """Why a layer cannot be used; empty: it can."""
    python = path / "bin" / "python"
    if not os.access(python, os.X_OK):
        return f"its Python {python} cannot be run on this machine"
    if not os.path.lexists(path / LOCK_FILE):
        return f"it has no {LOCK_FILE}"
    if (now := _named_minor(python)) not in ("", layer.minor):
        return f"it was made for Python {layer.minor}, and {layer.interpreter} is {now} on this machine"
    for parent in layer.parents:
        if not os.access(home.layer(parent.owner, parent.layer), os.R_OK | os.X_OK):
            return f"the layer of its parent {parent.name}[{parent.owner}] is gone or hidden"
    return ""


def _named_minor(python: Path) -> str:
    """The version in the name of the program that a link leads to, as in python3.11; empty: none is there."""
    found = _VERSIONED.fullmatch(os.path.basename(os.path.realpath(python)))
    return found[1] if found else ""


def owners(home: Home) -> list[str]:
    """Users that have a directory, by name."""
    return [e.name for e in entries(home.root) if is_name(e.name) and _is_directory(e)]


def list_owner(home: Home, owner: str) -> Iterator[Environment]:
    """The environments of one user that the caller sees, by name; of another so much is read that none waits long."""
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
    fault = f"{owner} has more than {_MAX_BYTES_OF_OTHER_OWNER >> 20} MiB of labels, so this one was not read"
    there = os.path.lexists(home.directory(owner, name) / METADATA_FILE)
    return Environment(home.root, owner, name, EnvMetadata(), fault=fault) if there else None


def _file_size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def list_root(home: Home) -> Iterator[Environment]:
    """All environments that the caller sees, by owner and name."""
    for owner in owners(home):
        yield from list_owner(home, owner)


def list_all(home: Home, owner: str = "") -> Iterator[Environment]:
    """Environments (of one user) of every root; one that an earlier root has too is that one."""
    seen: set[tuple[str, str]] = set()
    for each in home.roots():
        for found in list_owner(each, owner) if owner else list_root(each):
            if (found.owner, found.name) not in seen:
                seen.add((found.owner, found.name))
                yield found


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def find(home: Home, reference: Reference) -> Environment:
    """The environment that is meant: own, then the system's, then others' if only one fits; in the first root."""
    for meant in _candidates(home, reference):
        for each in home.roots():
            if found := read_environment(each, meant.owner, meant.name):
                return with_lock_checked(found)
    others = [] if reference.owner else _of_other_owners(home, reference.name)
    if len(others) == 1:
        return with_lock_checked(others[0])
    if others:
        names = ", ".join(map(str, others))
        raise UsageError(f"{reference} may be {names}", "say which one, as NAME[USER]")
    raise NotFound(f"there is no environment {reference}", "`haienv list` shows what there is")


def with_lock_checked(found: Environment) -> Environment:
    """With a fault where its lock is not the one that its layer names. Not for lists: a lock may have megabytes."""
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
        else replace(found, fault=f"{LOCK_FILE} is not the one that {LAYER_FILE} names")
    )


def _candidates(home: Home, reference: Reference) -> Iterator[Reference]:
    """Whose it may be, before others' are looked through."""
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
                seen := read_environment(each, owner, name)
            ):
                found[owner] = seen
    return list(found.values())


def children(home: Home, owner: str, layers: frozenset[str]) -> list[Environment]:
    """Environments, of anybody, that extend one of a user's layers."""
    return [
        each
        for each in list_root(home)
        if each.layer is not None
        and any(p.owner == owner and p.layer in layers for p in each.layer.parents)
    ]


def find_by_lock(home: Home, lock_hash: str, meant: Reference) -> Environment | None:
    """One that can be used and has this lock: the one that is meant, else of the caller, of the system, of others.

    Locks are what their owners say, so those of others count last.
    """
    candidates = [
        e for e in list_root(home) if e.ready and e.layer and e.layer.lock_hash == lock_hash
    ]
    trusted = (meant.owner, home.user, SYSTEM)
    return min(
        candidates,
        key=lambda e: (
            Reference(e.name, e.owner) != meant,
            trusted.index(e.owner) if e.owner in trusted else len(trusted),
            str(e),
        ),
        default=None,
    )


def current_parent(home: Home, child: Environment) -> Environment | None:
    """What has the name of the nearest parent now; None: nothing, or what stands on the child."""
    if child.layer is None or not child.layer.parents:
        return None
    nearest = child.layer.parents[0]
    found = read_environment(home, nearest.owner, nearest.name)
    return None if found is None or _extends(found, child) else found


def _extends(found: Environment, child: Environment) -> bool:
    """Names may change hands, and nothing can stand on itself."""
    below = found.layer.parents if found.layer else ()
    chain = [(found.owner, found.layer_id), *((p.owner, p.layer) for p in below)]
    return found.directory == child.directory or (child.owner, child.layer_id) in chain
