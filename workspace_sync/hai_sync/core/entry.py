"""What a path is. A tree is a mapping from paths to entries, never changed in place.

Paths are relative, their parts joined by "/". Directories have entries of their own, so that empty
ones are kept. Flat mappings, not nested nodes: most questions are about single paths, and copying
a mapping of 20 000 costs less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

UNHASHED = b""
"""The digest of a file whose content nobody has looked at yet: it equals nothing but itself."""


class Kind(IntEnum):
    """What lies at a path. Numbers are those of hai.v1.EntryKind; PROBLEM never travels."""

    FILE = 1
    DIRECTORY = 2
    SYMLINK = 3
    PROBLEM = 4  # cannot be read, or must not be synced: left alone on both sides, and listed


@dataclass(frozen=True, slots=True)
class Entry:
    """One path. Modification times are carried along, never compared."""

    kind: Kind
    digest: bytes = UNHASHED  # BLAKE3 of a file's content
    size: int = 0
    executable: bool = False
    target: str = ""  # of a link; of a problem: why
    mtime_ns: int = field(default=0, compare=False)

    def __eq__(self, other: object) -> bool:
        """The same but for its time; mostly it is the very same, and nobody looks further."""
        if self is other:
            return True
        if other.__class__ is not Entry:
            return NotImplemented
        return (
            self.digest == other.digest
            and self.kind == other.kind
            and self.size == other.size
            and self.executable == other.executable
            and self.target == other.target
        )

    @property
    def hashed(self) -> bool:
        """False while a file's content is unknown."""
        return self.kind is not Kind.FILE or self.digest != UNHASHED


Tree = Mapping[str, Entry]

DIRECTORY = Entry(Kind.DIRECTORY)


def parent(path: str) -> str:
    """The directory that a path lies in; empty: the root."""
    return path.rpartition("/")[0]


def ancestors(path: str) -> list[str]:
    """Directories that a path lies in, innermost first, without the root."""
    found = []
    while path := parent(path):
        found.append(path)
    return found


def below(path: str, root: str) -> bool:
    """True for the root itself and everything in it."""
    return path == root or path.startswith(root + "/")
