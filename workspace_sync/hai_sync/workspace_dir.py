"""Finds and creates workspaces: a root with `.hfai/workspace.yml`, and the directory of its state.

The file contains no absolute path, so that a moved directory stays the same workspace. The state is in the user's
data directory, under the id of the workspace; `session.ownership` handles a copy, which has the same id. An empty
mount point in place of the root has no such file, so that it never counts as a tree whose files were removed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hai.client.errors import NotFound, UsageError
from hai_sync.core.names import PRIVATE_DIR

CONFIG = "workspace.yml"
TEMPORARY = "tmp"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")
_LINE = re.compile(r"^(name|id): *['\"]?([A-Za-z0-9._-]+)['\"]? *$", re.MULTILINE)
_SYSTEM = ("/", "/usr", "/sys", "/proc", "/boot", "/dev", "/run", "/etc", "/var", "/bin", "/lib")


@dataclass(frozen=True, slots=True)
class WorkspaceDir:
    """One workspace on this machine."""

    root: Path
    name: str
    id: str

    @property
    def private_dir(self) -> Path:
        """The directory in the root that is never synced."""
        return self.root / PRIVATE_DIR

    @property
    def state_dir(self) -> Path:
        """The directory with the index, versions, lock and daemon log. It is outside of the tree."""
        return data_directory() / self.id

    @property
    def index_path(self) -> Path:
        return self.state_dir / "index.sqlite"

    @property
    def versions_dir(self) -> Path:
        """The directory of local versions that syncs overwrote or removed."""
        return self.state_dir / "kept"

    @property
    def socket(self) -> Path:
        """The socket on which a daemon listens."""
        return self.private_dir / "daemon.sock"

    def is_case_insensitive(self) -> bool:
        """Return whether the file system of the root ignores case. The test is that of git."""
        try:
            return os.path.samefile(self.private_dir / CONFIG, self.private_dir / CONFIG.swapcase())
        except OSError:
            return False

    def require(self) -> None:
        """Raise UsageError if the root was unmounted, moved or removed."""
        if not (self.private_dir / CONFIG).is_file():
            raise UsageError(
                f"{self.root} is missing or not mounted: it has no {PRIVATE_DIR}/{CONFIG}",
                hint="nothing was changed; mount it, or change to where it was moved",
            )


def data_directory() -> Path:
    """Return the directory with the state of all workspaces."""
    from platformdirs import user_data_path

    return user_data_path("hai") / "workspaces"


def find_workspace(start: Path | None = None) -> WorkspaceDir:
    """Return the workspace that contains a directory. Raises NotFound."""
    try:
        at = Path(os.path.realpath(start or os.getcwd()))
    except FileNotFoundError:
        raise NotFound(
            "the current directory was removed", hint="change to another directory"
        ) from None
    for folder in (at, *at.parents):
        if (folder / PRIVATE_DIR / CONFIG).is_file():
            return _read(folder)
    raise NotFound(f"{at} is not in a workspace", hint="`haiworkspace init NAME` makes it one")


def find_workspace_or_none() -> WorkspaceDir | None:
    """Return the workspace of the current directory, or None."""
    try:
        return find_workspace()
    except NotFound:
        return None


def _read(root: Path) -> WorkspaceDir:
    path = root / PRIVATE_DIR / CONFIG
    lines = dict(_LINE.findall(path.read_text("utf-8", "replace")))
    if not {"name", "id"} <= lines.keys():
        raise UsageError(
            f"{path} has no lines `name: NAME` and `id: ID`",
            hint="correct it, or remove it and init again",
        )
    return WorkspaceDir(root, lines["name"], lines["id"])


def create_workspace(root: Path, name: str) -> tuple[WorkspaceDir, bool]:
    """Make a directory a workspace. Return it, and whether it is new. Raises UsageError."""
    _check_name(name)
    root = Path(os.path.realpath(root))
    _check_root(root)
    try:
        existing = find_workspace(root)
    except NotFound:
        existing = None
    if existing is not None:
        return _require_same(existing, root, name), False
    workspace = WorkspaceDir(root, name, os.urandom(16).hex())
    workspace.private_dir.mkdir(exist_ok=True)
    comment = "# this directory is a workspace of HAI Platform; see `haiworkspace --help`"
    text = f"{comment}\nname: {name}\nid: {workspace.id}\n"
    temporary = workspace.private_dir / (CONFIG + ".new")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, workspace.private_dir / CONFIG)
    return workspace, True


def _require_same(existing: WorkspaceDir, root: Path, name: str) -> WorkspaceDir:
    """Return an existing workspace. Raises UsageError unless it has this root and name."""
    if existing.root != root:
        raise UsageError(f"{root} lies in the workspace {existing.name!r} of {existing.root}")
    if existing.name != name:
        raise UsageError(
            f"{root} is the workspace {existing.name!r} already",
            hint=f"remove {existing.private_dir} to make it another one",
        )
    return existing


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a workspace's name",
            hint="letters, digits, '-', '_' and '.', at most 63, not beginning with a dot",
        )


def _check_root(root: Path) -> None:
    if str(root) in _SYSTEM or root == Path.home():
        raise UsageError(f"{root} is not a directory to sync as a whole; make one inside it")
    if not root.is_dir():
        raise UsageError(f"there is no directory {root}")


def root_id(root: str) -> str:
    """Return a text that identifies a root by device, inode and path. Raises OSError.

    A move keeps device and inode. Some mounts get new device numbers, so an equal inode at the same path suffices.
    """
    status = os.stat(root)
    return f"{status.st_dev} {status.st_ino} {os.fsencode(root).hex()}"


def root_path(root_id: str) -> str:
    """Return the path that a root had when its id was made."""
    return os.fsdecode(bytes.fromhex(root_id.split()[2]))


def is_same_root(before: str, now: str) -> bool:
    """Return whether two ids identify the same directory."""
    old_device, old_inode, old_path = before.split()
    device, inode, path = now.split()
    return inode == old_inode and (device == old_device or path == old_path)
