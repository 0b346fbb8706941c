"""Checkpoints that are safe if the program is killed at any time: a checkpoint is complete, or it does not exist.

    checkpoint.save("model", lambda file: numpy.savez(file, **arrays), step=step)
    found = checkpoint.latest("model")
    if found:
        with found.path.open("rb") as file: ...

A checkpoint is one file, `NAME.STEP.DIGEST`, in HAI_CHECKPOINT_DIR (kept over all runs of a task; `./checkpoints`
outside the cluster). The file is written under another name, flushed to disk and renamed. So the rename publishes the
data and the digest together, and the file has the plain format that torch.load or numpy.load expects.

A file that does not match its digest is renamed to `….damaged`, and the previous checkpoint is used. The newest
checkpoint is always the one saved last: if a program goes back to an earlier step and saves, checkpoints of later steps
are renamed to `….abandoned`. Only one rank should save under a name; any number of ranks may read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from hai.task import env
from hai.task.block_file import DIGEST_PATTERN, BlockFile, digest_of, is_intact, read_intact
from hai.task.channel import log_line
from hai.task.current_channel import report_saved

_WRITING = ".writing"
_DAMAGED = ".damaged"
_ABANDONED = ".abandoned"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """A saved file, which contains the state before step `step`."""

    step: int
    path: Path
    digest: str

    def read_bytes(self) -> bytes:
        """Return the complete content, without verification."""
        return self.path.read_bytes()

    def read_intact(self) -> memoryview | None:
        """Return the complete content in writable memory; None if it is not what was saved. Threads read the blocks."""
        with self.path.open("rb", buffering=0) as file:
            return read_intact(file, self.digest)

    def intact(self) -> bool:
        """Return whether the content is what was saved."""
        with self.path.open("rb", buffering=0) as file:
            return is_intact(file, self.digest)


def directory() -> Path:
    """Return the directory of checkpoints that are named without a directory."""
    return Path(os.environ.get(env.CHECKPOINT_DIR) or "checkpoints")


def save(
    name: str | Path,
    write: Callable[[BinaryIO], object],
    *,
    step: int | None = None,
    keep: int = 2,
    report: bool = True,
) -> Checkpoint:
    """Call `write(file)` to write a checkpoint, publish it, and delete all but the `keep` newest checkpoints.

    `name` is a name in directory(), or a path. Without `step`, the step is that of the newest checkpoint plus 1.
    If `write` fails, the earlier checkpoints are not changed. The checkpoint and the seconds that it took are reported
    to the platform. With report=False, the program must report them after all parts of its state are saved.
    """

    def write_blocks(file: FileIO, path: Path) -> str:
        with BlockFile(file) as blocks:
            write(cast("BinaryIO", blocks))
            return blocks.finish()

    return _save(_target(name), write_blocks, step, keep, report)


def save_path(
    name: str | Path,
    write: Callable[[Path], object],
    *,
    step: int | None = None,
    keep: int = 2,
    report: bool = True,
) -> Checkpoint:
    """Save like save(), but call `write(path)`, for libraries that open the file themselves."""

    def write_at_path(file: FileIO, path: Path) -> str:
        write(path)
        with path.open("rb", buffering=0) as written:
            return digest_of(written)

    return _save(_target(name), write_at_path, step, keep, report)


def save_bytes(
    name: str | Path, data: bytes, *, step: int | None = None, keep: int = 2, report: bool = True
) -> Checkpoint:
    """Save like save(), for content that is in memory."""
    return save(name, lambda file: file.write(data), step=step, keep=keep, report=report)


def latest(name: str | Path = "checkpoint", *, step: int | None = None) -> Checkpoint | None:
    """Return the newest intact checkpoint, or the one of exactly `step`; None if there is none."""
    found = _newest(_target(name), step, lambda candidate: True if candidate.intact() else None)
    return found and found[0]


def read_latest(
    name: str | Path = "checkpoint", *, step: int | None = None
) -> tuple[Checkpoint, memoryview] | None:
    """Return the same checkpoint as latest(), with its content in writable memory. The file is read only once."""
    return _newest(_target(name), step, Checkpoint.read_intact)


def remove_unfinished(parent: Path, name: str = "") -> int:
    """Remove files in `parent` whose writers were killed while they saved, of one checkpoint name or of all.

    Return the number of files. Files of running writers stay, because these have locked them.
    """
    removed = 0
    start = f".{name}." if name else "."
    for path in sorted(parent.glob(f".*{_WRITING}")):
        if path.name.startswith(start):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed += 1
    return removed


def _newest(
    target: Path, step: int | None, verify: Callable[[Checkpoint], T | None]
) -> tuple[Checkpoint, T] | None:
    """Return the newest checkpoint for which `verify` returns a result, with that result.

    Checkpoints for which it returns None are renamed as damaged.
    """
    while True:
        candidates = [c for c in _published(target) if step is None or c.step == step]
        if not candidates:
            return None
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile, so list them again
            if (result := verify(candidates[-1])) is not None:
                return candidates[-1], result
            _set_aside(candidates[-1], _DAMAGED, "does not match its digest")


def _save(
    target: Path,
    write: Callable[[FileIO, Path], str],
    step: int | None,
    keep: int,
    report: bool,
) -> Checkpoint:
    """Write a new file, publish it as a checkpoint, delete old checkpoints, and report it."""
    started = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(target.parent, target.name)
    with _scratch(target) as (file, path):
        digest = write(file, path)
        saved = _publish(path, target, step, digest)
    _prune(target, saved, keep)
    if report:
        report_saved(time.monotonic() - started, saved.step)
    return saved


def _target(name: str | Path) -> Path:
    path = Path(name)
    return directory() / path if path.parent == Path() else path


def _published(target: Path) -> list[Checkpoint]:
    """Return all checkpoints of this name, the oldest first."""
    form = re.compile(re.escape(target.name) + rf"\.(\d+)\.({DIGEST_PATTERN})")
    try:
        entries = os.listdir(target.parent)
    except FileNotFoundError:
        return []
    matches = (form.fullmatch(entry) for entry in entries)
    return sorted(Checkpoint(int(m[1]), target.parent / m[0], m[2]) for m in matches if m)


def _publish(path: Path, target: Path, step: int | None, digest: str) -> Checkpoint:
    """Flush the file to disk and rename it, then set aside the checkpoints of later steps.

    In this order a kill at any time leaves one complete checkpoint at least.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    if step is None:
        step = max((c.step for c in _published(target)), default=-1) + 1
    final = target.with_name(f"{target.name}.{step:012d}.{digest}")
    path.rename(final)
    for later in (c for c in _published(target) if c.step > step):
        _set_aside(later, _ABANDONED, f"is of a later step than {step}, which is saved now")
    _sync_directory(target.parent)
    return Checkpoint(step, final, digest)


def _prune(target: Path, saved: Checkpoint, keep: int) -> None:
    """Delete other checkpoints of the same step, and all but the newest `keep` checkpoints."""
    others = [c for c in _published(target) if c.path != saved.path]
    same = [c for c in others if c.step == saved.step]  # an earlier checkpoint of this step
    older = [c for c in others if c.step < saved.step]
    for old in same + older[: max(len(older) - max(keep, 1) + 1, 0)]:
        old.path.unlink(missing_ok=True)


def _set_aside(found: Checkpoint, suffix: str, reason: str) -> None:
    log_line(f"{found.path} {reason}: it is set aside as {suffix}")
    found.path.rename(found.path.with_name(found.path.name + suffix))


@contextlib.contextmanager
def _scratch(target: Path) -> Iterator[tuple[FileIO, Path]]:
    """A new locked file beside `target`, removed unless it was renamed."""
    path = target.with_name(f".{target.name}.{os.getpid()}.{time.time_ns()}{_WRITING}")
    with _create_locked(path) as file:
        try:
            yield file, path
        except Exception as error:  # libraries raise different errors for a full disk
            error.add_note(f"no checkpoint {target} was saved; earlier ones are untouched")
            raise
        finally:
            path.unlink(missing_ok=True)


def _create_locked(path: Path) -> FileIO:
    """Create `path` and lock it. If another process gets the lock later, the writer has ended."""
    while True:
        file = path.open("x+b", buffering=0)
        # On a file system without locks, files of killed writers are not removed.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return file
        file.close()  # another process removed it between open and flock


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
