"""Checkpoints in the memory of the node. A program stops only while they are copied there; they are written later.

A staging directory is a directory in memory (tmpfs) that belongs to one task on one node: HAI_STAGING_DIR. It has:

    NUMBER.data   a buffer. The program that fills it has locked it, and uses it again for later checkpoints.
    NUMBER.dir    a directory that a library fills with files, which then become buffers.
    NUMBER.json   a staged checkpoint: its target, its step, and its files with their buffers. It is published by a
                  rename when the buffers are full, and removed when the checkpoint is durable.

A checkpoint of one rank has one file. A sharded checkpoint (sharded_checkpoint.py) has the files of all ranks, which
are on the same node, and a manifest, to which digests are added when it is written.

While a checkpoint is staged, a small file beside its target, the note, names the .json file and the machine. So every
process of the machine finds a staged checkpoint of a target, also one of another task. A process of another machine
waits until the checkpoint is written. If the memory is lost, the next run finds a note without a checkpoint, and says
what was lost. See staging_notes.py.

Any process may write a staged checkpoint to its target (`write_out`), so none is lost if the program, the agent or the
writer is killed: the checkpoint writer of the node, or the next run of the task. The lock of the .json file makes all
but one of them wait. Staged checkpoints are written in the order of their numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from hai.task import block_file, checkpoint_files, env, staging_notes
from hai.task.block_file import BlockFile, read_all
from hai.task.channel import log_line
from hai.task.current_channel import SaveProgress
from hai.task.sharded_checkpoint import UnfinishedCheckpoint

STAGED, DATA, MARK, _PART = ".json", ".data", ".shards", ".part"
DIRECTORY = ".dir"  # see staged_directory.py
_PART_SECONDS = 60.0
_WAIT_SECONDS = 0.05
_COPY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class FileInMemory:
    """A file of a staged checkpoint: the first `size` bytes of the buffer `data`. An only file has no `name`."""

    data: Path
    size: int
    name: str = ""

    def map(self) -> memoryview:
        """Return the content. All pages are mapped at once: a fault for each would take longer than to hash them."""
        if not self.size:
            return memoryview(b"")
        with self.data.open("rb", buffering=0) as file:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            return memoryview(mmap.mmap(file.fileno(), self.size, flags, mmap.PROT_READ))


@dataclass(frozen=True, slots=True)
class StagedCheckpoint:
    """A complete checkpoint in memory. `path` is the .json file, and `target` the path without step and digest."""

    path: Path
    target: Path
    step: int
    keep: int
    files: tuple[FileInMemory, ...]
    manifest: str = ""  # of a sharded checkpoint, without digests
    run: int = 0  # number of the run that saved it; 0 if unknown

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    def read(self) -> memoryview:
        """Return the content of the only file in writable memory.

        Raises FileNotFoundError if it has become durable meanwhile. The buffer of a program that has ended is mapped,
        not copied, because nobody fills it again.
        """
        data, size = self.files[0].data, self.files[0].size
        with data.open("rb", buffering=0) as file:
            if size and _is_abandoned(file):
                return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))
            content = memoryview(mmap.mmap(-1, max(size, 1)))[:size]
            for start in range(0, size, _COPY_BYTES):
                read_all(file.fileno(), content[start : start + _COPY_BYTES], start)
        os.stat(self.path)  # until it is removed, nobody fills the buffer again
        return content


class _GivenUp(Exception):
    """A run on another machine has continued without the checkpoint."""


def directory() -> Path | None:
    """Return the staging directory of this task; None if checkpoints are written directly."""
    text = os.environ.get(env.STAGING_DIR)
    return Path(text) if text and os.path.isdir(text) else None


def directory_for(target: Path) -> Path | None:
    """Return the directory for a checkpoint of a target; None if it is written directly.

    A pod that writes it sees only the directories in HAI_STAGING_TARGETS.
    """
    roots = os.environ.get(env.STAGING_TARGETS)
    path = target.resolve()
    if roots is not None and not any(
        path.is_relative_to(root) for root in roots.split(":") if root
    ):
        return None
    return directory()


def pending(staging: Path | None, target: Path | None = None) -> list[StagedCheckpoint]:
    """Return the staged checkpoints in a directory, or those of one target in any directory, the oldest first."""
    paths = set(staging.glob(f"*{STAGED}")) if staging is not None else set()
    if target is not None:
        paths |= {note.path for note in staging_notes.read(target) if note.is_here()}
    found = (_read(path) for path in sorted(paths, key=lambda path: path.name))
    at = None if target is None else target.absolute()
    return [staged for staged in found if staged is not None and at in (None, staged.target)]


def _read(path: Path) -> StagedCheckpoint | None:
    """Read a .json file. Return None if the checkpoint has become durable, or if the file is none of this release."""
    try:
        facts = json.loads(path.read_bytes())
        files = tuple(
            FileInMemory(path.with_name(n), size, file) for n, size, file in facts["files"]
        )
        target, step, keep = Path(facts["target"]), int(facts["step"]), int(facts["keep"])
        run = int(facts.get("run", 0))
        return StagedCheckpoint(path, target, step, keep, files, facts["manifest"], run)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        log_line(f"{path} is no staged checkpoint of this release, and is set aside: {error!r}")
        path.rename(path.with_suffix(".bad"))
        return None


def used_buffers(staging: Path) -> set[Path]:
    """Return the buffers of all staged checkpoints."""
    return {file.data for staged in pending(staging) for file in staged.files}


def publish(
    staging: Path,
    target: Path,
    files: Iterable[FileInMemory],
    step: int,
    keep: int,
    manifest: str = "",
) -> None:
    """Publish full buffers as a staged checkpoint, then write its note.

    In this order, a kill leaves no note of a checkpoint that was never complete. Until the note exists, the lock keeps
    other processes from writing the checkpoint out, because the note would remain then.
    """
    path = staging.absolute() / (_new_number(staging) + STAGED)
    facts = {
        "target": str(target.absolute()),
        "step": step,
        "keep": keep,
        "files": [(file.data.name, file.size, file.name) for file in files],
        "manifest": manifest,
        "run": int(os.environ.get(env.RUN_NUMBER) or 0),
    }
    part = path.with_suffix(_PART)
    with part.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(facts))
        file.flush()
        part.rename(path)
        with contextlib.suppress(OSError):  # a full disk does not matter yet
            staging_notes.write(target, step, path)


def write_out(staged: StagedCheckpoint) -> bool:
    """Write a staged checkpoint to its target. Return False if another process has written it.

    It is dropped, and False returned, if a run on another machine has continued without it.

    Threads write and hash the memory directly. If the process is killed, a later call writes the checkpoint again.
    Raises OSError if it cannot be written; it stays staged then.
    """
    try:
        lock = staged.path.open("rb")
    except FileNotFoundError:
        return False
    with lock:
        _wait_for_lock(lock, staged)
        if not staged.path.exists():
            return False
        if not all(file.data.exists() for file in staged.files):
            staged.path.unlink()  # the memory was removed; the note stays, so that the loss is told
            return False
        is_written = _write(staged)
        staged.path.unlink()
        staging_notes.remove(staged.target, staged.path)
        for file in staged.files:
            _remove_unused_buffer(file.data)
        return is_written


def write_out_all(staging: Path | None, target: Path | None = None) -> int:
    """Write the staged checkpoints of a directory or a target, and wait for those that another process writes.

    Return how many this process has written.
    """
    return sum(write_out(staged) for staged in pending(staging, target))


def remove_unused(staging: Path) -> None:
    """Remove the buffers of programs that have ended, except those of staged checkpoints."""
    for path in staging.glob(f"*{DATA}"):
        _remove_unused_buffer(path)
    for path in staging.glob(f"*{DIRECTORY}"):
        _remove_unlocked_directory(path)
    for suffix in (_PART, MARK):  # left by a program that was killed while it saved
        for path in staging.glob(f"*{suffix}"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _PART_SECONDS:
                    path.unlink()


def _wait_for_lock(lock: io.BufferedReader, staged: StagedCheckpoint) -> None:
    """Lock a .json file. While another process writes the checkpoint, publish how much it has written."""
    progress, waited = SaveProgress(staged.size), False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            progress.set(checkpoint_files.unfinished_bytes(staged.target))
            time.sleep(_WAIT_SECONDS)
        else:
            if waited:
                progress.end()
            return


def _new_number(staging: Path) -> str:
    """Return a name that sorts after those of all staged checkpoints, even if the clock was set back."""
    names = [int(path.name[:20]) for path in staging.glob(f"*{STAGED}")]
    return f"{max([time.time_ns(), *(name + 1 for name in names)]):020d}-{os.getpid()}"


def _write(staged: StagedCheckpoint) -> bool:
    """Write a locked checkpoint, unless a run on another machine has continued without it."""
    progress = SaveProgress(staged.size)
    try:
        _check_awaited(staged)
        (_write_shards if staged.manifest else _write_file)(staged, progress.add)
    except _GivenUp:
        log_line(
            f"{staged.target} of step {staged.step} is dropped: a run on another node has continued without it"
        )
        return False
    finally:
        progress.end()
    return True


def _check_awaited(staged: StagedCheckpoint) -> None:
    """Raise _GivenUp if nobody waits for a checkpoint any more. Called before it is published, too."""
    if staging_notes.is_given_up(staged.target, staged.path):
        raise _GivenUp


def _write_file(staged: StagedCheckpoint, on_stored: Callable[[int], None]) -> None:
    with checkpoint_files.create(staged.target) as new, BlockFile(new.file, on_stored) as blocks:
        cast("BinaryIO", blocks).write(staged.files[0].map())
        digest = blocks.finish()
        _check_awaited(staged)
        new.publish(digest, staged.step, staged.keep)


def _write_shards(staged: StagedCheckpoint, on_stored: Callable[[int], None]) -> None:
    """Write the files of all ranks, add their digests to the manifest, and publish the directory."""
    manifest = json.loads(staged.manifest)
    new = UnfinishedCheckpoint(staged.target, staged.step)
    try:
        for part in staged.files:
            path = new.path / part.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x+b", buffering=0) as file, BlockFile(file, on_stored) as blocks:
                cast("BinaryIO", blocks).write(part.map())
                digests = [digest.hex() for digest in blocks.finish_blocks()]
                os.fsync(file.fileno())
            facts = {"block_bytes": block_file.BLOCK_BYTES, "digests": digests}
            manifest["files"][part.name].update(facts)
        for nested in (path for path in new.path.rglob("*") if path.is_dir()):
            checkpoint_files.sync_directory(nested)
        _check_awaited(staged)
        new.publish(json.dumps(manifest, separators=(",", ":")).encode(), staged.keep)
    except Exception:
        with contextlib.suppress(OSError):
            new.discard()
        raise


def _remove_unused_buffer(path: Path) -> None:
    """Remove a buffer unless it is that of a staged checkpoint, or the program that has locked it still runs."""
    with contextlib.suppress(OSError), path.open("rb") as data:
        fcntl.flock(data, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path not in used_buffers(
            path.parent
        ):  # asked with the lock: nobody can publish it any more
            path.unlink()


def _remove_unlocked_directory(path: Path) -> None:
    """Remove a directory unless the program that fills it still runs."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
        finally:
            os.close(handle)


def _is_abandoned(data: io.FileIO) -> bool:
    """Return whether the program that has locked this buffer has ended."""
    try:
        fcntl.flock(data, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(data, fcntl.LOCK_UN)  # a mapping of the file would keep the lock
    return True
