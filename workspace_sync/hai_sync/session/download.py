"""Downloads files of the cluster into a directory, without a sync.

Existing files that differ are overwritten only with --force, and saved as by a pull. Outside of the workspace no
versions are saved, so only a file may replace a file there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from hai.client.errors import HaiError, UsageError
from hai_sync.core.diff import Change, changes_only_mode
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree, ancestors, parent
from hai_sync.file_fingerprint import Fingerprint, fingerprint
from hai_sync.hashing import hash_files
from hai_sync.remote.downloader import Download
from hai_sync.scan import Filter, Scan, ScanCache, Walker
from hai_sync.transition.apply import Transition
from hai_sync.transition.directories import Directories
from hai_sync.transition.safe_replace import SafeReplace
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir

_REPLACEABLE = {Kind.FILE, Kind.SYMLINK}
_LISTED = 10


@dataclass(slots=True)
class DownloadTarget:
    """The directory `below` in `root`, into which files are downloaded. Nothing is written outside of `root`."""

    root: Path
    below: str
    temp_dir: Path  # for new and old contents, on the same file system
    versions: VersionStore
    keeps_versions: bool  # whether overwritten files can be restored later
    _fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)

    def path(self, path: str) -> str:
        """Return the path below `root` for a path on the cluster."""
        return f"{self.below}/{path}" if self.below else path

    def plan(self, selected: Tree) -> list[Change]:
        """Return the changes that the directory needs. Files of equal size are compared by content."""
        desired = {self.path(path): entry for path, entry in selected.items()}
        for path in list(desired):
            desired |= {above: DIRECTORY for above in ancestors(path) if above not in desired}
        found = _scan_paths(self.root, desired)
        self._fingerprints, existing = found.fingerprints, found.changed
        return [
            Change(p, existing.get(p), new) for p, new in desired.items() if existing.get(p) != new
        ]

    def require_replaceable(self, changes: Sequence[Change], force: bool) -> None:
        """Raise UsageError if existing files must not be replaced."""
        if blocked := [change.path for change in changes if self._cannot_replace(change)]:
            raise UsageError(
                f"these exist here and cannot be replaced: {_join_limited(blocked)}",
                hint="remove or rename them, or choose another directory with --to",
            )
        differing = [c.path for c in changes if c.old is not None and not changes_only_mode(c)]
        if differing and not force:
            raise UsageError(
                f"these exist here and differ: {_join_limited(differing)}",
                hint="--force overwrites"
                + (
                    ", and saves the old versions for `restore --local`"
                    if self.keeps_versions
                    else ""
                ),
            )

    def _cannot_replace(self, change: Change) -> bool:
        """Return whether --force cannot replace an entry: no version can be saved of a directory or a pipe."""
        old, new = change.old, change.new
        if old is None or new is None:
            return False
        return not {old.kind, new.kind} <= _REPLACEABLE or (
            not self.keeps_versions and old.kind is not new.kind
        )

    def apply(self, changes: Iterable[Change], contents: Download) -> None:
        """Make the changes, each atomically. Raises HaiError."""
        replacer = SafeReplace(self._fingerprints, self.versions, self.temp_dir, lambda step: None)
        work = Transition(Directories(self.root), replacer, _staged_copies(self.temp_dir, contents))
        if problems := work.apply(changes).problems:
            path, reason = next(iter(problems.items()))
            raise HaiError(
                f"{len(problems)} paths could not be written, such as {path}: {reason}",
                reason="NOT_PLACED",
                hint="received files are kept; run the command again to resume",
            )
        for entry in contents.files.values():
            contents.path_of(entry.digest).unlink(missing_ok=True)


@contextmanager
def open_target(workspace: WorkspaceDir, target: Path) -> Iterator[DownloadTarget]:
    """Prepare a target directory, which is created if it does not exist."""
    if target.is_relative_to(workspace.root):
        below = "/".join(target.relative_to(workspace.root).parts)
        yield DownloadTarget(
            workspace.root,
            below,
            workspace.private_dir / TEMPORARY,
            VersionStore(workspace.versions_dir),
            True,
        )
        return
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".hfai-", dir=target) as temp_dir:
        yield DownloadTarget(
            target, "", Path(temp_dir), VersionStore(Path(temp_dir, "kept")), False
        )


def _scan_paths(root: Path, desired: Mapping[str, Entry]) -> Scan:
    """Scan these paths only, and never through a link."""
    walker = Walker(root, ScanCache(), Filter(files=False))
    found = walker.found
    for path in sorted(desired):
        if parent(path) and found.changed.get(parent(path)) != DIRECTORY:
            continue
        with suppress(FileNotFoundError):
            status = (root / path).lstat()
            walker.add_path(path, str(root / path), status, fingerprint(status))
    sizes = {p: e.size for p, e in found.changed.items() if e.kind is Kind.FILE}
    hash_files(found, [path for path, size in sizes.items() if desired[path].size == size])
    return found


def _staged_copies(temp_dir: Path, contents: Download) -> Callable[[Change], str]:
    """Return a function that copies the content of a file to a new path.

    Each file needs a copy, since several may have one content, and the target may be on another file system.
    """
    numbers = count()

    def staged(change: Change) -> str:
        assert change.new is not None
        copy = temp_dir / f"landing-{next(numbers)}"
        shutil.copyfile(contents.path_of(change.new.digest), copy)
        return str(copy)

    return staged


def _join_limited(paths: Sequence[str]) -> str:
    more = len(paths) - _LISTED
    return ", ".join(paths[:_LISTED]) + (f" and {more} more" if more > 0 else "")
