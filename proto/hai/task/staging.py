"""Checkpoints in the memory of the node. A program stops only while they are copied there; they are written later.

A staging directory is a directory in memory (tmpfs) that belongs to one task on one node: HAI_STAGING_DIR. It has:

    NUMBER.data   a buffer. The program that fills it has locked it, and uses it again for later checkpoints.
    NUMBER.json   a staged checkpoint: its target, step, size and buffer. It is published by a rename when the buffer
                  is full, and removed when the checkpoint is durable.

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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from hai.task import checkpoint_files, env
from hai.task.block_file import BlockFile, read_all
from hai.task.checkpoint_files import Checkpoint

STAGED, DATA, _PART = ".json", ".data", ".part"
_NOTE = ".staged"
_PART_SECONDS = 60.0
_COPY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class StagedCheckpoint:
    """A complete checkpoint in memory. `path` is the .json file, and `target` the path without step and digest."""

    path: Path
    data: Path
    target: Path
    step: int
    keep: int
    size: int

    def read(self) -> memoryview:
        """Return the content in writable memory. Raises FileNotFoundError if it has become durable meanwhile.

        The buffer of a program that has ended is mapped, not copied, because nobody fills it again.
        """
        with self.data.open("rb", buffering=0) as file:
            if self.size and _is_abandoned(file):
                return memoryview(mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_COPY))
            content = memoryview(mmap.mmap(-1, max(self.size, 1)))[: self.size]
            for start in range(0, self.size, _COPY_BYTES):
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
                data, at = staging / facts["data"], Path(facts["target"])
                staged = StagedCheckpoint(
                    path, data, at, facts["step"], facts["keep"], facts["size"]
                )
                found.append(staged)
    return found


def publish(target: Path, data: Path, size: int, step: int, keep: int) -> StagedCheckpoint:
    """Publish the first `size` bytes of a full buffer as a staged checkpoint."""
    path = data.with_name(_new_number(data.parent) + STAGED)
    staged = StagedCheckpoint(path, data, target.absolute(), step, keep, size)
    facts = {
        "target": str(staged.target),
        "step": step,
        "keep": keep,
        "size": size,
        "data": data.name,
    }
    note = _note_of(staged.target, step)
    with contextlib.suppress(OSError):  # a full disk does not matter yet
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(os.environ.get(env.NODE_NAME, ""))
    part = path.with_suffix(_PART)
    part.write_text(json.dumps(facts))
    part.rename(path)
    return staged


def write_out(staged: StagedCheckpoint) -> Checkpoint | None:
    """Write a staged checkpoint to its target. Return None if another process has written it.

    Threads write and hash the memory directly. If the process is killed, a later call writes the checkpoint again.
    Raises OSError if it cannot be written; it stays staged then.
    """
    with contextlib.suppress(FileNotFoundError), staged.path.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not staged.path.exists():
            return None
        with checkpoint_files.create(staged.target) as new:
            saved = new.publish(_copy_blocks(staged, new.file), staged.step, staged.keep)
        staged.path.unlink()
        _note_of(staged.target, staged.step).unlink(missing_ok=True)
        _remove_unused_buffer(staged.data)
        return saved
    return None


def write_out_all(staging: Path, target: Path | None = None) -> int:
    """Write the staged checkpoints of all targets or of one, and wait for those that another process writes.

    Return how many this process has written.
    """
    return sum(write_out(staged) is not None for staged in pending(staging, target))


def find_lost(staging: Path | None, target: Path) -> list[LostCheckpoint]:
    """Return the checkpoints of a target that were staged in a memory that is lost. Each is returned only once.

    A checkpoint that was published later does not make them known as durable, but nobody misses them then.
    """
    notes = sorted(target.parent.glob(f".{glob.escape(target.name)}.{'[0-9]' * 12}{_NOTE}"))
    if not notes:
        return []
    staged = {found.step for found in pending(staging, target)} if staging else set()
    durable = checkpoint_files.published(target)
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
    used = {staged.data for staged in pending(staging)}
    for path in staging.glob(f"*{DATA}"):
        if path not in used:
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


def _copy_blocks(staged: StagedCheckpoint, file: io.FileIO) -> str:
    """Write the content of a staged checkpoint to a file, and return its digest."""
    if not staged.size:
        content = memoryview(b"")
    else:
        with staged.data.open("rb", buffering=0) as data:
            # All pages are mapped at once: a fault for each page would take longer than the hashing.
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            mapped = mmap.mmap(data.fileno(), staged.size, flags, mmap.PROT_READ)
            content = memoryview(mapped)
    with BlockFile(file) as blocks:
        cast("BinaryIO", blocks).write(content)
        return blocks.finish()


def _remove_unused_buffer(path: Path) -> None:
    """Remove a buffer unless the program that has locked it still runs."""
    with contextlib.suppress(OSError), path.open("rb") as data:
        fcntl.flock(data, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _is_abandoned(data: io.FileIO) -> bool:
    """Return whether the program that has locked this buffer has ended."""
    try:
        fcntl.flock(data, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(data, fcntl.LOCK_UN)  # a mapping of the file would keep the lock
    return True
