"""Restores saved local versions, each atomically. The current file becomes a saved version in turn."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from hai.client.errors import Conflict, NotFound, UsageError
from hai_sync.core.names import is_private, path_error
from hai_sync.session.lock import lock_workspace
from hai_sync.transition.directories import Directories, describe_os_error, lstat_or_none
from hai_sync.transition.safe_replace import PathChanged, SafeReplace
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir

_MAX_LISTED = 10


async def restore_local(
    workspace: WorkspaceDir, paths: Sequence[str], stamp: str, on_wait: Callable[[], None]
) -> None:
    """Restore all paths, or none if one has no version. Raises HaiError or OSError."""
    async with lock_workspace(workspace.state_dir, on_wait):
        store = VersionStore(workspace.versions_dir)
        found = [(path, _find_version(store, path, stamp)) for path in paths]
        for path, version in found:
            _restore_file(workspace, store, path, version)


def _find_version(store: VersionStore, path: str, stamp: str) -> Path:
    """Return the path of a saved version. Raises NotFound, or UsageError for a directory."""
    version = None if path_error(path) or is_private(path) else store.find(path, stamp)
    if version is not None:
        return version
    if inner_paths := store.paths_below(path):
        listed = ", ".join(inner_paths[:_MAX_LISTED]) + (
            ", ..." if len(inner_paths) > _MAX_LISTED else ""
        )
        raise UsageError(
            f"{path!r} is a directory", hint=f"name files that have saved versions: {listed}"
        )
    raise NotFound(
        f"no version of {path!r} was saved here" + (f" at {stamp}" if stamp else ""),
        hint="`haiworkspace snapshots --local` lists saved versions",
    )


def _restore_file(workspace: WorkspaceDir, store: VersionStore, path: str, version: Path) -> None:
    """Restore one file from a copy of its version."""
    temp_dir = workspace.private_dir / TEMPORARY
    temp_dir.mkdir(exist_ok=True)
    replacer = SafeReplace({}, store, temp_dir, lambda step: None)
    copy = temp_dir / f"restored-{os.getpid()}"
    directories = Directories(workspace.root)
    try:
        shutil.copy2(version, copy, follow_symlinks=False)
        _replace(directories, replacer, path, str(copy))
    except PathChanged as reason:
        raise Conflict(f"{path} was not restored: {reason}", hint="run the command again") from None
    finally:
        directories.close()
        copy.unlink(missing_ok=True)


def _replace(directories: Directories, replacer: SafeReplace, path: str, copy: str) -> None:
    folder, name = _open_parent(directories, path)
    current = lstat_or_none(name, folder)
    if current is None:
        replacer.create(copy, folder, name)
    elif stat.S_ISREG(current.st_mode) or stat.S_ISLNK(current.st_mode):
        replacer.overwrite(path, copy, folder, name)
    else:
        raise UsageError(
            f"{path} is neither a file nor a link now, and was not replaced",
            hint="remove or rename it first",
        )


def _open_parent(directories: Directories, path: str) -> tuple[int, str]:
    try:
        return directories.open_parent(path, make=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be restored: {describe_os_error(error)}",
            hint="nothing was changed; check the directories in its path",
        ) from error
