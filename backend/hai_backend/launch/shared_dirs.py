"""Makes the platform's directories for tasks, and says where ranks see them (list: domain/shared_dirs.py)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hai_backend.domain.environment import NAME
from hai_backend.domain.shared_dirs import SharedDirectory

_PASSABLE = 0o711  # what mounts a directory may not be root on the server of files


class Shared:
    """`pods`: the table [kubernetes] of the settings; empty: ranks are processes of this machine."""

    def __init__(self, root: Path, pods: Mapping[str, Any]) -> None:
        self._root = root.resolve()
        self._in_pods = bool(pods)
        self._mounted = bool(pods.get("shared_volume"))
        self._default_uid = int(pods.get("default_uid", 0))

    def seen(self, directory: SharedDirectory) -> str:
        """Where a rank sees it; empty: nowhere, for nobody said which volume it is on."""
        if self._in_pods and not self._mounted:
            return ""
        return str(self._root / directory.below)

    def sees(self, root: Path) -> bool:
        """Whether ranks see a directory of the server's; what is not below `shared` others have to mount."""
        return not self._in_pods or self._mounted or not root.is_relative_to(self._root)

    def environments(self, root: Path, user: str) -> tuple[SharedDirectory, ...]:
        """All environments, read only, and the user's own. Local processes see them anyway; other roots are mounted."""
        if not self._mounted or not root.is_relative_to(self._root) or not NAME.fullmatch(user):
            return ()
        below = str(root.relative_to(self._root))
        own = SharedDirectory(f"{below}/{user}", mode=0o755)
        return SharedDirectory(below, read_only=True), own

    def make(self, directory: SharedDirectory, uid: int, gid: int) -> None:
        """Before ranks start; may be repeated. Programs of pods run as this user, or as the cluster's default."""
        path = self._root / directory.below
        _make(path.parent, _PASSABLE)
        _make(path, directory.mode)
        owner = uid or self._default_uid
        if self._in_pods and not directory.read_only and owner:
            _give(path, owner, gid or owner)

    def remove(self, directory: SharedDirectory) -> None:
        """For good, with all that is in it; links are removed, not followed."""
        import shutil  # rarely needed

        shutil.rmtree(self._root / directory.below, ignore_errors=True)


def _make(path: Path, mode: int) -> None:
    """Also while another task's run makes it. Whoever made it sets its mode; later ones leave it as people made it."""
    with suppress(FileExistsError):
        path.mkdir(mode, parents=True)
        path.chmod(mode)  # which the umask has narrowed


def _give(path: Path, uid: int, gid: int) -> None:
    """A server that is not root can give nothing away; whom the directory is mounted for is then all that guards it."""
    if path.stat(follow_symlinks=False).st_uid == uid:
        return
    try:
        os.chown(path, uid, gid, follow_symlinks=False)
    except PermissionError:
        path.chmod(0o777)
