"""What lies in a directory of the tree and is not as it was seen before: storage alone is asked, the index is not.

Only what a stat does not settle is read. What changes while it is read, or cannot be read, is left as the index has it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, NamedTuple

from hai_backend.domain.workspace import OWN, Entry, EntryKind, joined, path_problem, target_problem
from hai_backend.workspaces.contents import digest_of, open_in, opened
from hai_backend.workspaces.files import now_ns
from hai_backend.workspaces.index import entry_of
from hai_backend.workspaces.storage.file_stat import GRANULE_NS, stat_of
from hai_backend.workspaces.storage.workers import Walker

_SPECIAL, _UNREADABLE = "is a special file (socket, pipe or device)", "cannot be read"
_HASHED, _HASHED_BYTES = 20, 1 << 16  # names that are looked at meanwhile; bytes that add as many


class Part(NamedTuple):
    """Of a directory, with what the index has of all of it by name; each name that is looked at is taken from that.

    No `names`: all that there are, but no more than `most`. `granule_ns`: how coarse the clock of the storage may be.
    """

    folder: str
    known: dict[str, Any]
    most: int
    names: Sequence[str] | None = None
    granule_ns: int = GRANULE_NS


Fresh = tuple[Any, Entry | None, Entry | None]
"""What is not as it was seen before: its row and entry if it is known, and what is there now, if that may be."""


@dataclass(slots=True)
class Seen:
    """What was found in a part."""

    fresh: list[Fresh] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    stats: list[tuple[Any, ...]] = field(default_factory=list)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    rest: Sequence[str] = ()  # names that nobody has looked at
    lost: bool = False  # the directory cannot be read, or is not there any more


class DirectoryScan(Walker):
    """Looks into directories. One thread at a time."""

    def look(self, part: Part) -> Seen:
        """What is in it. Raises OSError when the tree is not there."""
        seen = Seen()
        try:
            descriptor = self.folders.at(part.folder)
            names = os.listdir(descriptor) if part.names is None else part.names
            seen.rest = names[part.most :]
            self._names(part, descriptor, names[: part.most], seen)
        except PermissionError:
            return Seen(passed_over=[(part.folder, _UNREADABLE)], lost=True)
        except (FileNotFoundError, NotADirectoryError):
            if not part.folder:
                raise
            return Seen(lost=True)
        return seen

    def _names(self, part: Part, descriptor: int, names: Sequence[str], seen: Seen) -> None:
        self.done += len(names)
        folder, known = part.folder, part.known
        for name in names:
            if name == OWN and not folder:
                continue
            row = known.pop(name, None)
            try:
                now = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                if row is not None:
                    known[name] = row
                continue
            if row is None or not _is_settled(row, now, part.granule_ns):
                self._one(folder, descriptor, name, now, row, seen)

    def _one(
        self, folder: str, descriptor: int, name: str, now: os.stat_result, row: Any, seen: Seen
    ) -> None:
        path = joined(folder, name)
        if problem := _name_problem(path):
            seen.passed_over.append((path, problem))
            return
        known = entry_of((folder, *row[:7])) if row is not None else None
        if S_ISDIR(now.st_mode):
            seen.inner.append(path)
            entry: Entry | None = Entry(path, EntryKind.DIRECTORY)
        elif S_ISREG(now.st_mode):
            entry = self._file(folder, descriptor, name, known, seen)
        elif S_ISLNK(now.st_mode):
            entry = _link(path, name, descriptor, known, seen)
        else:
            seen.passed_over.append((path, _SPECIAL))
            entry = None
        if entry != known:
            seen.fresh.append((row, known, entry))

    def _file(
        self, folder: str, descriptor: int, name: str, known: Entry | None, seen: Seen
    ) -> Entry | None:
        """None when it cannot be read, or changes under us."""
        try:
            file = open_in(descriptor, name)
        except PermissionError:
            seen.passed_over.append((joined(folder, name), _UNREADABLE))
            return known
        except OSError:
            return known
        with opened(file):
            seen_ns, before = now_ns(), os.fstat(file)
            digest = digest_of(file)
            after = os.fstat(file)
        stat = stat_of(after)
        self.done += _HASHED * (1 + stat.size // _HASHED_BYTES)
        if stat_of(before) != stat or not S_ISREG(after.st_mode):
            return known
        seen.stats.append(
            (folder, name, stat.size, stat.mtime_ns, stat.ino, stat.ctime_ns, seen_ns)
        )
        executable = bool(after.st_mode & 0o100)
        mtime_ns = max(stat.mtime_ns, 0)
        return Entry(joined(folder, name), EntryKind.FILE, executable, stat.size, mtime_ns, digest)


def _link(path: str, name: str, descriptor: int, known: Entry | None, seen: Seen) -> Entry | None:
    """None when it leads where none may, unless a client has pushed it so."""
    try:
        target = os.readlink(name, dir_fd=descriptor)
        if known is not None and known.kind is EntryKind.SYMLINK and known.target == target:
            return known
        problem = target_problem(path, target)
    except UnicodeEncodeError:
        problem = "is a symbolic link to a name that is not UTF-8"
    except OSError:
        return None
    if problem:
        seen.passed_over.append((path, problem))
        return None
    return Entry(path, EntryKind.SYMLINK, target=target)


def _is_settled(row: Any, now: os.stat_result, granule_ns: int) -> bool:
    """The usual case, for each file of each look: it is what was seen, and that was long ago."""
    return bool(
        row[1] == EntryKind.FILE
        and row[8] == now.st_mtime_ns
        and row[10] == now.st_ctime_ns
        and row[7] == now.st_size
        and row[9] == now.st_ino
        and (row[8] + granule_ns < row[11] or row[10] + granule_ns < row[11])
    )


def _name_problem(path: str) -> str:
    """Why this is no path of a tree; empty when it is."""
    try:
        return path_problem(path)
    except UnicodeEncodeError:  # bytes that are no text
        return "has a name that is not UTF-8"
