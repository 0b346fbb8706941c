"""Where a workspace is: its root with `.hfai/workspace.yml`, and the directory of what we remember of it.

The file holds no absolute path, so that a moved directory goes on being the same workspace; what is
remembered lies in the user's data directory, under the workspace's own identity (a copy has it, too: see
`session.ownership`). The root carries a marker: an empty mount point in its place has none, and is never taken
for a tree whose files were removed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hai.client.errors import NotFound, UsageError
from hai_sync.core.names import OWN

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
    def own(self) -> Path:
        """The directory in the root that is ours."""
        return self.root / OWN

    @property
    def state(self) -> Path:
        """Index, kept versions, log of the daemon: outside of the tree."""
        return data_directory() / self.id

    @property
    def socket(self) -> Path:
        """Where a daemon listens."""
        return self.own / "daemon.sock"

    def is_case_insensitive(self) -> bool:
        """Whether the root's file system takes names that differ only in case for the same; asked as Git does."""
        try:
            return os.path.samefile(self.own / CONFIG, self.own / CONFIG.swapcase())
        except OSError:
            return False

    def require(self) -> None:
        """Raises UsageError when the root is not the one that it was: unmounted, moved or removed."""
        if not (self.own / CONFIG).is_file():
            raise UsageError(
                f"{self.root} is not there or not mounted: it has no {OWN}/{CONFIG}",
                hint="nothing was changed; mount it, or go to where it was moved",
            )


def data_directory() -> Path:
    """Where workspaces are remembered."""
    from platformdirs import user_data_path

    return user_data_path("hai") / "workspaces"


def find(start: Path | None = None) -> WorkspaceDir:
    """The workspace that a directory lies in. Raises NotFound."""
    try:
        at = Path(os.path.realpath(start or os.getcwd()))
    except FileNotFoundError:
        raise NotFound("the directory where you stand was removed", hint="cd elsewhere") from None
    for folder in (at, *at.parents):
        if (folder / OWN / CONFIG).is_file():
            return _read(folder)
    raise NotFound(f"{at} lies in no workspace", hint="`haiworkspace init NAME` makes it one")


def _read(root: Path) -> WorkspaceDir:
    """Of the file only two plain lines are of interest."""
    path = root / OWN / CONFIG
    lines = dict(_LINE.findall(path.read_text("utf-8", "replace")))
    if not {"name", "id"} <= lines.keys():
        raise UsageError(
            f"{path} has no lines `name: NAME` and `id: ID`",
            hint="correct it, or remove it and init again",
        )
    return WorkspaceDir(root, lines["name"], lines["id"])


def create(root: Path, name: str) -> tuple[WorkspaceDir, bool]:
    """Make a directory a workspace; False: it is this one already. Raises UsageError."""
    _check_name(name)
    root = Path(os.path.realpath(root))
    _check_root(root)
    try:
        known = find(root)
    except NotFound:
        known = None
    if known is not None:
        return _same(known, root, name), False
    place = WorkspaceDir(root, name, os.urandom(16).hex())
    place.own.mkdir(exist_ok=True)
    text = f"# this directory is a workspace of HAI Platform; see `haiworkspace --help`\nname: {name}\nid: {place.id}\n"
    temporary = place.own / (CONFIG + ".new")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, place.own / CONFIG)
    return place, True


def _same(known: WorkspaceDir, root: Path, name: str) -> WorkspaceDir:
    if known.root != root:
        raise UsageError(f"{root} lies in the workspace {known.name!r} of {known.root}")
    if known.name != name:
        raise UsageError(
            f"{root} is the workspace {known.name!r} already",
            hint=f"remove {known.own} to make it another one",
        )
    return known


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


def mark(root: str) -> str:
    """What a memory notes of its root. Raises OSError."""
    status = os.stat(root)
    return f"{status.st_dev} {status.st_ino} {os.fsencode(root).hex()}"


def path_of(noted: str) -> str:
    """Where a root was when its mark was made."""
    return os.fsdecode(bytes.fromhex(noted.split()[2]))


def is_same(before: str, now: str) -> bool:
    """Whether two marks are of one directory."""
    old_device, old_inode, old_path = before.split()
    device, inode, path = now.split()
    return inode == old_inode and (device == old_device or path == old_path)
