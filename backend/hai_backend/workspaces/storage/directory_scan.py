"""Finds the entries of a directory that differ from the index. It accesses storage only, never the index.

A file is read only if its stat does not prove that it is unchanged. A file that cannot be read, or changes while it is
read, counts as unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, NamedTuple

from hai_backend.domain.workspace import OWN, Entry, EntryKind, joined, path_problem, target_problem
from hai_backend.workspaces.contents import closing_descriptor, hash_file, open_for_reading
from hai_backend.workspaces.files import now_ns
from hai_backend.workspaces.index import entry_from_row
from hai_backend.workspaces.storage.file_stat import GRANULE_NS, make_stat
from hai_backend.workspaces.storage.workers import TreeWorker

_SPECIAL, _UNREADABLE = "is a special file (socket, pipe or device)", "cannot be read"
# Hashing a file takes as long as reading so many names, and as long again for so many bytes
_WORK_PER_HASH, _BYTES_PER_WORK = 20, 1 << 16


class ScanRequest(NamedTuple):
    """A request to scan a directory.

    `recorded` has the rows of the index by name; a scan removes each existing name. If `names` is None, all entries are
    scanned, but at most `limit`. `granule_ns` is the resolution of the clock of the storage.
    """

    folder: str
    recorded: dict[str, Any]
    limit: int
    names: Sequence[str] | None = None
    granule_ns: int = GRANULE_NS


Difference = tuple[Any, Entry | None, Entry | None]
"""The recorded row and entry if there are any, and the current entry if a revision may contain it."""


@dataclass(slots=True)
class ScanResult:
    """The result of a scan."""

    differences: list[Difference] = field(default_factory=list)
    subdirectories: list[str] = field(default_factory=list)
    stats: list[tuple[Any, ...]] = field(default_factory=list)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    remaining: Sequence[str] = ()  # names that were not scanned
    unreadable: bool = False  # the directory cannot be read, or was deleted


class DirectoryScan(TreeWorker):
    """Scans directories. Not thread-safe."""

    def scan(self, request: ScanRequest) -> ScanResult:
        """Scan a directory. Raise OSError when the tree does not exist."""
        result = ScanResult()
        try:
            descriptor = self.folders.open(request.folder)
            names = os.listdir(descriptor) if request.names is None else request.names
            result.remaining = names[request.limit :]
            self._scan_names(request, descriptor, names[: request.limit], result)
        except PermissionError:
            return ScanResult(passed_over=[(request.folder, _UNREADABLE)], unreadable=True)
        except (FileNotFoundError, NotADirectoryError):
            if not request.folder:
                raise
            return ScanResult(unreadable=True)
        return result

    def _scan_names(
        self, request: ScanRequest, descriptor: int, names: Sequence[str], result: ScanResult
    ) -> None:
        """Compare names with the recorded rows, and remove each existing name from `request.recorded`."""
        self.done += len(names)
        folder, recorded = request.folder, request.recorded
        for name in names:
            if name == OWN and not folder:
                continue
            row = recorded.pop(name, None)
            try:
                stat = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                if row is not None:
                    recorded[name] = row
                continue
            if row is None or not _is_unchanged(row, stat, request.granule_ns):
                self._scan_entry(folder, descriptor, name, stat, row, result)

    def _scan_entry(
        self,
        folder: str,
        descriptor: int,
        name: str,
        stat: os.stat_result,
        row: Any,
        result: ScanResult,
    ) -> None:
        """Add the difference of one entry to the result, if there is one."""
        path = joined(folder, name)
        if problem := _name_problem(path):
            result.passed_over.append((path, problem))
            return
        recorded = entry_from_row((folder, *row[:7])) if row is not None else None
        if S_ISDIR(stat.st_mode):
            result.subdirectories.append(path)
            entry: Entry | None = Entry(path, EntryKind.DIRECTORY)
        elif S_ISREG(stat.st_mode):
            entry = self._scan_file(folder, descriptor, name, recorded, result)
        elif S_ISLNK(stat.st_mode):
            entry = _scan_link(path, name, descriptor, recorded, result)
        else:
            result.passed_over.append((path, _SPECIAL))
            entry = None
        if entry != recorded:
            result.differences.append((row, recorded, entry))

    def _scan_file(
        self, folder: str, descriptor: int, name: str, recorded: Entry | None, result: ScanResult
    ) -> Entry | None:
        """Read a file. Return the recorded entry if the file cannot be read or changes meanwhile."""
        try:
            file = open_for_reading(descriptor, name)
        except PermissionError:
            result.passed_over.append((joined(folder, name), _UNREADABLE))
            return recorded
        except OSError:
            return recorded
        with closing_descriptor(file):
            observed_ns, before = now_ns(), os.fstat(file)
            digest = hash_file(file)
            after = os.fstat(file)
        stat = make_stat(after)
        self.done += _WORK_PER_HASH * (1 + stat.size // _BYTES_PER_WORK)
        if make_stat(before) != stat or not S_ISREG(after.st_mode):
            return recorded
        result.stats.append(
            (folder, name, stat.size, stat.mtime_ns, stat.ino, stat.ctime_ns, observed_ns)
        )
        executable = bool(after.st_mode & 0o100)
        mtime_ns = max(stat.mtime_ns, 0)
        return Entry(joined(folder, name), EntryKind.FILE, executable, stat.size, mtime_ns, digest)


def _scan_link(
    path: str, name: str, descriptor: int, recorded: Entry | None, result: ScanResult
) -> Entry | None:
    """Read a link. Return None if the link leads outside, unless a client has pushed exactly this link."""
    try:
        target = os.readlink(name, dir_fd=descriptor)
        if (
            recorded is not None
            and recorded.kind is EntryKind.SYMLINK
            and recorded.target == target
        ):
            return recorded
        problem = target_problem(path, target)
    except UnicodeEncodeError:
        problem = "is a symbolic link to a name that is not UTF-8"
    except OSError:
        return None
    if problem:
        result.passed_over.append((path, problem))
        return None
    return Entry(path, EntryKind.SYMLINK, target=target)


def _is_unchanged(row: Any, stat: os.stat_result, granule_ns: int) -> bool:
    """Return whether a stat proves that a file is unchanged.

    That is the usual case: the stat is the recorded one, and the file was already old when the stat was recorded.
    """
    # A row has the name, six fields of the entry, then size, mtime, inode, ctime and time of the recorded stat.
    return bool(
        row[1] == EntryKind.FILE
        and row[8] == stat.st_mtime_ns
        and row[10] == stat.st_ctime_ns
        and row[7] == stat.st_size
        and row[9] == stat.st_ino
        and (row[8] + granule_ns < row[11] or row[10] + granule_ns < row[11])
    )


def _name_problem(path: str) -> str:
    """Return why a path cannot be in a tree; empty if it can."""
    try:
        return path_problem(path)
    except UnicodeEncodeError:  # a name that is not UTF-8
        return "has a name that is not UTF-8"
