"""Applies a committed revision to the tree. After a crash, `recover` continues where the server stopped.

One rename moves a content out of `incoming` to its path; the previous version is linked into `objects` before. A file
at the path that the index does not expect is renamed, so it is never lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, NamedTuple

from hai_backend.domain.workspace import EntryKind, joined
from hai_backend.workspaces.contents import rename_no_replace
from hai_backend.workspaces.files import WorkspaceFiles, has_content_at, now_ns
from hai_backend.workspaces.push import materialize
from hai_backend.workspaces.storage.directories import Directories, chown_entry, set_aside
from hai_backend.workspaces.storage.file_stat import Stat, has_mtime, read_stat
from hai_backend.workspaces.storage.workers import (
    FILE_SECONDS,
    FILES_PER_BATCH,
    TreeWorker,
    WorkerPool,
    split_batches,
)

_FILE, _DIRECTORY, _LINK = EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.SYMLINK
_ROWS = """SELECT p.*, s.size, s.mtime_ns, s.ino, s.ctime_ns, s.seen_ns
    FROM (SELECT * FROM pending WHERE {condition} AND (folder, name) {after} (?, ?)
      ORDER BY folder {direction}, name {direction} LIMIT 2000) p
    LEFT JOIN stats s USING (folder, name) ORDER BY folder {direction}, name {direction}"""
_CREATIONS = _ROWS.format(condition="kind != 0", after=">", direction="ASC")
_REMOVALS = _ROWS.format(
    condition="(kind = 0 OR kind_before NOT IN (0, kind))", after="<", direction="DESC"
)
_AFTER_ALL = "\U0010ffff"


class _Step(NamedTuple):
    """A change of one path, with the previous state of the path."""

    folder: str
    name: str
    kind: int
    executable: int
    size: int
    mtime_ns: int
    digest: bytes | None
    target: str
    source: str | None
    kind_before: int
    digest_before: bytes | None
    observed: Stat | None


def recover(files: WorkspaceFiles) -> None:
    """Apply the commits of another process, and keep the contents of its pushes for the next attempt."""
    apply_pending(files)
    files.recover()
    materialize.recover(files)


def apply_pending(files: WorkspaceFiles) -> None:
    """Apply all pending changes, if there are any."""
    if not files.index.fetch_rows("SELECT 1 FROM pending LIMIT 1"):
        return
    with files.open_tree() as folders:
        for steps in _read_steps(files, _REMOVALS, (_AFTER_ALL, _AFTER_ALL)):
            for step in steps:
                _remove_previous(files, folders, step)
        with closing(
            WorkerPool(partial(_FileInstaller, files), FILE_SECONDS, files.storage_speed)
        ) as pool:
            for steps in _read_steps(files, _CREATIONS, ("", "")):
                _create_entries(files, folders, pool, steps)
    with files.index.transaction() as db:
        db.execute("""DELETE FROM stats WHERE (folder, name) IN
            (SELECT folder, name FROM pending WHERE kind != 1)""")
        db.execute("DELETE FROM pending")


def _read_steps(files: WorkspaceFiles, query: str, start: tuple[str, str]) -> Iterator[list[_Step]]:
    after = start
    while rows := files.index.fetch_rows(query, after):
        steps = [_step(row) for row in rows]
        after = (steps[-1].folder, steps[-1].name)
        yield steps


def _step(row: Any) -> _Step:
    observed = Stat(*row[11:]) if row[11] is not None else None
    return _Step._make((*row[:11], observed))


def _remove_previous(files: WorkspaceFiles, folders: Directories, step: _Step) -> None:
    """Remove the previous entry of a path that becomes empty or gets an entry of another kind."""
    try:
        folder = folders.open(step.folder)
    except OSError:
        return  # the entry was removed with its directory
    with suppress(FileNotFoundError):
        mode = os.stat(step.name, dir_fd=folder, follow_symlinks=False).st_mode
        if step.kind_before == _FILE and S_ISREG(mode):
            _archive_previous(files, folder, step)
            with suppress(FileNotFoundError):  # the file may have been renamed
                os.unlink(step.name, dir_fd=folder)
        elif step.kind_before == _LINK and S_ISLNK(mode):
            os.unlink(step.name, dir_fd=folder)
        elif step.kind_before == _DIRECTORY and S_ISDIR(mode):
            _remove_directory(step, folder)


def _remove_directory(step: _Step, folder: int) -> None:
    try:
        os.rmdir(step.name, dir_fd=folder)
    except (
        OSError
    ):  # a program put something into the directory: keep it, unless its path is needed
        if step.kind != EntryKind.NONE:
            set_aside(step.name, folder)


def _archive_previous(files: WorkspaceFiles, folder: int, step: _Step) -> None:
    """Link the previous version into `objects`. Rename a version that the index does not have."""
    assert step.digest_before is not None
    if has_content_at(folder, step.name, step.observed, step.digest_before):
        with suppress(FileExistsError):
            os.link(
                step.name,
                step.digest_before.hex(),
                src_dir_fd=folder,
                dst_dir_fd=files.objects.folder,
                follow_symlinks=False,
            )
        return
    set_aside(step.name, folder)
    if not files.objects.has(step.digest_before.hex()):
        with files.index.transaction() as db:
            db.execute("DELETE FROM objects WHERE digest = ?", (step.digest_before,))


def _create_entries(
    files: WorkspaceFiles,
    folders: Directories,
    pool: WorkerPool[_FileInstaller],
    steps: list[_Step],
) -> None:
    """Create directories before their entries; the order of files does not matter."""
    for step in steps:
        if step.kind == _DIRECTORY:
            _make_directory(files, folders, step)
        elif step.kind == _LINK:
            _create_link(files, folders.open_or_create(step.folder), step)
    new_files = (step for step in steps if step.kind == _FILE)
    installed = pool.map_ordered(_FileInstaller.install, split_batches(new_files, FILES_PER_BATCH))
    _save_stats(files, list(chain.from_iterable(installed)))


class _FileInstaller(TreeWorker):
    """Moves files to their paths. Not thread-safe."""

    def __init__(self, files: WorkspaceFiles) -> None:
        super().__init__(files.open_tree())
        self._files = files

    def install(self, steps: list[_Step]) -> list[tuple[Any, ...] | None]:
        """Move files to their paths. Return their rows for `stats`; None for files that programs have changed."""
        self.done += len(steps)
        return [
            _install_file(self._files, self.folders.open_or_create(step.folder), step)
            for step in steps
        ]


def _make_directory(files: WorkspaceFiles, folders: Directories, step: _Step) -> None:
    path = joined(step.folder, step.name)
    if step.source is not None:
        materialize.publish(
            files, folders.open_or_create(step.folder), step.name, step.source, path
        )
    folders.open_or_create(path)


def _create_link(files: WorkspaceFiles, folder: int, step: _Step) -> None:
    with suppress(OSError):
        if os.readlink(step.name, dir_fd=folder) == step.target:
            return
        os.unlink(step.name, dir_fd=folder)
    try:
        os.symlink(step.target, step.name, dir_fd=folder)
    except FileExistsError:
        set_aside(step.name, folder)
        os.symlink(step.target, step.name, dir_fd=folder)
    chown_entry(step.name, folder, files.owner)


def _install_file(files: WorkspaceFiles, folder: int, step: _Step) -> tuple[Any, ...] | None:
    """Move a file to its path. Return its row for `stats`; None if a program has changed the file already."""
    with suppress(FileNotFoundError):  # the file was moved before a crash
        _move_into_tree(files, folder, step)
    stat = read_stat(step.name, folder)
    if stat is None or stat.size != step.size or not has_mtime(step.mtime_ns, stat.mtime_ns):
        return None
    return (step.folder, step.name, stat.size, stat.mtime_ns, stat.ino, stat.ctime_ns)


def _move_into_tree(files: WorkspaceFiles, folder: int, step: _Step) -> None:
    """Move a content from `incoming` to its path, with time, mode and owner. Raise FileNotFoundError."""
    assert step.digest is not None
    incoming, source = files.incoming.folder, step.source or step.digest.hex()
    os.utime(source, ns=(step.mtime_ns, step.mtime_ns), dir_fd=incoming)
    if step.executable:
        os.chmod(source, 0o755, dir_fd=incoming)
    chown_entry(source, incoming, files.owner)
    if step.kind_before != _FILE or not _clear_target(files, folder, step):
        if rename_no_replace(source, incoming, step.name, folder):
            return
        _clear_target(files, folder, step)
    os.rename(source, step.name, src_dir_fd=incoming, dst_dir_fd=folder)


def _clear_target(files: WorkspaceFiles, folder: int, step: _Step) -> bool:
    """Clear the path for a new file. Return False if the path was free."""
    try:
        mode = os.stat(step.name, dir_fd=folder, follow_symlinks=False).st_mode
        if step.kind_before == _FILE and S_ISREG(mode):
            _archive_previous(files, folder, step)
        else:
            set_aside(step.name, folder)
    except FileNotFoundError:
        return False
    return True


def _save_stats(files: WorkspaceFiles, installed: list[tuple[Any, ...] | None]) -> None:
    observed_ns = now_ns()
    rows = [(*row, observed_ns) for row in installed if row is not None]
    with files.index.transaction() as db:
        db.executemany("INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
