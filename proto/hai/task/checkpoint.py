"""Checkpoints that are safe if the program is killed at any time: a checkpoint is complete, or it does not exist.

    checkpoint.save("model", lambda file: numpy.savez(file, **arrays), step=step)
    found = checkpoint.latest("model")
    if found:
        with found.path.open("rb") as file: ...

A checkpoint is one file, `NAME.STEP.DIGEST`, in HAI_CHECKPOINT_DIR (kept over all runs of a task; `./checkpoints`
outside the cluster). The modules checkpoint_files and staging say how it becomes complete.

In a task, a checkpoint is at first *staged*: it is copied into memory of the node, and the program goes on or leaves.
Then the platform writes it to disk, and only then it is *durable*. `latest` waits for that; `read_latest` reads the
memory. A checkpoint that does not fit into the memory is written directly, and so is one with durable=True.

Only one rank should save under a name; any number of ranks may read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, cast

from hai.task import checkpoint_files, staging, staging_buffers, staging_notes
from hai.task.block_file import BlockFile, digest_of
from hai.task.channel import log_line
from hai.task.checkpoint_files import Checkpoint as Checkpoint
from hai.task.checkpoint_files import directory as directory
from hai.task.checkpoint_files import remove_unfinished as remove_unfinished
from hai.task.current_channel import SaveProgress, report_loaded, report_lost, report_saved
from hai.task.sharded_checkpoint import ShardedCheckpoint


def save(
    name: str | Path,
    write: Callable[[BinaryIO], object],
    *,
    step: int | None = None,
    keep: int = 2,
    report: bool = True,
    size: int = 0,
    durable: bool = False,
) -> Checkpoint:
    """Call `write(file)` to write a checkpoint, publish it, and delete all but the `keep` newest checkpoints.

    `name` is a name in directory(), or a path. Without `step`, the step is that of the newest checkpoint plus 1. With
    `size`, the bytes of the checkpoint if they are known, its memory is allocated at once.

    Return the checkpoint. While it is only staged, its path has no step and digest; with durable=True, it is on disk.
    If `write` fails, the earlier checkpoints are not changed. The checkpoint and the seconds that it took are reported
    to the platform. With report=False, the program must report them after all parts of its state are saved.
    """
    started = time.monotonic()
    target = checkpoint_files.target_of(name)
    step = _next_step(target) if step is None else step
    with ExitStack() as stack:
        progress = stack.enter_context(SaveProgress(size))
        direct = _DirectFile(target, stack, progress)
        file = None if durable else _staged_file(size, direct, progress)
        if file is not None:
            stack.callback(file.close)
        write(cast("BinaryIO", file or direct.open()))
        if file is not None and direct.blocks is None and not _stage(file, target, step, keep):
            file.spill()
        saved = (
            Checkpoint(step, target, "") if direct.blocks is None else direct.publish(step, keep)
        )
    if report:
        report_saved(time.monotonic() - started, saved.step)
    return saved


def save_path(
    name: str | Path,
    write: Callable[[Path], object],
    *,
    step: int | None = None,
    keep: int = 2,
    report: bool = True,
    size: int = 0,
) -> Checkpoint:
    """Save like save(), but call `write(path)`, for libraries that open the file themselves.

    The checkpoint is staged only if there is memory for `size` bytes, which should not be less than its real size. If
    the memory fills up all the same, `write` is called again, with the path of a file on disk.
    """
    started = time.monotonic()
    target = checkpoint_files.target_of(name)
    step = _next_step(target) if step is None else step
    saved = Checkpoint(step, target, "")
    if not _stage_path(target, write, size, step, keep):
        _write_out_staged(target)
        with checkpoint_files.create(target) as new:
            write(new.path)
            with new.path.open("rb", buffering=0) as written:
                saved = new.publish(digest_of(written), step, keep)
    if report:
        report_saved(time.monotonic() - started, saved.step)
    return saved


def save_bytes(
    name: str | Path,
    data: bytes,
    *,
    step: int | None = None,
    keep: int = 2,
    report: bool = True,
    durable: bool = False,
) -> Checkpoint:
    """Save like save(), for content that is in memory."""
    return save(
        name,
        lambda file: file.write(data),
        step=step,
        keep=keep,
        report=report,
        size=len(data),
        durable=durable,
    )


def reserve(size: int, prepare: staging_buffers.Prepare | None = None) -> None:
    """Allocate memory for staged checkpoints of `size` bytes in a thread, so that the first save need not.

    `prepare` gets the memory, for example to pin it, and returns a function that undoes it.
    """
    if (directory := staging.directory()) is not None:
        buffers = staging_buffers.buffers(directory)

        def work() -> None:
            with suppress(OSError):  # the save will tell
                buffers.reserve(size, prepare)

        threading.Thread(target=work, name="checkpoint-memory", daemon=True).start()


def latest(name: str | Path = "checkpoint", *, step: int | None = None) -> Checkpoint | None:
    """Return the newest intact checkpoint, or the one of exactly `step`; None if there is none.

    Staged checkpoints of this name are first written to disk. Raises OSError if that fails.
    """
    started = time.monotonic()
    target = checkpoint_files.target_of(name)
    staging_notes.wait_for_other_machines(target)
    _write_out_staged(target)
    found = checkpoint_files.newest(target, step, lambda one: True if one.intact() else None)
    report_losses(target, checkpoint_files.published(target), found and found[0].step)
    if found is not None:
        report_loaded(time.monotonic() - started)
    return found and found[0]


def read_latest(
    name: str | Path = "checkpoint", *, step: int | None = None
) -> tuple[Checkpoint, memoryview] | None:
    """Return the newest checkpoint, or the one of exactly `step`, with its content in writable memory.

    It is read from the memory of the node if it is staged there. Otherwise, the file is read only once, and verified.
    The seconds that this took are reported to the platform.
    """
    started = time.monotonic()
    found = _read_latest(checkpoint_files.target_of(name), step)
    if found is not None:
        report_loaded(time.monotonic() - started)
    return found


def _read_latest(target: Path, step: int | None) -> tuple[Checkpoint, memoryview] | None:
    staging_notes.wait_for_other_machines(target)
    for staged in reversed(staging.pending(staging.directory(), target)):
        if not staged.manifest and (step is None or staged.step == step):
            try:
                return Checkpoint(staged.step, target, ""), staged.read()
            except (FileNotFoundError, EOFError):
                break  # it has become durable meanwhile
    found = checkpoint_files.newest(target, step, Checkpoint.read_intact)
    report_losses(target, checkpoint_files.published(target), found and found[0].step)
    return found


class _DirectFile:
    """The file on disk for a checkpoint that is not staged. It is created when it is needed."""

    def __init__(self, target: Path, stack: ExitStack, progress: SaveProgress) -> None:
        self.blocks: BlockFile | None = None
        self.target, self._stack, self._progress = target, stack, progress
        self._new: checkpoint_files.NewCheckpoint | None = None

    def open(self) -> BlockFile:
        """Create the file. `stack` closes it, and removes it if it was not published."""
        # Staged checkpoints come first, because the newest checkpoint is the one that is published last.
        _write_out_staged(self.target)
        self._new = self._stack.enter_context(checkpoint_files.create(self.target))
        self.blocks = self._stack.enter_context(BlockFile(self._new.file, self._progress.add))
        return self.blocks

    def publish(self, step: int, keep: int) -> Checkpoint:
        """Make the file the newest checkpoint."""
        assert self._new is not None
        assert self.blocks is not None
        return self._new.publish(self.blocks.finish(), step, keep)


def _staged_file(
    size: int, direct: _DirectFile, progress: SaveProgress
) -> staging_buffers.StagedFile | None:
    """Return a file in memory; None if there is no memory for it. What exceeds the memory is written to `direct`."""
    directory = staging.directory_for(direct.target)
    if directory is None:
        return None
    try:
        return staging_buffers.buffers(directory).create_file(size, direct.open, progress.add)
    except OSError as error:
        _log_no_memory(error)
        return None


def _stage(file: staging_buffers.StagedFile, target: Path, step: int, keep: int) -> bool:
    """Publish a checkpoint in memory. Return False if that fails, for example because its directory was removed."""
    try:
        file.buffer.stage(target, file.size, step, keep)
    except OSError as error:
        _log_no_memory(error)
        return False
    return True


def _stage_path(
    target: Path, write: Callable[[Path], object], size: int, step: int, keep: int
) -> bool:
    """Stage a file that a library writes to memory. Return False if there is no memory for it."""
    directory = staging.directory_for(target)
    if directory is None or not size:
        return False
    buffers = staging_buffers.buffers(directory)
    try:
        buffer = buffers.take(size, new=True)
    except OSError as error:
        _log_no_memory(error)
        return False
    staged = False
    try:
        write(buffer.path)
        buffer.reopen()
        buffer.stage(target, buffer.size, step, keep)
        staged = True
    except Exception as error:  # libraries raise different errors for a full disk
        if staging_buffers.has_room(directory, error):
            raise
        _log_no_memory(error)
    finally:
        if not staged:
            buffers.discard(buffer)
    return staged


def _log_no_memory(error: Exception) -> None:
    log_line(f"a checkpoint is written directly, while the program waits: {error}")


def _write_out_staged(target: Path) -> None:
    staging.write_out_all(staging.directory(), target)


def report_losses(
    target: Path, durable: Sequence[Checkpoint | ShardedCheckpoint], step: int | None
) -> None:
    """Write to the log, and report, which checkpoints were lost with the memory of a node.

    `durable` are the published checkpoints; the task continues from the one of `step`, or from its beginning.
    """
    for lost in staging_notes.find_lost(target, durable):
        goes_on = "from the beginning" if step is None else f"from step {step}"
        log_line(
            f"checkpoint {target.name} of step {lost.step} was lost with the memory of node {lost.node or '?'}"
            f" before it was on disk; the task goes on {goes_on}"
        )
        report_lost(lost.step, lost.node, -1 if step is None else step)


def _next_step(target: Path) -> int:
    staged = [s.step for s in staging.pending(staging.directory(), target)]
    return max([*staged, *(c.step for c in checkpoint_files.published(target))], default=-1) + 1
