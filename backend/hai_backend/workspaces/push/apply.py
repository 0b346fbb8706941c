"""Does to the tree what a committed revision says; after a crash it is done again, from where it stopped.

The mark of a file that is in place is that its content has left `incoming`: one rename does both. What it replaces is
linked into `objects` before. What is found in the way and is not what the index says is set aside, never lost.
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
from hai_backend.workspaces.contents import rename_into_nothing
from hai_backend.workspaces.files import Files, is_still_at, now_ns
from hai_backend.workspaces.push import materialize
from hai_backend.workspaces.storage.directories import Directories, give_named, set_aside
from hai_backend.workspaces.storage.file_stat import Stat, bears, look
from hai_backend.workspaces.storage.workers import FILE_SECONDS, PART, Walker, Workers, parts

_FILE, _DIRECTORY, _LINK = EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.SYMLINK
_ROWS = """SELECT p.*, s.size, s.mtime_ns, s.ino, s.ctime_ns, s.seen_ns
    FROM (SELECT * FROM pending WHERE {which} AND (folder, name) {after} (?, ?)
      ORDER BY folder {way}, name {way} LIMIT 2000) p
    LEFT JOIN stats s USING (folder, name) ORDER BY folder {way}, name {way}"""
_MAKING = _ROWS.format(which="kind != 0", after=">", way="ASC")
_CLEARING = _ROWS.format(which="(kind = 0 OR kind_before NOT IN (0, kind))", after="<", way="DESC")
_LAST = "\U0010ffff"


class _Step(NamedTuple):
    """One path that changes, and what the index knew of it before."""

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
    seen: Stat | None


def recover(files: Files) -> None:
    """After another process: what was committed is carried out, and what a push left waits for the next one."""
    apply(files)
    files.recover()
    materialize.recover(files)


def apply(files: Files) -> None:
    """Finish what is pending; nothing pending: nothing happens."""
    if not files.index.rows("SELECT 1 FROM pending LIMIT 1"):
        return
    with files.folders() as folders:
        for steps in _steps(files, _CLEARING, (_LAST, _LAST)):
            for step in steps:
                _clear(files, folders, step)
        with closing(Workers(partial(_Placer, files), FILE_SECONDS, files.storage)) as hands:
            for steps in _steps(files, _MAKING, ("", "")):
                _make(files, folders, hands, steps)
    with files.index.transaction() as db:
        db.execute("""DELETE FROM stats WHERE (folder, name) IN
            (SELECT folder, name FROM pending WHERE kind != 1)""")
        db.execute("DELETE FROM pending")


def _steps(files: Files, query: str, begin: tuple[str, str]) -> Iterator[list[_Step]]:
    after = begin
    while rows := files.index.rows(query, after):
        steps = [_step(row) for row in rows]
        after = (steps[-1].folder, steps[-1].name)
        yield steps


def _step(row: Any) -> _Step:
    seen = Stat(*row[11:]) if row[11] is not None else None
    return _Step._make((*row[:11], seen))


def _clear(files: Files, folders: Directories, step: _Step) -> None:
    """What was here goes, for nothing or something of another kind comes."""
    try:
        folder = folders.at(step.folder)
    except OSError:
        return  # it went with its directory
    with suppress(FileNotFoundError):
        mode = os.stat(step.name, dir_fd=folder, follow_symlinks=False).st_mode
        if step.kind_before == _FILE and S_ISREG(mode):
            _displace(files, folder, step)
            with suppress(FileNotFoundError):  # it was set aside
                os.unlink(step.name, dir_fd=folder)
        elif step.kind_before == _LINK and S_ISLNK(mode):
            os.unlink(step.name, dir_fd=folder)
        elif step.kind_before == _DIRECTORY and S_ISDIR(mode):
            _remove_directory(step, folder)


def _remove_directory(step: _Step, folder: int) -> None:
    try:
        os.rmdir(step.name, dir_fd=folder)
    except OSError:  # a program put something into it: it stays, unless its place is needed
        if step.kind != EntryKind.NONE:
            set_aside(step.name, folder)


def _displace(files: Files, folder: int, step: _Step) -> None:
    """Keep what is here under its digest. A program's version that nobody knows gets another name in the tree."""
    assert step.digest_before is not None
    if is_still_at(folder, step.name, step.seen, step.digest_before):
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


def _make(files: Files, folders: Directories, hands: Workers[_Placer], steps: list[_Step]) -> None:
    """Directories before what is in them; files are in nobody's way."""
    for step in steps:
        if step.kind == _DIRECTORY:
            _make_directory(files, folders, step)
        elif step.kind == _LINK:
            _link(files, folders.make(step.folder), step)
    new = (step for step in steps if step.kind == _FILE)
    _keep_stats(files, list(chain.from_iterable(hands.each(_Placer.place, parts(new, PART)))))


class _Placer(Walker):
    """Puts files where they belong. One thread at a time."""

    def __init__(self, files: Files) -> None:
        super().__init__(files.folders())
        self._files = files

    def place(self, steps: list[_Step]) -> list[tuple[Any, ...] | None]:
        """Answers rows of stats."""
        self.done += len(steps)
        return [_place(self._files, self.folders.make(step.folder), step) for step in steps]


def _make_directory(files: Files, folders: Directories, step: _Step) -> None:
    path = joined(step.folder, step.name)
    if step.source is not None:
        materialize.show(files, folders.make(step.folder), step.name, step.source, path)
    folders.make(path)


def _link(files: Files, folder: int, step: _Step) -> None:
    with suppress(OSError):
        if os.readlink(step.name, dir_fd=folder) == step.target:
            return
        os.unlink(step.name, dir_fd=folder)
    try:
        os.symlink(step.target, step.name, dir_fd=folder)
    except FileExistsError:
        set_aside(step.name, folder)
        os.symlink(step.target, step.name, dir_fd=folder)
    give_named(step.name, folder, files.owner)


def _place(files: Files, folder: int, step: _Step) -> tuple[Any, ...] | None:
    """Answers a row of stats; None when a program was at it already."""
    with suppress(FileNotFoundError):  # it was placed before a crash
        _rename(files, folder, step)
    now = look(step.name, folder)
    if now is None or now.size != step.size or not bears(step.mtime_ns, now.mtime_ns):
        return None
    return (step.folder, step.name, now.size, now.mtime_ns, now.ino, now.ctime_ns)


def _rename(files: Files, folder: int, step: _Step) -> None:
    assert step.digest is not None
    incoming, source = files.incoming.folder, step.source or step.digest.hex()
    os.utime(source, ns=(step.mtime_ns, step.mtime_ns), dir_fd=incoming)
    if step.executable:
        os.chmod(source, 0o755, dir_fd=incoming)
    give_named(source, incoming, files.owner)
    if step.kind_before != _FILE or not _make_way(files, folder, step):
        if rename_into_nothing(source, incoming, step.name, folder):
            return
        _make_way(files, folder, step)
    os.rename(source, step.name, src_dir_fd=incoming, dst_dir_fd=folder)


def _make_way(files: Files, folder: int, step: _Step) -> bool:
    """False: nothing is there."""
    try:
        mode = os.stat(step.name, dir_fd=folder, follow_symlinks=False).st_mode
        if step.kind_before == _FILE and S_ISREG(mode):
            _displace(files, folder, step)
        else:
            set_aside(step.name, folder)
    except FileNotFoundError:
        return False
    return True


def _keep_stats(files: Files, placed: list[tuple[Any, ...] | None]) -> None:
    seen = now_ns()
    rows = [(*row, seen) for row in placed if row is not None]
    with files.index.transaction() as db:
        db.executemany("INSERT OR REPLACE INTO stats VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
