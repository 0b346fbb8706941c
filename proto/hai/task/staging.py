"""Checkpoints in the memory of the node. A program stops only while they are copied there; they are written later.

A staging directory is a directory in memory (tmpfs) that belongs to one task on one node: HAI_STAGING_DIR. It has:

    NUMBER.data   a buffer. The program that fills it has locked it, and uses it again for later checkpoints.
    NUMBER.json   a staged checkpoint: its target, its step, and its files with their buffers. It is published by a
                  rename when the buffers are full, and removed when the checkpoint is durable.

A checkpoint of one rank has one file. A sharded checkpoint (sharded_checkpoint.py) has the files of all ranks, which
are on the same node, and a manifest, to which digests are added when it is written.

While a checkpoint is staged, a small file beside its target says so (`.NAME.STEP.staged`). If the memory is lost, the
next run finds that file without a checkpoint, and says what was lost (`find_lost`).

Any process may write a staged checkpoint to its target (`write_out`), so none is lost if the program, the agent or the
writer is killed: the checkpoint writer of the node, or the next run of the task. The lock of the .json file makes all
but one of them wait. Staged checkpoints are written in the order of their numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import io
import json
import mmap
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from hai.task import block_file, checkpoint_files, env
from hai.task.block_file import BlockFile, read_all
from hai.task.checkpoint_files import Checkpoint
from hai.task.sharded_checkpoint import ShardedCheckpoint, UnfinishedCheckpoint

STAGED, DATA, _PART = ".json", ".data", ".part"
_NOTE = ".staged"
_PART_SECONDS = 60.0
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


@dataclass(frozen=True, slots=True)
class LostCheckpoint:
    """A checkpoint that was only in the memory of a node."""

    step: int
    node: str


def directory() -> Path | None:
    """Return the staging directory of this task; None if checkpoints are written directly."""
    text = os.environ.get(env.STAGING_DIR)
    return Path(text) if text and os.path.isdir(text) else None


def pending(staging: Path, target: Path | None = None) -> list[StagedCheckpoint]:
    """Return the staged checkpoints of all targets or of one, the oldest first."""
    found = []
    for path in sorted(staging.glob(f"*{STAGED}")):
        with contextlib.suppress(FileNotFoundError):  # it has become durable
            facts = json.loads(path.read_bytes())
            if target is None or facts["target"] == str(target.absolute()):
                files = tuple(FileInMemory(staging / data, *rest) for data, *rest in facts["files"])
                at, step, keep = Path(facts["target"]), facts["step"], facts["keep"]
                found.append(StagedCheckpoint(path, at, step, keep, files, facts["manifest"]))
    return found


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
    """Publish full buffers as a staged checkpoint."""
    path = staging / (_new_number(staging) + STAGED)
    facts = {
        "target": str(target.absolute()),
        "step": step,
        "keep": keep,
        "files": [(file.data.name, file.size, file.name) for file in files],
        "manifest": manifest,
    }
    note = _note_of(target, step)
    with contextlib.suppress(OSError):  # a full disk does not matter yet
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(os.environ.get(env.NODE_NAME, ""))
    part = path.with_suffix(_PART)
    part.write_text(json.dumps(facts))
    part.rename(path)


def write_out(staged: StagedCheckpoint) -> bool:
    """Write a staged checkpoint to its target. Return False if another process has written it.

    Threads write and hash the memory directly. If the process is killed, a later call writes the checkpoint again.
    Raises OSError if it cannot be written; it stays staged then.
    """
    with contextlib.suppress(FileNotFoundError), staged.path.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not staged.path.exists():
            return False
        if staged.manifest:
            _write_shards(staged)
        else:
            with checkpoint_files.create(staged.target) as new, BlockFile(new.file) as blocks:
                cast("BinaryIO", blocks).write(staged.files[0].map())
                new.publish(blocks.finish(), staged.step, staged.keep)
        staged.path.unlink()
        _note_of(staged.target, staged.step).unlink(missing_ok=True)
        for file in staged.files:
            _remove_unused_buffer(file.data)
        return True
    return False


def write_out_all(staging: Path, target: Path | None = None) -> int:
    """Write the staged checkpoints of all targets or of one, and wait for those that another process writes.

    Return how many this process has written.
    """
    return sum(write_out(staged) for staged in pending(staging, target))


def find_lost(
    staging: Path | None, target: Path, durable: Sequence[Checkpoint | ShardedCheckpoint]
) -> list[LostCheckpoint]:
    """Return the checkpoints of a target that were staged in a memory that is lost. Each is returned only once.

    `durable` are the published checkpoints.

    A checkpoint that was published later does not make them known as durable, but nobody misses them then.
    """
    notes = sorted(target.parent.glob(f".{glob.escape(target.name)}.{'[0-9]' * 12}{_NOTE}"))
    if not notes:
        return []
    staged = {found.step for found in pending(staging, target)} if staging else set()
    newest = max((found.path.stat().st_mtime for found in durable), default=0.0)
    steps = {found.step for found in durable}
    lost = []
    for note in notes:
        step = int(note.name.split(".")[-2])
        with contextlib.suppress(FileNotFoundError):  # it has become durable
            if step not in staged:
                if step not in steps and note.stat().st_mtime > newest:
                    lost.append(LostCheckpoint(step, note.read_text()))
                note.unlink()
    return lost


def remove_unused(staging: Path) -> None:
    """Remove the buffers of programs that have ended, except those of staged checkpoints."""
    for path in staging.glob(f"*{DATA}"):
        _remove_unused_buffer(path)
    for part in staging.glob(f"*{_PART}"):  # left by a program that was killed while it published
        with contextlib.suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > _PART_SECONDS:
                part.unlink()


def _note_of(target: Path, step: int) -> Path:
    return target.with_name(f".{target.name}.{step:012d}{_NOTE}")


def _new_number(staging: Path) -> str:
    """Return a name that sorts after those of all staged checkpoints, even if the clock was set back."""
    names = [int(path.name[:20]) for path in staging.glob(f"*{STAGED}")]
    return f"{max([time.time_ns(), *(name + 1 for name in names)]):020d}-{os.getpid()}"


def _write_shards(staged: StagedCheckpoint) -> None:
    """Write the files of all ranks, add their digests to the manifest, and publish the directory."""
    manifest = json.loads(staged.manifest)
    new = UnfinishedCheckpoint(staged.target, staged.step)
    try:
        for part in staged.files:
            with (new.path / part.name).open("x+b", buffering=0) as file, BlockFile(file) as blocks:
                cast("BinaryIO", blocks).write(part.map())
                digests = [digest.hex() for digest in blocks.finish_blocks()]
                os.fsync(file.fileno())
            facts = {"block_bytes": block_file.BLOCK_BYTES, "digests": digests}
            manifest["files"][part.name].update(facts)
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


def _is_abandoned(data: io.FileIO) -> bool:
    """Return whether the program that has locked this buffer has ended."""
    try:
        fcntl.flock(data, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(data, fcntl.LOCK_UN)  # a mapping of the file would keep the lock
    return True
