"""Brings a local tree to a new state, one path at a time, each of them whole or not at all.

New contents lie verified in the root's own temporary directory before anything is touched. What is
overwritten or removed is looked at again at the last moment, and is kept. Directories are opened part by part
and never through a link, so that nothing outside the root can be reached. What fails for one path is
told, and the others go on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hai_sync.core.diff import Change, in_order, replaces
from hai_sync.core.entry import Entry, Kind
from hai_sync.kept import Kept
from hai_sync.signatures import Signature, signature

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
Fault = Callable[[str], None]
"""Called before each step that changes the disk, with its name; tests raise from it."""


@dataclass(slots=True)
class Result:
    """What was done, and what was not."""

    done: list[Change] = field(default_factory=list)
    signatures: dict[str, Signature] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    restless: set[str] = field(default_factory=set)  # changed after they were looked at


class _Restless(Exception):
    """The path is not as it was when the decision was made."""


@dataclass(slots=True)
class Transition:
    """Applies changes below a root.

    seen: signatures that the decisions were made upon. staged: where the content of a file lies; the
    transition takes it away from there.
    """

    root: Path
    seen: Mapping[str, Signature]
    staged: Callable[[Change], str | None]
    kept: Kept
    hold: Path  # a directory on the same file system for what is on its way to `kept`
    fault: Fault = lambda step: None
    result: Result = field(default_factory=Result)
    _folder: tuple[str, int] | None = None
    _number: int = 0

    def apply(self, changes: Iterable[Change]) -> Result:
        """Do it all; the result tells what happened. Stops only when the disk is full."""
        try:
            for change in in_order(changes):
                if not self.one(change):
                    break
        finally:
            self._leave()
        return self.result

    def one(self, change: Change) -> bool:
        """One step; False: there is no sense in going on."""
        path = change.path
        if path in self.result.problems:
            return True
        try:
            self.step(change)
        except _Restless as why:
            self.result.restless.add(path)
            self.result.problems[path] = f"{why}; sync again"
        except OSError as error:
            self.result.problems[path] = _words(error)
            return error.errno not in (errno.ENOSPC, errno.EDQUOT)
        return True

    def step(self, change: Change) -> None:
        folder, name = self.enter(change.path)
        if change.new is None:
            self.remove(change, folder, name)
        elif replaces(change):
            self.replace(change, folder, name)
        elif change.new.kind is Kind.DIRECTORY:
            self.make_directory(change, folder, name)
        else:
            self.place(change, folder, name)

    def replace(self, change: Change, folder: int, name: str) -> None:
        """Called twice: first to make room, then, when nothing lies there any more, to create."""
        if _status(name, folder) is not None:
            old = Change(change.path, change.old, None)
            self.remove(old, folder, name)
            self.result.done.remove(old)
            return
        fresh = Change(change.path, None, change.new)
        if fresh.new is not None and fresh.new.kind is Kind.DIRECTORY:
            self.make_directory(fresh, folder, name)
        else:
            self.place(fresh, folder, name)

    def remove(self, change: Change, folder: int, name: str) -> None:
        if change.old is not None and change.old.kind is Kind.DIRECTORY:
            self.fault("rmdir")
            with suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=folder)
        elif _status(name, folder) is not None:
            self.as_seen(change, _status(name, folder))
            held = self.held()
            self.fault("hold")
            os.rename(name, held, src_dir_fd=folder)
            if self.seen.get(change.path) != signature_after_rename(held, self.seen, change.path):
                self.put_back(held, folder, name)
            self.fault("keep")
            self.kept.keep(held, change.path)
        self.result.done.append(change)

    def put_back(self, held: str, folder: int, name: str) -> None:
        """It changed in the last microseconds."""
        with suppress(FileExistsError):
            os.link(held, name, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(held)
        raise _Restless("it changed while it was about to be removed")

    def make_directory(self, change: Change, folder: int, name: str) -> None:
        self.fault("mkdir")
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            status = _status(name, folder)
            if status is None or signature(status) != b"d":
                raise _Restless("something was created in its place") from None
        self.result.signatures[change.path] = b"d"
        self.result.done.append(change)

    def place(self, change: Change, folder: int, name: str) -> None:
        assert change.new is not None
        self.as_seen(change, _status(name, folder))
        if self.only_mode(change):
            os.chmod(name, _mode(change.new, _status(name, folder)), dir_fd=folder)
        else:
            staged = self.prepared(change, change.new)
            if change.old is None:
                self.create(staged, folder, name)
            else:
                self.overwrite(change, staged, folder, name)
        status = _status(name, folder)
        if status is not None:
            self.result.signatures[change.path] = signature(status)
        self.result.done.append(change)

    def only_mode(self, change: Change) -> bool:
        old, new = change.old, change.new
        return (
            old is not None
            and new is not None
            and old.kind is new.kind is Kind.FILE
            and old.digest == new.digest
        )

    def prepared(self, change: Change, entry: Entry) -> str:
        """The new content under a temporary name, with mode and time."""
        if entry.kind is Kind.SYMLINK:
            link = self.held()
            os.symlink(entry.target, link)
            return link
        staged = self.staged(change)
        if staged is None:
            raise OSError(errno.ENODATA, "its content did not arrive")
        os.chmod(staged, _mode(entry, None))
        if entry.mtime_ns:
            os.utime(staged, ns=(entry.mtime_ns, entry.mtime_ns))
        return staged

    def create(self, staged: str, folder: int, name: str) -> None:
        """A link, unlike a rename, overwrites nothing that has come in between."""
        self.fault("create")
        try:
            os.link(staged, name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise _Restless("something was created in its place") from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                raise
            os.rename(staged, name, dst_dir_fd=folder)  # a file system without links
            return
        self.fault("created")
        os.unlink(staged)

    def overwrite(self, change: Change, staged: str, folder: int, name: str) -> None:
        """The old file keeps a second name: whoever is writing it loses nothing."""
        held = self.held()
        self.fault("hold")
        os.link(name, held, src_dir_fd=folder, follow_symlinks=False)
        self.fault("overwrite")
        os.replace(staged, name, dst_dir_fd=folder)
        self.fault("keep")
        self.kept.keep(held, change.path)

    def as_seen(self, change: Change, status: os.stat_result | None) -> None:
        now = signature(status) if status is not None else None
        if now != (self.seen.get(change.path) if change.old is not None else None):
            raise _Restless("it changed meanwhile")

    def held(self) -> str:
        self._number += 1
        return str(self.hold / f"held-{os.getpid()}-{self._number}")

    def enter(self, path: str) -> tuple[int, str]:
        """The directory that a path lies in, opened part by part."""
        parent, _, name = path.rpartition("/")
        if self._folder is None or self._folder[0] != parent:
            self._leave()
            self._folder = (parent, open_folder(self.root, parent))
        return self._folder[1], name

    def _leave(self) -> None:
        if self._folder is not None:
            os.close(self._folder[1])
            self._folder = None


def open_folder(root: Path, folder: str) -> int:
    """A directory's descriptor. No part of the way below the root may be a link."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for part in folder.split("/") if folder else ():
        try:
            below = os.open(part, _FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def signature_after_rename(held: str, seen: Mapping[str, Signature], path: str) -> Signature | None:
    """A rename sets the time of change; the rest must be as it was seen."""
    before, now = seen.get(path), signature(os.lstat(held))
    if before is None or len(before) != len(now):
        return now
    return before if before[:16] + before[24:] == now[:16] + now[24:] else now


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _mode(entry: Entry, status: os.stat_result | None) -> int:
    """Readable as the umask says; executable where it is readable."""
    base = (status.st_mode & 0o666) if status is not None else 0o666 & ~_umask()
    return base | ((base & 0o444) >> 2 if entry.executable else 0)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _words(error: OSError) -> str:
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return "the directory stays: it holds files that are not synced"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of the way to it is a link or a file"
    return os.strerror(error.errno) if error.errno else str(error)
