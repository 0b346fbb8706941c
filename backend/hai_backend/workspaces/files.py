"""One workspace on storage: its directories, its index, and look-ups of contents.

    files/      the tree that tasks and people see; owned by its user
    incoming/   contents that a push brought, verified, not yet in the tree
    laid/       new directories that a push is building
    objects/    older versions, by digest
    tasks/      the tree of a pinned revision, one directory per task
    index.db    index.py

Everything except files/ and the contents of tasks/ belongs to the server; no user's program can reach it.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from hai.host.disk_reserve import DiskReserve
from hai_backend.domain.errors import NotFound
from hai_backend.domain.workspace import Revision
from hai_backend.workspaces.contents import Contents, copy_range, digest_of, open_in, opened
from hai_backend.workspaces.index import Index
from hai_backend.workspaces.storage.directories import Directories, chown_to
from hai_backend.workspaces.storage.file_stat import Stat, read_stat, stat_of
from hai_backend.workspaces.storage.workers import StorageSpeed

_TRAVERSABLE = 0o711
_STAT = "s.size, s.mtime_ns, s.ino, s.ctime_ns, s.seen_ns"
_LOCATIONS = f"""SELECT folder, name, {_STAT} FROM entries e LEFT JOIN stats s USING (folder, name)
    WHERE kind = 1 AND digest = :digest AND gone = 0
    UNION ALL SELECT folder, name, {_STAT} FROM pending p LEFT JOIN stats s USING (folder, name)
    WHERE digest_before = :digest"""
_RECORDED_LOCATIONS = (
    "SELECT DISTINCT folder, name, size FROM entries WHERE kind = 1 AND digest = ?"
)
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceFiles:
    """Open until `close`. Every method blocks. `owner` is the uid of its user; 0: the server's own user."""

    def __init__(self, path: Path, owner: int) -> None:
        self.path = path
        self.owner = owner
        self.storage_speed = StorageSpeed()
        self.reserve = DiskReserve(path)
        self.tree = path / "files"
        self.tasks = path / "tasks"
        self.laid = path / "laid"
        self.laid.mkdir(exist_ok=True, mode=0o700)
        self.index = Index(path / "index.db")
        self.incoming = Contents(path / "incoming")
        self._assembling: dict[bytes, Callable[[], None]] = {}
        self._claim_lock = threading.Lock()
        self.objects = Contents(path / "objects")

    def is_case_insensitive(self) -> bool:
        """Tells whether storage ignores the case of names; this is checked without writing."""
        with suppress(OSError):
            return os.path.samefile(self.tree, self.tree.with_name(self.tree.name.swapcase()))
        return False

    def recover(self) -> None:
        """Marks what another process left as unverified. Call it after all commits are applied."""
        for name in self.incoming.names():
            if "." in name and not name.endswith(".part"):
                self.incoming.remove(name)
        self.incoming.distrust()

    def close(self) -> None:
        """Releases the workspace, so that another server can open it."""
        self.index.close()
        self.incoming.close()
        self.objects.close()

    def revision(self, number: int) -> Revision:
        """Returns a revision that is still retained. Raises NotFound."""
        recorded = self.index.revision(number)
        if recorded is None:
            raise NotFound(
                f"workspace {self.path.name} has no revision {number} (any more); "
                "`hai workspace snapshots` lists the retained ones"
            )
        return recorded

    def claim(self, file: bytes, stop: Callable[[], None]) -> None:
        """Makes the caller the only one that assembles this large file; a previous one is stopped."""
        with self._claim_lock:
            if (previous := self._assembling.pop(file, None)) is not None:
                previous()
            self._assembling[file] = stop

    def release(self, file: bytes, stop: Callable[[], None]) -> None:
        """Ends the caller's claim, if it still holds it."""
        with self._claim_lock:
            if self._assembling.get(file) == stop:
                del self._assembling[file]

    def active_assemblies(self) -> set[str]:
        """Returns the digests of large files that are being assembled."""
        with self._claim_lock:
            return {file.hex() for file in self._assembling}

    def folders(self) -> Directories:
        """Opens the tree. Raises OSError without one: an unmounted or deleted root is not an empty tree."""
        return Directories(self.tree, owner=self.owner)

    def find(self, digest: bytes, tree: Directories | None = None) -> int | None:
        """Opens a file with this content; None if there is none. Pass an open `tree` for many look-ups.

        A file that a program changed in place does not count, unless it was only appended to. While a revision is
        applied, contents move from one place to the next, so each place is tried again.
        """
        if tree is not None and (file := self._find_stored(digest, tree)) is not None:
            return file
        with self.folders() as current:
            for _ in range(3):
                if (file := self._find_stored(digest, current)) is not None:
                    return file
            return _find_prefix(self.index, current, self.incoming, digest)

    def _find_stored(self, digest: bytes, tree: Directories) -> int | None:
        """Tries objects, the tree, `incoming`, and new directories. Objects without a row do not exist."""
        name = digest.hex()
        with suppress(FileNotFoundError):
            if self.index.rows("SELECT 1 FROM objects WHERE digest = ?", (digest,)):
                return self.objects.open(name)
        if (file := self._find_in_tree(tree, digest)) is not None:
            return file
        with suppress(FileNotFoundError):
            if self.incoming.has(name):
                return self.incoming.open(name)
        return self._find_laid(digest)

    def _find_laid(self, digest: bytes) -> int | None:
        """Tries new directories that are not published yet."""
        rows = self.index.rows("SELECT DISTINCT source FROM pending WHERE kind = 2")
        for root in (self.laid / row[0] for row in rows if row[0] is not None):
            with suppress(FileNotFoundError), Directories(root) as folders:
                if (file := self._find_in_tree(folders, digest)) is not None:
                    return file
        return None

    def _find_in_tree(self, folders: Directories, digest: bytes) -> int | None:
        for folder, name, *stat_row in self.index.rows(_LOCATIONS, {"digest": digest}):
            recorded = Stat(*stat_row) if stat_row[0] is not None else None
            try:
                file = open_in(folders.at(folder), name)
            except OSError:
                continue
            if has_content(file, recorded, digest):
                return file
            os.close(file)
        return None

    def stored_bytes(self) -> int:
        """Returns the bytes of the newest tree, older versions, leftovers of pushes, and directories of tasks."""
        checkouts = self.index.rows("SELECT COALESCE(SUM(size_bytes), 0) FROM checkouts")[0][0]
        laid = self.index.rows("SELECT COALESCE(SUM(size), 0) FROM laid")[0][0]
        tree = self.index.newest().size_bytes + int(laid)
        return tree + self.objects.size() + self.incoming.size() + int(checkouts)


def make_directories(path: Path, owner: int) -> None:
    """Creates the empty directories of a new workspace."""
    path.mkdir(parents=True)
    for folder in (path.parent, path):
        folder.chmod(_TRAVERSABLE)
    for name in ("files", "tasks"):
        (path / name).mkdir()
    (path / "tasks").chmod(_TRAVERSABLE)
    with Directories(path / "files") as directories:
        chown_to(directories.root, owner)


def has_content(file: int, recorded: Stat | None, digest: bytes) -> bool:
    """Tells whether an open file has this content: by its stat if that suffices, else by reading it."""
    status = os.fstat(file)
    if not S_ISREG(status.st_mode):
        return False
    current = stat_of(status)
    if recorded is not None and recorded.proves_unchanged(current):
        return True
    return digest_of(file) == digest and stat_of(os.fstat(file)) == current


def has_content_at(folder: int, name: str, recorded: Stat | None, digest: bytes) -> bool:
    """Tells the same of an entry of an open directory, which is opened only if necessary. Raises OSError."""
    if (
        recorded is not None
        and (current := read_stat(name, folder)) is not None
        and recorded.proves_unchanged(current)
    ):
        return True
    with opened(open_in(folder, name)) as file:
        return has_content(file, recorded, digest)


def now_ns() -> int:
    """Returns the time of the clock that stats are compared with."""
    return time.time_ns()


def _find_prefix(index: Index, tree: Directories, scratch: Contents, digest: bytes) -> int | None:
    """Returns an open, nameless copy of a longer file's beginning, if that has this content.

    Logs only grow, so the current file begins with each of its older versions.
    """
    for folder, name, size in index.rows(_RECORDED_LOCATIONS, (digest,)):
        file = _open_longer(tree, folder, name, size)
        if file is None:
            continue
        with opened(file):
            copy = _copy_prefix(file, size, scratch)
        if digest_of(copy) == digest:
            return copy
        os.close(copy)
    return None


def _open_longer(tree: Directories, folder: str, name: str, size: int) -> int | None:
    with suppress(OSError):
        file = open_in(tree.at(folder), name)
        current = os.fstat(file)
        if S_ISREG(current.st_mode) and current.st_size > size:
            return file
        os.close(file)
    return None


def _copy_prefix(file: int, size: int, scratch: Contents) -> int:
    name = f"grown.{secrets.token_hex(8)}"  # names with a dot are deleted after a crash
    copy = os.open(name, _NEW, 0o600, dir_fd=scratch.folder)
    scratch.remove(name)
    try:
        copy_range(file, 0, copy, 0, size)
    except BaseException:
        os.close(copy)
        raise
    return copy
