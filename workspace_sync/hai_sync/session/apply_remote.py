"""Gets the contents that local changes need, then makes the changes.

A content that lies somewhere in the local tree already (a rename, a copy) is taken from there.
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
from hai_sync.core.diff import Change, only_mode
from hai_sync.core.entry import Entry, Kind, Tree
from hai_sync.file_fingerprint import Signature
from hai_sync.hashing import open_file
from hai_sync.remote.downloader import Download, due, fetch
from hai_sync.remote.endpoint import Remote
from hai_sync.session.options import Listener
from hai_sync.transition.apply import Result, Transition
from hai_sync.transition.directories import Directories
from hai_sync.transition.fsync import flush
from hai_sync.transition.safe_replace import HELD, Fault, SafeReplace
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir


@dataclass(slots=True)
class ApplyRemote:
    """Local changes that are to be made."""

    place: WorkspaceDir
    changes: Sequence[Change]
    local: Tree
    seen: Mapping[str, Signature]
    revision: int
    compressed: bool = True
    fault: Fault = lambda step: None
    _uses: dict[bytes, int] = field(default_factory=dict)
    _number: int = 0

    @property
    def folder(self) -> Path:
        """Where contents wait; on the same file system as the tree."""
        return self.place.own / TEMPORARY

    async def fetch(self, remote: Remote, listener: Listener) -> None:
        """Have every content at hand. Raises HaiError; a full disk leaves nothing behind."""
        self.folder.mkdir(exist_ok=True)
        lacking = self._take_local_copies()
        download = Download(self.revision, lacking, self.folder, self.compressed)
        listener.stage("download", *due(download))
        try:
            await fetch(remote, download, listener.progress)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._clear()
            raise HaiError(
                f"cannot store what arrives in {self.folder}: {error.strerror}",
                reason="DISK",
                hint="nothing was changed; make room and do it again",
            ) from error

    def _clear(self) -> None:
        """But for versions on their way to the kept ones: an attempt before this may have left some."""
        for item in self.folder.iterdir():
            if not item.name.startswith(HELD):
                item.unlink(missing_ok=True)
        with suppress(OSError):  # something is held
            self.folder.rmdir()

    def _take_local_copies(self) -> dict[str, Entry]:
        """What must come from the server after all."""
        at = {e.digest: path for path, e in self.local.items() if e.kind is Kind.FILE and e.digest}
        lacking: dict[str, Entry] = {}
        for path, entry in self._wanted():
            self._uses[entry.digest] = self._uses.get(entry.digest, 0) + 1
            target = self._at(entry.digest)
            source = at.get(entry.digest)
            if target.exists() or (source and self._copied(source, target, entry.digest)):
                continue
            lacking[path] = entry
        return lacking

    def _wanted(self) -> list[tuple[str, Entry]]:
        """Files whose content is needed; a change of mode needs none."""
        return [
            (c.path, c.new)
            for c in self.changes
            if c.new is not None and c.new.kind is Kind.FILE and not only_mode(c)
        ]

    def _copied(self, source: str, target: Path, digest: bytes) -> bool:
        temporary = target.with_suffix(".copy")
        try:
            with open(open_file(self.place.root, source), "rb") as old, temporary.open("wb") as new:
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

    def _at(self, digest: bytes) -> Path:
        return self.folder / digest.hex()

    def apply(self) -> Result:
        """Make the changes."""
        self.folder.mkdir(exist_ok=True)
        flush(self.folder, [self._at(digest) for digest in self._uses])
        kept = VersionStore(self.place.state / "kept")
        versions = SafeReplace(self.seen, kept, self.folder, self.fault)
        work = Transition(Directories(self.place.root), versions, self._staged)
        result = work.apply(self.changes)
        if not result.problems:
            self._clear()
        return result

    def _staged(self, change: Change) -> str | None:
        """The content of one file; the last one that needs it gets the original."""
        assert change.new is not None
        assert change.new.hashed, f"{change.path} comes from nowhere"
        source = self._at(change.new.digest)
        if not source.exists():
            return None
        self._uses[change.new.digest] = left = self._uses.get(change.new.digest, 1) - 1
        if left <= 0:
            return str(source)
        self._number += 1
        copy = self.folder / f"copy-{self._number}"
        shutil.copyfile(source, copy)
        flush(self.folder, [copy])
        return str(copy)


def sweep(place: WorkspaceDir) -> None:
    """What a killed run has left: versions that it held go to the kept ones, the rest waits for its use."""
    folder = place.own / TEMPORARY
    if not folder.is_dir():
        return
    kept = VersionStore(place.state / "kept")
    for item in os.scandir(folder):
        if item.name.startswith(HELD):
            kept.keep(item.path, f"recovered/{item.name}")
        elif not item.name.endswith(".part") and len(item.name) != 64:
            os.unlink(item.path)
