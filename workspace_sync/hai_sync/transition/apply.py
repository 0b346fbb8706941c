"""Applies changes in the order in which a disk can make them.

New contents are complete and verified in the private directory before any path is changed. A failure of one path is
reported, and the other paths are still changed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from hai_sync.core.diff import Change, changes_only_mode, must_remove_first, order_changes
from hai_sync.core.entry import Entry, Kind
from hai_sync.file_fingerprint import DIRECTORY_FINGERPRINT, Fingerprint, fingerprint
from hai_sync.transition.directories import Directories, describe_os_error, lstat_or_none
from hai_sync.transition.safe_replace import PathChanged, SafeReplace

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Result:
    """The changes that were made, and the problems by path."""

    done: list[Change] = field(default_factory=list)
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    # files that changed after they were scanned
    changed_files: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Transition:
    """Applies changes. `staged` returns the path of a new content, which is moved from there."""

    directories: Directories
    replacer: SafeReplace
    staged: Callable[[Change], str | None]
    result: Result = field(default_factory=Result)

    def apply(self, changes: Iterable[Change]) -> Result:
        """Apply all changes. This stops early only if the disk is full."""
        try:
            for change in order_changes(changes):
                if not self._apply_change(change):
                    break
        finally:
            self.directories.close()
        return self.result

    def _apply_change(self, change: Change) -> bool:
        """Apply one change. Return False if the disk is full."""
        path = change.path
        if path in self.result.problems:
            return True
        try:
            self._apply_step(change)
        except PathChanged as reason:
            self.result.changed_files.add(path)
            self.result.problems[path] = f"{reason}; sync again"
        except OSError as error:
            self.result.problems[path] = describe_os_error(error)
            return error.errno not in _FULL
        return True

    def _apply_step(self, change: Change) -> None:
        """Apply one change to an open parent directory."""
        folder, name = self.directories.open_parent(change.path)
        if change.new is None:
            self._remove(change, folder, name)
            self.result.done.append(change)
        elif must_remove_first(change) and lstat_or_none(name, folder) is not None:
            # such a change is listed twice, first for the removal
            self._remove(change, folder, name)
        elif must_remove_first(change):
            self._create(Change(change.path, None, change.new), folder, name)
        else:
            self._create(change, folder, name)

    def _remove(self, change: Change, folder: int, name: str) -> None:
        """Remove an entry. A directory that is not empty raises OSError."""
        status = lstat_or_none(name, folder)
        if change.old is not None and change.old.kind is Kind.DIRECTORY:
            self.replacer.fault_hook("rmdir")
            with suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=folder)
        elif status is not None:
            self.replacer.require_unchanged(change.path, status, change.old is not None)
            self.replacer.remove(change.path, folder, name)

    def _create(self, change: Change, folder: int, name: str) -> None:
        assert change.new is not None
        if change.new.kind is Kind.DIRECTORY:
            self._make_directory(folder, name)
        else:
            self._write(change, change.new, folder, name)
        if (status := lstat_or_none(name, folder)) is not None:
            self.result.fingerprints[change.path] = fingerprint(status)
        self.result.done.append(change)

    def _make_directory(self, folder: int, name: str) -> None:
        self.replacer.fault_hook("mkdir")
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            status = lstat_or_none(name, folder)
            if status is None or fingerprint(status) != DIRECTORY_FINGERPRINT:
                raise PathChanged("something was created in its place") from None

    def _write(self, change: Change, new: Entry, folder: int, name: str) -> None:
        """Create or overwrite a file or link, or change only its mode."""
        status = lstat_or_none(name, folder)
        self.replacer.require_unchanged(change.path, status, change.old is not None)
        if changes_only_mode(change):
            os.chmod(name, _mode(new, status), dir_fd=folder)
        elif change.old is None:
            self.replacer.create(self._prepare_content(change, new, status), folder, name)
        else:
            staged = self._prepare_content(change, new, status)
            self.replacer.overwrite(change.path, staged, folder, name)

    def _prepare_content(self, change: Change, entry: Entry, before: os.stat_result | None) -> str:
        """Return the path of the new content, with its time and the mode of the old file."""
        if entry.kind is Kind.SYMLINK:
            link = self.replacer.temp_path()
            os.symlink(entry.target, link)
            return link
        staged = self.staged(change)
        if staged is None:
            raise OSError(errno.ENODATA, "its content was not received")
        os.chmod(staged, _mode(entry, before))
        if entry.mtime_ns:
            os.utime(staged, ns=(entry.mtime_ns, entry.mtime_ns))
        return staged


def _mode(entry: Entry, before: os.stat_result | None) -> int:
    """Return the permissions of the old file, else those that the umask allows; executable where it is readable."""
    permissions = (
        before.st_mode if before is not None and stat.S_ISREG(before.st_mode) else ~_umask()
    )
    base = permissions & 0o666
    return base | ((base & 0o444) >> 2 if entry.executable else 0)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
