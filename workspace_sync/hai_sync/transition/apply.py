"""Changes, in the order in which they can be made, each by the step of its kind.

New contents lie verified in the root's own temporary directory before anything is touched. What fails for one path is
told, and the others go on.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from hai_sync.core.diff import Change, in_order, only_mode, replaces
from hai_sync.core.entry import Entry, Kind
from hai_sync.file_fingerprint import DIRECTORY_SIGNATURE, Signature, signature
from hai_sync.transition.directories import Directories, status_of, words
from hai_sync.transition.safe_replace import Moved, SafeReplace

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Result:
    """What was done, and what was not."""

    done: list[Change] = field(default_factory=list)
    signatures: dict[str, Signature] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    restless: set[str] = field(default_factory=set)  # changed after they were looked at


@dataclass(slots=True)
class Transition:
    """Applies changes. `staged`: where the content of a file lies, which is taken away from there."""

    folders: Directories
    versions: SafeReplace
    staged: Callable[[Change], str | None]
    result: Result = field(default_factory=Result)

    def apply(self, changes: Iterable[Change]) -> Result:
        """Do it all; the result tells what happened. Stops only when the disk is full."""
        try:
            for change in in_order(changes):
                if not self._one(change):
                    break
        finally:
            self.folders.leave()
        return self.result

    def _one(self, change: Change) -> bool:
        """One step; False: there is no sense in going on."""
        path = change.path
        if path in self.result.problems:
            return True
        try:
            self._step(change)
        except Moved as why:
            self.result.restless.add(path)
            self.result.problems[path] = f"{why}; sync again"
        except OSError as error:
            self.result.problems[path] = words(error)
            return error.errno not in _FULL
        return True

    def _step(self, change: Change) -> None:
        folder, name = self.folders.enter(change.path)
        if change.new is None:
            self._remove(change, folder, name)
            self.result.done.append(change)
        elif replaces(change) and status_of(name, folder) is not None:
            self._remove(change, folder, name)  # it comes twice: first to make room
        elif replaces(change):
            self._create(Change(change.path, None, change.new), folder, name)
        else:
            self._create(change, folder, name)

    def _remove(self, change: Change, folder: int, name: str) -> None:
        status = status_of(name, folder)
        if change.old is not None and change.old.kind is Kind.DIRECTORY:
            self.versions.fault("rmdir")
            with suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=folder)
        elif status is not None:
            self.versions.require_as_seen(change.path, status, change.old is not None)
            self.versions.take_away(change.path, folder, name)

    def _create(self, change: Change, folder: int, name: str) -> None:
        assert change.new is not None
        if change.new.kind is Kind.DIRECTORY:
            self._make_directory(folder, name)
        else:
            self._place(change, change.new, folder, name)
        if (status := status_of(name, folder)) is not None:
            self.result.signatures[change.path] = signature(status)
        self.result.done.append(change)

    def _make_directory(self, folder: int, name: str) -> None:
        self.versions.fault("mkdir")
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            status = status_of(name, folder)
            if status is None or signature(status) != DIRECTORY_SIGNATURE:
                raise Moved("something was created in its place") from None

    def _place(self, change: Change, new: Entry, folder: int, name: str) -> None:
        status = status_of(name, folder)
        self.versions.require_as_seen(change.path, status, change.old is not None)
        if only_mode(change):
            os.chmod(name, _mode(new, status), dir_fd=folder)
        elif change.old is None:
            self.versions.create(self._prepared(change, new, status), folder, name)
        else:
            staged = self._prepared(change, new, status)
            self.versions.overwrite(change.path, staged, folder, name)

    def _prepared(self, change: Change, entry: Entry, before: os.stat_result | None) -> str:
        """The new content under a temporary name, with its time, and the mode of what was there before."""
        if entry.kind is Kind.SYMLINK:
            link = self.versions.name()
            os.symlink(entry.target, link)
            return link
        staged = self.staged(change)
        if staged is None:
            raise OSError(errno.ENODATA, "its content did not arrive")
        os.chmod(staged, _mode(entry, before))
        if entry.mtime_ns:
            os.utime(staged, ns=(entry.mtime_ns, entry.mtime_ns))
        return staged


def _mode(entry: Entry, before: os.stat_result | None) -> int:
    """Readable as the file before it, else as the umask says; executable where it is readable."""
    shown = before.st_mode if before is not None and stat.S_ISREG(before.st_mode) else ~_umask()
    base = shown & 0o666
    return base | ((base & 0o444) >> 2 if entry.executable else 0)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
