"""Checkpoints that many ranks write together: a directory with one file per rank, published by one rename.

A checkpoint is `NAME.STEP.DIGEST.dcp`, beside the checkpoints that one rank saves (checkpoint.py). It contains the
files of the ranks, and a manifest with their sizes and digests. DIGEST is the SHA-256 of the manifest, so the name
determines all bytes. Until it is published, the directory is `.NAME.STEP.dcp.writing`, and one rank, the coordinator,
has locked the manifest. If a rank is killed before, the next save or the agent removes the directory.

As with checkpoint.save, a damaged checkpoint is renamed to `….damaged`, and checkpoints of later steps than the newest
save to `….abandoned`. Only one save at a time may run under a name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import weakref
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from hai.task import checkpoint_files
from hai.task.checkpoint_files import sync_directory

MANIFEST = "manifest.json"
_PUBLISHED = ".dcp"
_WRITING = ".dcp.writing"


@dataclass(frozen=True, slots=True, order=True)
class ShardedCheckpoint:
    """A published directory, which contains the state before step `step`."""

    step: int
    path: Path
    digest: str

    def read_manifest(self) -> bytes | None:
        """Return the manifest; None if it is not what was saved."""
        with contextlib.suppress(FileNotFoundError):
            content = (self.path / MANIFEST).read_bytes()
            if hashlib.sha256(content).hexdigest() == self.digest:
                return content
        return None

    def set_aside(self, reason: str) -> None:
        """Rename a damaged checkpoint, so that the one before it is used. Another rank may have done so."""
        checkpoint_files.set_aside(self, reason)


def published(target: Path) -> list[ShardedCheckpoint]:
    """Return all checkpoints of this name, the oldest first. Their content is not verified."""
    pattern = rf"([0-9a-f]{{64}}){re.escape(_PUBLISHED)}"
    return checkpoint_files.list_published(target, ShardedCheckpoint, pattern)


def latest(target: Path, step: int | None = None) -> tuple[ShardedCheckpoint, bytes] | None:
    """Return the newest checkpoint, or the one of exactly `step`, with its manifest; None if there is none.

    Only the manifest is verified. The files of the ranks are verified while they are read.
    """
    for found in reversed(published(target)):
        if step is None or found.step == step:
            if (manifest := found.read_manifest()) is not None:
                return found, manifest
            found.set_aside(f"has a {MANIFEST} that does not match its digest")
    return None


def latest_complete(target: Path) -> ShardedCheckpoint | None:
    """Return the newest checkpoint whose files exist and have the sizes that they had; None if there is none.

    The content of the files is not verified.
    """
    while (found := latest(target)) is not None:
        saved, manifest = found
        sizes = {saved.path / n: f["size"] for n, f in json.loads(manifest)["files"].items()}
        if all(path.is_file() and path.stat().st_size == size for path, size in sizes.items()):
            return saved
        saved.set_aside("has a file that is missing or of another size")
    return None


def flush_files(directory: Path) -> None:
    """Flush the files to disk that this node has written in a directory, and their names."""
    for path in [*_files(directory), *(p for p in directory.rglob("*") if p.is_dir()), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def unfinished_path(target: Path, step: int) -> Path:
    """Return the directory in which the ranks write. Every rank knows it without a message."""
    return target.with_name(f".{target.name}.{step:012d}{_WRITING}")


class UnfinishedCheckpoint:
    """The directory that the ranks fill. Only the coordinator has this object, and it holds the lock."""

    def __init__(self, target: Path, step: int) -> None:
        """Create the directory, after the removal of those that killed jobs have left.

        Raises FileExistsError if another process is saving this step.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(target.parent, target.name)
        self.path = unfinished_path(target, step)
        self._target, self._step = target, step
        self._manifest = _create_locked(self.path)
        weakref.finalize(self, self._manifest.close)  # unlocks it if the save fails

    def publish(self, manifest: bytes, keep: int) -> ShardedCheckpoint:
        """Write the manifest, publish the directory, and delete all but the `keep` newest checkpoints.

        The files of the ranks must be on disk. In this order, a kill leaves one complete checkpoint at least.
        """
        _write_to_disk(self._manifest, manifest)
        sync_directory(self.path)
        digest = hashlib.sha256(manifest).hexdigest()
        name = f"{self._target.name}.{self._step:012d}.{digest}{_PUBLISHED}"
        saved = ShardedCheckpoint(self._step, self._target.with_name(name), digest)
        if saved.path.exists():  # a process that was killed afterwards has published the same bytes
            self.discard()
        else:
            self.path.rename(saved.path)
        self._manifest.close()
        checkpoint_files.abandon_later(published(self._target), self._step)
        sync_directory(self._target.parent)
        _prune(self._target, saved, keep)
        return saved

    def publish_files(self, keep: int) -> ShardedCheckpoint:
        """Publish the files that a library has written, with a manifest of their sizes, like publish().

        Each rank must have called flush_files().
        """
        files = {
            str(p.relative_to(self.path)): {"size": p.stat().st_size} for p in _files(self.path)
        }
        return self.publish(json.dumps({"files": files}).encode(), keep)

    def discard(self) -> None:
        """Delete the directory."""
        _delete(self.path)
        self._manifest.close()


def remove_unfinished(parent: Path, name: str = "") -> int:
    """Remove directories in `parent` whose coordinators were killed, of one checkpoint name or of all.

    Return the number of directories. Those of running coordinators stay, because these have locked the manifests.
    """
    # The exact name, because the lock does not keep this process from removing what it is writing under another one.
    any_name = ".*" if not name else re.escape(name)
    form = re.compile(rf"\.{any_name}\.\d+(\.[0-9a-f]{{64}})?{re.escape(_WRITING)}")
    removed = 0
    for path in sorted(parent.glob(f".*{_WRITING}")):
        if form.fullmatch(path.name):
            with contextlib.suppress(OSError):  # it is locked, or the file system has no locks
                _remove_unlocked(path)
                removed += 1
    return removed


def _create_locked(path: Path) -> FileIO:
    """Create the directory and its manifest, and lock it. If another process gets the lock later, the writer has ended.

    The lock belongs to the process. So a save after a failed one removes its files, and children do not inherit it.
    """
    if path.exists():
        try:
            _remove_unlocked(path)
        except (BlockingIOError, PermissionError) as error:
            raise FileExistsError(f"{path}: another process is saving this step") from error
        except OSError:  # no locks, so nobody can tell whether the writer lives
            _delete(path)
    while True:
        path.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            file = (path / MANIFEST).open("x+b", buffering=0)
            with contextlib.suppress(OSError):
                fcntl.lockf(file, fcntl.LOCK_EX)
            if (path / MANIFEST).exists():
                return file
            file.close()  # another process removed it before it was locked


def _remove_unlocked(path: Path) -> None:
    """Delete a directory. Raises OSError if its manifest is locked."""
    try:
        with (path / MANIFEST).open("r+b", buffering=0) as manifest:
            fcntl.lockf(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete(path)
    except (
        FileNotFoundError
    ):  # its writer was killed before it created the manifest, or while it removed the directory
        path.rmdir()


def _delete(path: Path) -> None:
    """Delete a directory, its manifest last: a directory without one is empty, also after a kill."""
    for entry in sorted(path.iterdir(), key=lambda each: each.name == MANIFEST):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    path.rmdir()


def _files(directory: Path) -> list[Path]:
    manifest = directory / MANIFEST
    return sorted(path for path in directory.rglob("*") if path.is_file() and path != manifest)


def _prune(target: Path, saved: ShardedCheckpoint, keep: int) -> None:
    """Delete other checkpoints of the same step, and all but the newest `keep` checkpoints."""
    for old in checkpoint_files.superseded(published(target), saved, keep):
        # Renamed first, because a checkpoint of which half is deleted must not be found.
        unpublished = old.path.with_name(f".{old.path.name.removesuffix(_PUBLISHED)}{_WRITING}")
        old.path.rename(unpublished)
        _delete(unpublished)


def _write_to_disk(file: FileIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
    os.fsync(file.fileno())
