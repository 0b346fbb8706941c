"""Puts versions that were kept here back in their places, each whole or not at all.

What lies there now is kept in turn, and stays in its place until the old version takes it.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from hai.client.errors import Conflict, NotFound, UsageError
from hai_sync.core.names import fault, is_own
from hai_sync.session.lock import locked
from hai_sync.transition.directories import Directories, status_of, words
from hai_sync.transition.safe_replace import Moved, SafeReplace
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir

_LISTED = 10


async def restore_here(
    place: WorkspaceDir, paths: Sequence[str], stamp: str, waits: Callable[[], None]
) -> None:
    """All of them, or none if one was never kept. Raises HaiError, OSError."""
    async with locked(place.state, waits):
        kept = VersionStore(place.state / "kept")
        found = [(path, _found(kept, path, stamp)) for path in paths]
        for path, version in found:
            _put_back(place, kept, path, version)


def _found(kept: VersionStore, path: str, stamp: str) -> Path:
    version = None if fault(path) or is_own(path) else kept.find(path, stamp)
    if version is not None:
        return version
    if inside := kept.below(path):
        listed = ", ".join(inside[:_LISTED]) + (", ..." if len(inside) > _LISTED else "")
        raise UsageError(f"{path!r} is a directory", hint=f"name files that were kept: {listed}")
    raise NotFound(
        f"no version of {path!r} was kept here" + (f" at {stamp}" if stamp else ""),
        hint="`haiworkspace snapshots --local` lists what was",
    )


def _put_back(place: WorkspaceDir, kept: VersionStore, path: str, version: Path) -> None:
    hold = place.own / TEMPORARY
    hold.mkdir(exist_ok=True)
    versions = SafeReplace({}, kept, hold, lambda step: None)
    copy = hold / f"restored-{os.getpid()}"
    folders = Directories(place.root)
    try:
        shutil.copy2(version, copy, follow_symlinks=False)
        _take_place(folders, versions, path, str(copy))
    except Moved as why:
        raise Conflict(f"{path} is as it was: {why}", hint="do it again") from None
    finally:
        folders.leave()
        copy.unlink(missing_ok=True)


def _take_place(folders: Directories, versions: SafeReplace, path: str, copy: str) -> None:
    folder, name = _entered(folders, path)
    now = status_of(name, folder)
    if now is None:
        versions.create(copy, folder, name)
    elif stat.S_ISREG(now.st_mode) or stat.S_ISLNK(now.st_mode):
        versions.overwrite(path, copy, folder, name)
    else:
        raise UsageError(
            f"{path} is neither a file nor a link now, and stays", hint="remove or rename it first"
        )


def _entered(folders: Directories, path: str) -> tuple[int, str]:
    try:
        return folders.enter(path, make=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be put back: {words(error)}",
            hint="it is as it was; see what lies on the way to it",
        ) from error
