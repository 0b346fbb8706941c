"""Small files of new directories are laid out where nobody sees them, each at its place: one rename of the outermost
new directory then shows them all. A first push so costs one rename for a directory, not one for a file.

What a push that broke has laid out goes to `incoming`, under its digest, for the next try.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import Any, NamedTuple

from hai_backend.domain.workspace import Entry, folder_of, folders_above
from hai_backend.workspaces.contents import (
    CREATE,
    digest_of,
    open_in,
    opened,
    rename_into_nothing,
    write_all,
)
from hai_backend.workspaces.files import Files, now_ns
from hai_backend.workspaces.storage.directories import DIRECTORY, Directories, give, set_aside
from hai_backend.workspaces.storage.workers import FILE_BYTES, FILE_SECONDS, PART, Workers, parts

_KEEP = "INSERT OR REPLACE INTO laid VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_IS_THERE = "SELECT 1 FROM entries WHERE folder = ? AND name = ? AND gone = 0"
_STRAYS = """SELECT l.folder, l.name FROM laid l LEFT JOIN staged s USING (folder, name)
    WHERE l.push = ? AND s.laid IS NOT l.push"""
_TAKEN = (FileExistsError, IsADirectoryError, NotADirectoryError)


class Content(NamedTuple):
    """What arrived. Its places in new directories, and whether it is wanted elsewhere, too."""

    digest: bytes
    data: memoryview
    places: Sequence[Entry]
    elsewhere: bool


class Stored(NamedTuple):
    """What became of some contents: rows of `laid`, and names of those that are in `incoming`."""

    rows: list[tuple[Any, ...]]
    incoming: list[str]


class Layer:
    """Stores contents, each at its places, what has none in `incoming`. One thread at a time."""

    def __init__(self, files: Files, push: int) -> None:
        self._files = files
        self._push = push
        self._root = files.laid / str(push)
        self._folders: Directories | None = None
        self._open = ("", -1)
        self.done = 0

    @property
    def used(self) -> bool:
        """Whether it has made the root of what is laid out."""
        return self._folders is not None

    def close(self) -> None:
        if self._folders is not None:
            self._folders.close()

    def store(self, contents: Sequence[Content]) -> Stored:
        """All of them. Raises OSError."""
        stored = Stored([], [])
        for digest, data, places, elsewhere in contents:
            for entry in places:
                row = self._put(entry, data)
                if row is None:
                    elsewhere = True
                else:
                    stored.rows.append(row)
            if elsewhere:
                self._files.incoming.put(digest.hex(), data)
                stored.incoming.append(digest.hex())
            self.done += 1 + len(data) // FILE_BYTES
        return stored

    def _put(self, entry: Entry, content: memoryview) -> tuple[Any, ...] | None:
        """A file at its place, as it will be; None: something else lies there."""
        folder, _, name = entry.path.rpartition("/")
        try:
            at = self._folder(folder)
            file = os.open(name, CREATE | os.O_TRUNC, 0o644, dir_fd=at)
        except _TAKEN:
            return None
        try:
            write_all(file, content)
            found = self._finish(file, entry)
        except BaseException:
            os.unlink(name, dir_fd=at)
            raise
        finally:
            os.close(file)
        stat = (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns, now_ns())
        return (self._push, folder, name, entry.digest, entry.executable, *stat)

    def _folder(self, folder: str) -> int:
        if self._open[0] != folder:
            self._open = (folder, self._made(folder))
        return self._open[1]

    def _made(self, folder: str) -> int:
        if self._folders is None:
            self._root.mkdir(exist_ok=True)
            self._folders = Directories(self._root, owner=self._files.owner)
        try:
            return self._folders.at(folder)
        except FileNotFoundError:
            return self._folders.make(folder)

    def _finish(self, file: int, entry: Entry) -> os.stat_result:
        if entry.executable:
            os.fchmod(file, 0o755)
        give(file, self._files.owner)
        os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
        return os.fstat(file)


class Laid:
    """What one push has brought and laid out. One thread at a time."""

    def __init__(self, files: Files, push: int) -> None:
        self._files = files
        self._push = push
        self._root = files.laid / str(push)
        self._tops: dict[str, str] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._hands = Workers(partial(Layer, files, push), FILE_SECONDS, files.storage)

    @property
    def used(self) -> bool:
        """Whether anything was laid out."""
        return any(layer.used for layer in self._hands.all)

    def top(self, folder: str) -> str:
        """The outermost directory on the way to this one that the newest revision lacks; empty: it has all."""
        found = self._tops.get(folder)
        if found is None:
            found = self._tops[folder] = self._outermost(folder)
        return found

    def _outermost(self, folder: str) -> str:
        for path in (*folders_above(folder), folder) if folder else ():
            if not self._files.index.rows(_IS_THERE, (folder_of(path), path.rpartition("/")[2])):
                return path
        return ""

    def store(self, contents: Iterable[Content]) -> Iterator[str]:
        """Each at its places, no two at the same one; answers names of what is in `incoming`. Raises OSError."""
        for stored in self._hands.each(Layer.store, parts(contents, PART)):
            self._rows += stored.rows
            yield from stored.incoming

    def note(self) -> None:
        """The index knows what was put since the last call."""
        with self._files.index.transaction() as db:
            db.executemany(_KEEP, self._rows)
        self._rows.clear()

    def settle(self) -> None:
        """Before the commit: what is wanted no more goes, and the outermost directories are told to be laid out."""
        if not self.used:
            return
        for folder, name in self._files.index.rows(_STRAYS, (self._push,)):
            os.unlink(f"{self._root}/{folder}/{name}")
            _remove_empty(f"{self._root}/{folder}", str(self._root))
        tops = {top.rpartition("/")[::2] for top in self._tops.values() if top}
        mark = f"UPDATE staged SET laid = {self._push} WHERE folder = ? AND name = ? AND kind = 2"
        with self._files.index.transaction() as db:
            db.executemany(mark, tops)

    def close(self) -> None:
        """The push is over, and what of it was committed is in its place; if not, whoever applies it needs the rest."""
        self._hands.close()
        if not self.used:
            return
        if self._files.index.rows("SELECT 1 FROM pending LIMIT 1"):
            return
        gather(self._files, self._root)
        with self._files.index.transaction() as db:
            db.execute("DELETE FROM laid WHERE push = ?", (self._push,))


def gather(files: Files, root: Path) -> None:
    """What no commit has taken goes to `incoming`; it is read for its digest, so that half a file has not its name."""
    for _, _, names, folder in os.fwalk(root):
        for name in names:
            with opened(open_in(folder, name)) as file:
                digest = digest_of(file).hex()
                os.utime(file)  # it waits from now on
                os.fchmod(file, 0o644)
            os.rename(name, digest, src_dir_fd=folder, dst_dir_fd=files.incoming.folder)
    shutil.rmtree(root, ignore_errors=True)


def recover(files: Files) -> None:
    """What another process has left, once all that was committed is in its place."""
    for name in os.listdir(files.laid):
        gather(files, files.laid / name)


def show(files: Files, folder: int, name: str, source: str, path: str) -> bool:
    """A directory that was laid out gets its place in an open directory; False: there is none, or not any more."""
    try:
        root = os.open(files.laid / source, DIRECTORY)
    except FileNotFoundError:
        return False
    with opened(root):
        return _move(root, path, folder, name)


def _move(above: int, source: str, below: int, name: str) -> bool:
    """What is there is never replaced: directories are joined, and anything else gets another name."""
    try:
        if rename_into_nothing(source, above, name, below):
            return True
        mode = os.stat(source, dir_fd=above, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):  # then the file system knows no such rename
        if S_ISDIR(mode) and S_ISDIR(os.stat(name, dir_fd=below, follow_symlinks=False).st_mode):
            return _join(above, source, below, name)
        set_aside(name, below)
    os.rename(source, name, src_dir_fd=above, dst_dir_fd=below)
    return True


def _join(above: int, source: str, below: int, name: str) -> bool:
    laid = os.open(source, DIRECTORY, dir_fd=above)
    with opened(laid), opened(os.open(name, DIRECTORY, dir_fd=below)) as there:
        for inner in os.listdir(laid):
            _move(laid, inner, there, inner)
    os.rmdir(source, dir_fd=above)
    return True


def _remove_empty(folder: str, root: str) -> None:
    while folder != root and not os.listdir(folder):
        os.rmdir(folder)
        folder = os.path.dirname(folder)
