"""Creates the platform's directories for tasks, and determines their paths in ranks.

domain/shared_dirs.py lists the directories.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hai_backend.domain.environment import NAME
from hai_backend.domain.shared_dirs import SharedDirectory

_PASSABLE = 0o711  # the user that mounts a subdirectory need not be root on the file server


class SharedDirectories:
    """The directories below `root`, which is the path of `shared` on the server.

    `pods` is the table [kubernetes] of the settings. It is empty if ranks are processes of this machine.
    """

    def __init__(self, root: Path, pods: Mapping[str, Any]) -> None:
        self._root = root.resolve()
        self._in_pods = bool(pods)
        self._mounted = bool(pods.get("shared_volume"))
        self._default_uid = int(pods.get("default_uid", 0))

    def path_in_rank(self, directory: SharedDirectory) -> str:
        """Return the path of a directory in ranks; empty if they cannot see it, because the settings name no volume."""
        if self._in_pods and not self._mounted:
            return ""
        return str(self._root / directory.below)

    def is_visible(self, root: Path) -> bool:
        """Return whether ranks see a directory of the server.

        For a directory outside `shared`, this assumes that the operators mount it.
        """
        return not self._in_pods or self._mounted or not root.is_relative_to(self._root)

    def environments(self, root: Path, user: str) -> tuple[SharedDirectory, ...]:
        """Return the directory with the environments of all users, which is read only, and the one of `user`.

        `root` is the directory of all environments. The result is empty if ranks need no mount to see it.
        """
        if not self._mounted or not root.is_relative_to(self._root) or not NAME.fullmatch(user):
            return ()
        below = str(root.relative_to(self._root))
        user_directory = SharedDirectory(f"{below}/{user}", mode=0o755)
        return SharedDirectory(below, read_only=True), user_directory

    def make(self, directory: SharedDirectory, uid: int, gid: int) -> None:
        """Create a directory before ranks start. May be called again.

        If programs of pods write to the directory, it belongs to the uid that they run as.
        """
        path = self._root / directory.below
        _make(path.parent, _PASSABLE)
        _make(path, directory.mode)
        owner = uid or self._default_uid
        if self._in_pods and not directory.read_only and owner:
            _change_owner(path, owner, gid or owner)

    def remove(self, directory: SharedDirectory) -> None:
        """Delete a directory with its contents. Links are removed, not followed."""
        import shutil  # rarely needed

        shutil.rmtree(self._root / directory.below, ignore_errors=True)


def _make(path: Path, mode: int) -> None:
    """Create a directory unless it exists. An existing directory keeps its mode.

    Another run may create the same directory at the same time.
    """
    with suppress(FileExistsError):
        path.mkdir(mode, parents=True)
        path.chmod(mode)  # because the umask has removed bits


def _change_owner(path: Path, uid: int, gid: int) -> None:
    """Change the owner of a directory.

    A server that does not run as root cannot do this. Then everyone may write to the directory, and only the mounts
    restrict access.
    """
    if path.stat(follow_symlinks=False).st_uid == uid:
        return
    try:
        os.chown(path, uid, gid, follow_symlinks=False)
    except PermissionError:
        path.chmod(0o777)
