"""Creates the platform's directories for tasks, and says where ranks see them (list: domain/shared_dirs.py)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hai_backend.domain.environment import NAME
from hai_backend.domain.shared_dirs import SharedDirectory

_PASSABLE = 0o711  # whoever mounts a directory may not be root on the file server


class SharedDirectories:
    """`pods`: the table [kubernetes] of the settings; empty: ranks are processes of this machine."""

    def __init__(self, root: Path, pods: Mapping[str, Any]) -> None:
        self._root = root.resolve()
        self._in_pods = bool(pods)
        self._mounted = bool(pods.get("shared_volume"))
        self._default_uid = int(pods.get("default_uid", 0))

    def path_in_rank(self, directory: SharedDirectory) -> str:
        """The path at which a rank sees it; empty: not visible, because the settings name no volume."""
        if self._in_pods and not self._mounted:
            return ""
        return str(self._root / directory.below)

    def is_visible(self, root: Path) -> bool:
        """Whether ranks see a directory of the server. Directories outside `shared` are mounted by the operators."""
        return not self._in_pods or self._mounted or not root.is_relative_to(self._root)

    def environments(self, root: Path, user: str) -> tuple[SharedDirectory, ...]:
        """The environments of all users, read only, and those of `user`. Empty where ranks see them without a mount."""
        if not self._mounted or not root.is_relative_to(self._root) or not NAME.fullmatch(user):
            return ()
        below = str(root.relative_to(self._root))
        user_directory = SharedDirectory(f"{below}/{user}", mode=0o755)
        return SharedDirectory(below, read_only=True), user_directory

    def make(self, directory: SharedDirectory, uid: int, gid: int) -> None:
        """Create it before ranks start; may be repeated. It belongs to the uid that the programs of pods run as."""
        path = self._root / directory.below
        _make(path.parent, _PASSABLE)
        _make(path, directory.mode)
        owner = uid or self._default_uid
        if self._in_pods and not directory.read_only and owner:
            _change_owner(path, owner, gid or owner)

    def remove(self, directory: SharedDirectory) -> None:
        """Delete it with its contents; links are removed, not followed."""
        import shutil  # rarely needed

        shutil.rmtree(self._root / directory.below, ignore_errors=True)


def _make(path: Path, mode: int) -> None:
    """Safe while another run creates the same directory. An existing directory keeps its mode."""
    with suppress(FileExistsError):
        path.mkdir(mode, parents=True)
        path.chmod(mode)  # which the umask has narrowed


def _change_owner(path: Path, uid: int, gid: int) -> None:
    """A server that is not root cannot change the owner; then only the mounts restrict who reaches the directory."""
    if path.stat(follow_symlinks=False).st_uid == uid:
        return
    try:
        os.chown(path, uid, gid, follow_symlinks=False)
    except PermissionError:
        path.chmod(0o777)
