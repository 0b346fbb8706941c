"""Copies of packed layers on a node's own disk: where they lie, which are whole, and who uses them.

Below the operators' directory each account has one of its own: <place>/<uid>/<owner>/.layers/<layer>, as on shared
storage, so that what a layer says of its parents holds here too. A copy is whole from the moment that it has its name.
Whoever uses one holds a lock on its directory, which the kernel takes back when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hai_backend.environments import parse
from hai_backend.environments.errors import Broken
from hai_backend.environments.open_directories import opened
from hai_backend.environments.parse import Image
from hai_backend.environments.read import LAYERS, layer_folder, read_image

BUILDING, TRASH, LOCK, RECORD = ".unpacking", ".trash", ".lock", "copy.toml"
_MOST_BYTES = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Wanted:
    """A packed layer of an owner."""

    owner: str
    layer: str
    image: Image


def wanted_at(root: Path, owner: str, layer: str) -> Wanted | None:
    """None: it was not packed. Raises Broken, or OSError."""
    with opened(root) as folder, layer_folder(folder, owner, layer) as of_layer:
        try:
            return Wanted(owner, layer, read_image(of_layer))
        except FileNotFoundError:
            return None


def own(place: Path) -> Path:
    """This account's directory below the operators'. Raises Broken when there can be none."""
    made = place / str(os.geteuid())
    try:
        made.mkdir(mode=0o700, exist_ok=True)
        facts = made.lstat()
    except OSError as error:
        raise Broken(f"{made} cannot be made: {error.strerror}") from error
    safe = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o22
    if not safe:
        raise Broken(f"{made} is not a directory that only uid {os.geteuid()} may write")
    return made


def place_of(own: Path, wanted: Wanted) -> Path:
    """Where a copy lies."""
    return own / wanted.owner / LAYERS / wanted.layer


def record(folder: Path, image: Image) -> None:
    """Say which image a copy is made of; the time of this file is when it was last used."""
    facts = {"schema": parse.SCHEMA, **asdict(image)}
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in facts.items())  # the same in TOML
    (folder / RECORD).write_text("".join(lines))


def recorded(folder: Path) -> Image | None:
    """What a copy was made of; None: there is none."""
    try:
        with opened(folder) as here:
            return parse.image(here.text(RECORD, _MOST_BYTES))
    except (OSError, Broken):
        return None


def hold(own: Path, every: list[Wanted]) -> list[int] | None:
    """Keep copies as long as this process lives, or what is answered is closed; None: one of them is not there."""
    held: list[int] = []
    for wanted in every:
        folder = place_of(own, wanted)
        descriptor = lock(folder, fcntl.LOCK_SH)
        if descriptor is not None:
            held.append(descriptor)
        if descriptor is None or recorded(folder) != wanted.image:
            for each in held:
                os.close(each)
            return None
        os.utime(folder / RECORD)
    return held


def lock(folder: Path, how: int) -> int | None:
    """A lock on a directory that still has its name; None: it is not there, or somebody has another lock on it."""
    try:
        descriptor = os.open(folder, _FOLDER)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            return descriptor
    except OSError:  # including that it is locked
        pass
    os.close(descriptor)
    return None


def copies(own: Path) -> Iterator[tuple[Path, float, int]]:
    """All that are there: directory, when it was last used, bytes."""
    for folder in own.glob(f"[!.]*/{LAYERS}/*"):
        image = recorded(folder)
        if image is None:
            yield folder, 0.0, 0
            continue
        yield folder, (folder / RECORD).lstat().st_mtime, image.unpacked_bytes
