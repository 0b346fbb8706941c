"""Applies remote changes to the local tree: fetches the contents, then makes the changes.

A content that the local tree has already, as after a rename or a copy, is copied from there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from hai.client.errors import HaiError
from hai_sync.core.diff import Change, changes_only_mode
from hai_sync.core.entry import Entry, Kind, Tree
from hai_sync.file_fingerprint import Fingerprint
from hai_sync.hashing import open_file
from hai_sync.remote.downloader import Download, count_remaining, fetch_contents
from hai_sync.remote.endpoint import Remote
from hai_sync.session.options import Listener
from hai_sync.transition.apply import Result, Transition
from hai_sync.transition.directories import Directories
from hai_sync.transition.fsync import flush
from hai_sync.transition.safe_replace import BACKUP_PREFIX, FaultHook, SafeReplace
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir


@dataclass(slots=True)
class RemoteApplier:
    """Applies changes to the local tree. Call `fetch` before `apply`."""

    workspace: WorkspaceDir
    changes: Sequence[Change]
    local: Tree
    fingerprints: Mapping[str, Fingerprint]
    revision: int
    compressed: bool = True
    fault_hook: FaultHook = lambda step: None
    _uses: dict[bytes, int] = field(default_factory=dict)
    _number: int = 0

    @property
    def temp_dir(self) -> Path:
        """The directory of new contents, on the same file system as the tree."""
        return self.workspace.private_dir / TEMPORARY

    async def fetch(self, remote: Remote, listener: Listener) -> None:
        """Fetch every content. Raises HaiError. After a full disk, no partial content is left."""
        self.temp_dir.mkdir(exist_ok=True)
        missing = self._copy_local_contents()
        download = Download(self.revision, missing, self.temp_dir, self.compressed)
        listener.stage("download", *count_remaining(download))
        try:
            await fetch_contents(remote, download, listener.progress)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._clear_temp_dir()
            raise HaiError(
                f"cannot store contents in {self.temp_dir}: {error.strerror}",
                reason="DISK",
                hint="nothing was changed; free some space and run the command again",
            ) from error

    def _clear_temp_dir(self) -> None:
        """Delete everything except old versions, which an earlier attempt may have left."""
        for item in self.temp_dir.iterdir():
            if not item.name.startswith(BACKUP_PREFIX):
                item.unlink(missing_ok=True)
        with suppress(OSError):  # fails if an old version is in it
            self.temp_dir.rmdir()

    def _copy_local_contents(self) -> dict[str, Entry]:
        """Copy contents from the local tree. Return the files that must be downloaded."""
        paths_by_digest = {
            e.digest: path for path, e in self.local.items() if e.kind is Kind.FILE and e.digest
        }
        missing: dict[str, Entry] = {}
        for path, entry in self._needed_files():
            self._uses[entry.digest] = self._uses.get(entry.digest, 0) + 1
            target = self._staging_path(entry.digest)
            source = paths_by_digest.get(entry.digest)
            if target.exists() or (source and self._copy_verified(source, target, entry.digest)):
                continue
            missing[path] = entry
        return missing

    def _needed_files(self) -> list[tuple[str, Entry]]:
        """Return the files whose content is needed. A change of the mode needs none."""
        return [
            (c.path, c.new)
            for c in self.changes
            if c.new is not None and c.new.kind is Kind.FILE and not changes_only_mode(c)
        ]

    def _copy_verified(self, source: str, target: Path, digest: bytes) -> bool:
        """Copy a local file to the staging path. Return False unless its content has the digest."""
        temporary = target.with_suffix(".copy")
        try:
            with (
                open(open_file(self.workspace.root, source), "rb") as old,
                temporary.open("wb") as new,
            ):
                state = blake3()
                while block := old.read(1 << 20):
                    state.update(block)
                    new.write(block)
        except OSError:
            temporary.unlink(missing_ok=True)
            return False
        if state.digest() != digest:
            temporary.unlink()
            return False
        os.replace(temporary, target)
        return True

    def _staging_path(self, digest: bytes) -> Path:
        return self.temp_dir / digest.hex()

    def apply(self) -> Result:
        """Apply all changes with the staged contents. Return the result."""
        self.temp_dir.mkdir(exist_ok=True)
        flush(self.temp_dir, [self._staging_path(digest) for digest in self._uses])
        store = VersionStore(self.workspace.versions_dir)
        replacer = SafeReplace(self.fingerprints, store, self.temp_dir, self.fault_hook)
        transition = Transition(Directories(self.workspace.root), replacer, self._take_staged)
        result = transition.apply(self.changes)
        if not result.problems:
            self._clear_temp_dir()
        return result

    def _take_staged(self, change: Change) -> str | None:
        """Return the path of a staged content for one file: a copy, or the original for its last use."""
        assert change.new is not None
        assert change.new.hashed, f"{change.path} has no digest"
        source = self._staging_path(change.new.digest)
        if not source.exists():
            return None
        self._uses[change.new.digest] = uses = self._uses.get(change.new.digest, 1) - 1
        if uses <= 0:
            return str(source)
        self._number += 1
        copy = self.temp_dir / f"copy-{self._number}"
        shutil.copyfile(source, copy)
        flush(self.temp_dir, [copy])
        return str(copy)


def clean_temp_dir(workspace: WorkspaceDir) -> None:
    """Clean up after a killed process. Old versions go to the version store; complete contents and parts are kept."""
    folder = workspace.private_dir / TEMPORARY
    if not folder.is_dir():
        return
    store = VersionStore(workspace.versions_dir)
    for item in os.scandir(folder):
        if item.name.startswith(BACKUP_PREFIX):
            store.add(item.path, f"recovered/{item.name}")
        elif not item.name.endswith(".part") and len(item.name) != 64:
            os.unlink(item.path)
