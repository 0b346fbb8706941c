"""Opens one workspace on storage: its directories, its index, and its contents by digest.

    files/      the tree that tasks and people see; it belongs to the user
    incoming/   contents that a push brought: verified, but not yet in the tree
    laid/       new directories that a push is building
    objects/    older versions, by digest
    tasks/      trees of pinned revisions, one directory per task
    index.db    the index (index.py)

All but files/ and the directories in tasks/ belongs to the server, and no program of a user can reach it.
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
from hai_backend.workspaces.contents import (
    Contents,
    closing_descriptor,
    copy_range,
    hash_file,
    open_for_reading,
)
from hai_backend.workspaces.index import Index
from hai_backend.workspaces.storage.directories import Directories, chown_to
from hai_backend.workspaces.storage.file_stat import Stat, make_stat, read_stat
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
    """The files of a workspace, which stay open until `close`. Every method blocks.

    `owner` is the uid of the user; 0 means that of the server.
    """

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
        """Return whether storage ignores the case of names. Nothing is written for this test."""
        with suppress(OSError):
            return os.path.samefile(self.tree, self.tree.with_name(self.tree.name.swapcase()))
        return False

    def recover(self) -> None:
        """Mark the contents that another process left as unverified. Call this after all commits are applied."""
        for name in self.incoming.list_names():
            if "." in name and not name.endswith(".part"):
                self.incoming.remove(name)
        self.incoming.mark_unverified()

    def close(self) -> None:
        """Release the workspace, so that another server can open it."""
        self.index.close()
        self.incoming.close()
        self.objects.close()

    def get_revision(self, number: int) -> Revision:
        """Return a revision that is still retained. Raise NotFound."""
        recorded = self.index.get_revision(number)
        if recorded is None:
            raise NotFound(
                f"workspace {self.path.name} has no revision {number} (any more); "
                "`hai workspace snapshots` lists the retained ones"
            )
        return recorded

    def claim_assembly(self, file: bytes, stop: Callable[[], None]) -> None:
        """Make the caller the only one that assembles this large file. Stop a previous assembly."""
        with self._claim_lock:
            if (previous := self._assembling.pop(file, None)) is not None:
                previous()
            self._assembling[file] = stop

    def release_assembly(self, file: bytes, stop: Callable[[], None]) -> None:
        """End the claim of the caller, unless another caller has claimed the file since."""
        with self._claim_lock:
            if self._assembling.get(file) == stop:
                del self._assembling[file]

    def active_assemblies(self) -> set[str]:
        """Return the digests of large files that are being assembled."""
        with self._claim_lock:
            return {file.hex() for file in self._assembling}

    def open_tree(self) -> Directories:
        """Open the tree. Raise OSError if it does not exist: an unmounted or deleted root is not an empty tree."""
        return Directories(self.tree, owner=self.owner)

    def find_content(self, digest: bytes, tree: Directories | None = None) -> int | None:
        """Open a file with this content. Return None if there is none. For many look-ups, pass an open `tree`.

        A file that a program changed in place does not count, unless the program only appended to it. While a revision
        is applied, contents move from one directory to another, so all directories are searched several times.
        """
        if tree is not None and (file := self._find_stored(digest, tree)) is not None:
            return file
        with self.open_tree() as current:
            for _ in range(3):
                if (file := self._find_stored(digest, current)) is not None:
                    return file
            return _find_prefix(self.index, current, self.incoming, digest)

    def _find_stored(self, digest: bytes, tree: Directories) -> int | None:
        """Search `objects`, the tree, `incoming`, and new directories. Ignore objects without a row in the index."""
        name = digest.hex()
        with suppress(FileNotFoundError):
            if self.index.fetch_rows("SELECT 1 FROM objects WHERE digest = ?", (digest,)):
                return self.objects.open(name)
        if (file := self._find_in_tree(tree, digest)) is not None:
            return file
        with suppress(FileNotFoundError):
            if self.incoming.has(name):
                return self.incoming.open(name)
        return self._find_laid(digest)

    def _find_laid(self, digest: bytes) -> int | None:
        """Search new directories that are not published yet."""
        rows = self.index.fetch_rows("SELECT DISTINCT source FROM pending WHERE kind = 2")
        for root in (self.laid / row[0] for row in rows if row[0] is not None):
            with suppress(FileNotFoundError), Directories(root) as folders:
                if (file := self._find_in_tree(folders, digest)) is not None:
                    return file
        return None

    def _find_in_tree(self, folders: Directories, digest: bytes) -> int | None:
        for folder, name, *stat_row in self.index.fetch_rows(_LOCATIONS, {"digest": digest}):
            recorded = Stat(*stat_row) if stat_row[0] is not None else None
            try:
                file = open_for_reading(folders.open(folder), name)
            except OSError:
                continue
            if has_content(file, recorded, digest):
                return file
            os.close(file)
        return None

    def stored_bytes(self) -> int:
        """Return the bytes of the newest tree, older versions, uncommitted contents, and directories of tasks."""
        checkouts = self.index.fetch_rows("SELECT COALESCE(SUM(size_bytes), 0) FROM checkouts")[0][
            0
        ]
        laid = self.index.fetch_rows("SELECT COALESCE(SUM(size), 0) FROM laid")[0][0]
        tree = self.index.newest_revision().size_bytes + int(laid)
        return tree + self.objects.count_bytes() + self.incoming.count_bytes() + int(checkouts)


def make_directories(path: Path, owner: int) -> None:
    """Create the empty directories of a new workspace."""
    path.mkdir(parents=True)
    for folder in (path.parent, path):
        folder.chmod(_TRAVERSABLE)
    for name in ("files", "tasks"):
        (path / name).mkdir()
    (path / "tasks").chmod(_TRAVERSABLE)
    with Directories(path / "files") as directories:
        chown_to(directories.root, owner)


def has_content(file: int, recorded: Stat | None, digest: bytes) -> bool:
    """Return whether an open file has this content. Read the file only if its stat does not prove it."""
    status = os.fstat(file)
    if not S_ISREG(status.st_mode):
        return False
    current = make_stat(status)
    if recorded is not None and recorded.proves_unchanged(current):
        return True
    return hash_file(file) == digest and make_stat(os.fstat(file)) == current


def has_content_at(folder: int, name: str, recorded: Stat | None, digest: bytes) -> bool:
    """Return whether a file in an open directory has this content. Open it only if necessary. Raise OSError."""
    if (
        recorded is not None
        and (current := read_stat(name, folder)) is not None
        and recorded.proves_unchanged(current)
    ):
        return True
    with closing_descriptor(open_for_reading(folder, name)) as file:
        return has_content(file, recorded, digest)


def now_ns() -> int:
    """Return the time of the clock to which stats are compared."""
    return time.time_ns()


def _find_prefix(index: Index, tree: Directories, scratch: Contents, digest: bytes) -> int | None:
    """Return an open copy without name of the beginning of a longer file; None if no beginning has this content.

    Logs only grow, so the current file begins with each of its older versions.
    """
    for folder, name, size in index.fetch_rows(_RECORDED_LOCATIONS, (digest,)):
        file = _open_longer(tree, folder, name, size)
        if file is None:
            continue
        with closing_descriptor(file):
            copy = _copy_prefix(file, size, scratch)
        if hash_file(copy) == digest:
            return copy
        os.close(copy)
    return None


def _open_longer(tree: Directories, folder: str, name: str, size: int) -> int | None:
    with suppress(OSError):
        file = open_for_reading(tree.open(folder), name)
        current = os.fstat(file)
        if S_ISREG(current.st_mode) and current.st_size > size:
            return file
        os.close(file)
    return None


def _copy_prefix(file: int, size: int, scratch: Contents) -> int:
    name = f"grown.{secrets.token_hex(8)}"  # `recover` deletes names with a dot
    copy = os.open(name, _NEW, 0o600, dir_fd=scratch.folder)
    scratch.remove(name)
    try:
        copy_range(file, 0, copy, 0, size)
    except BaseException:
        os.close(copy)
        raise
    return copy
