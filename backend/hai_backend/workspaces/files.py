"""One workspace on storage: its directories, its index, and where a content is to be found.

    files/      the tree that tasks and people see; its user's own
    incoming/   contents that a push brought, verified, not yet in the tree
    laid/       new directories that a push is putting together
    objects/    older versions, by digest
    lifecycle/      the tree of a pinned revision, one directory a task
    index.db    index.py

All but files/ and what is in lifecycle/ is the server's own: no program of a user can reach it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from hai.host.disk_reserve import DiskReserve
from hai_backend.domain.errors import NotFound
from hai_backend.domain.workspace import Revision
from hai_backend.workspaces.chunks import appended_files
from hai_backend.workspaces.contents import Contents, digest_of, open_in, opened
from hai_backend.workspaces.index import Index
from hai_backend.workspaces.storage.directories import Directories, give
from hai_backend.workspaces.storage.file_stat import Stat, look, stat_of
from hai_backend.workspaces.storage.workers import Storage

_PASSABLE = 0o711
_STAT = "s.size, s.mtime_ns, s.ino, s.ctime_ns, s.seen_ns"
_PLACES = f"""SELECT folder, name, {_STAT} FROM entries e LEFT JOIN stats s USING (folder, name)
    WHERE kind = 1 AND digest = :digest AND gone = 0
    UNION ALL SELECT folder, name, {_STAT} FROM pending p LEFT JOIN stats s USING (folder, name)
    WHERE digest_before = :digest"""


class Files:
    """Open until `close`. Everything blocks. `owner` is the uid of its user; 0: the server's."""

    def __init__(self, path: Path, owner: int) -> None:
        self.path = path
        self.owner = owner
        self.storage = Storage()
        self.reserve = DiskReserve(path)
        self.tree = path / "files"
        self.tasks = path / "tasks"
        self.laid = path / "laid"
        self.laid.mkdir(exist_ok=True, mode=0o700)
        self.index = Index(path / "index.db")
        self.incoming = Contents(path / "incoming")
        self._growing: dict[bytes, Callable[[], None]] = {}
        self._claiming = threading.Lock()
        self.objects = Contents(path / "objects")

    def is_case_insensitive(self) -> bool:
        """Whether storage finds the tree by its name in other case, too; nothing is written to learn that."""
        with suppress(OSError):
            return os.path.samefile(self.tree, self.tree.with_name(self.tree.name.swapcase()))
        return False

    def recover(self) -> None:
        """Once everything is applied: what another process left is read before it is believed."""
        for name in self.incoming.names():
            if "." in name and not name.endswith(".part"):
                self.incoming.remove(name)
        self.incoming.doubt()

    def close(self) -> None:
        """Another server may open it."""
        self.index.close()
        self.incoming.close()
        self.objects.close()

    def revision(self, number: int) -> Revision:
        """One that is still kept. Raises NotFound."""
        known = self.index.revision(number)
        if known is None:
            raise NotFound(
                f"workspace {self.path.name} has no revision {number} (any more); "
                "`hai workspace snapshots` lists those that are kept"
            )
        return known

    def claim(self, file: bytes, stop: Callable[[], None]) -> None:
        """From now on only the caller puts this large file together; who did so before is stopped."""
        with self._claiming:
            if (before := self._growing.pop(file, None)) is not None:
                before()
            self._growing[file] = stop

    def release(self, file: bytes, stop: Callable[[], None]) -> None:
        """The caller is done with it, if it was still his."""
        with self._claiming:
            if self._growing.get(file) == stop:
                del self._growing[file]

    def growing(self) -> set[str]:
        """The large files that somebody puts together, by digest."""
        with self._claiming:
            return {file.hex() for file in self._growing}

    def folders(self) -> Directories:
        """The tree. Raises OSError when it is not there: an unmounted or deleted root is never an empty one."""
        return Directories(self.tree, owner=self.owner)

    def find(self, digest: bytes, tree: Directories | None = None) -> int | None:
        """A file of this content, open for reading; None: there is none. What programs changed in place is not it, but
        for files that have only grown. Who asks for many keeps the `tree` open.

        While a revision is applied, contents move from one place to the next: each is looked at again.
        """
        if tree is not None and (file := self._find_at(digest, tree)) is not None:
            return file
        with self.folders() as now:
            for _ in range(3):
                if (file := self._find_at(digest, now)) is not None:
                    return file
            return appended_files.find(self.index, now, self.incoming, digest)

    def _find_at(self, digest: bytes, tree: Directories) -> int | None:
        """What has no row is not in `objects`: nobody waits for storage to say so."""
        name = digest.hex()
        with suppress(FileNotFoundError):
            if self.index.rows("SELECT 1 FROM objects WHERE digest = ?", (digest,)):
                return self.objects.open(name)
        if (file := self._find_below(tree, digest)) is not None:
            return file
        with suppress(FileNotFoundError):
            if self.incoming.has(name):
                return self.incoming.open(name)
        return self._find_laid(digest)

    def _find_laid(self, digest: bytes) -> int | None:
        """In directories that wait for their place in the tree."""
        rows = self.index.rows("SELECT DISTINCT source FROM pending WHERE kind = 2")
        for root in (self.laid / row[0] for row in rows if row[0] is not None):
            with suppress(FileNotFoundError), Directories(root) as folders:
                if (file := self._find_below(folders, digest)) is not None:
                    return file
        return None

    def _find_below(self, folders: Directories, digest: bytes) -> int | None:
        for folder, name, *seen in self.index.rows(_PLACES, {"digest": digest}):
            known = Stat(*seen) if seen[0] is not None else None
            try:
                file = open_in(folders.at(folder), name)
            except OSError:
                continue
            if is_still(file, known, digest):
                return file
            os.close(file)
        return None

    def stored_bytes(self) -> int:
        """Everything on storage: the newest tree, older versions, what pushes left, and directories of tasks."""
        checkouts = self.index.rows("SELECT COALESCE(SUM(size_bytes), 0) FROM checkouts")[0][0]
        laid = self.index.rows("SELECT COALESCE(SUM(size), 0) FROM laid")[0][0]
        tree = self.index.newest().size_bytes + int(laid)
        return tree + self.objects.size() + self.incoming.size() + int(checkouts)


def make(path: Path, owner: int) -> None:
    """The directories of a new workspace, empty."""
    path.mkdir(parents=True)
    for folder in (path.parent, path):
        folder.chmod(_PASSABLE)
    for name in ("files", "tasks"):
        (path / name).mkdir()
    (path / "tasks").chmod(_PASSABLE)
    with Directories(path / "files") as made:
        give(made.root, owner)


def is_still(file: int, known: Stat | None, digest: bytes) -> bool:
    """Whether an open file has this content: by its stat where that is enough, else by reading it."""
    found = os.fstat(file)
    if not S_ISREG(found.st_mode):
        return False
    now = stat_of(found)
    if known is not None and known.trusts(now):
        return True
    return digest_of(file) == digest and stat_of(os.fstat(file)) == now


def is_still_at(folder: int, name: str, known: Stat | None, digest: bytes) -> bool:
    """The same of what an open directory has; opened only where a stat does not settle it. Raises OSError."""
    if known is not None and (now := look(name, folder)) is not None and known.trusts(now):
        return True
    with opened(open_in(folder, name)) as file:
        return is_still(file, known, digest)


def now_ns() -> int:
    """The clock that stats are compared with."""
    return time.time_ns()
