"""Checkpoint files on durable storage: a checkpoint is complete, or it does not exist.

A checkpoint of the target DIRECTORY/NAME is one file, `NAME.STEP.DIGEST`. It is written under another name, flushed to
disk and renamed. So the rename publishes the data and the digest together, and the file has the plain format that
torch.load or numpy.load expects.

A file that does not match its digest is renamed to `….damaged`, and the previous checkpoint is used. The newest
checkpoint is always the one saved last: if a program goes back to an earlier step and saves, checkpoints of later steps
are renamed to `….abandoned`.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol, TypeVar

from hai.task import env
from hai.task.block_file import DIGEST_PATTERN, is_intact, read_intact
from hai.task.channel import log_line

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


def target_of(name: str | Path) -> Path:
    """Return the path of a name: itself, or below directory() if it is no path."""
    path = Path(name)
    return directory() / path if path.parent == Path() else path


class NewCheckpoint:
    """A file that is being written. Only `publish` makes it a checkpoint."""

    def __init__(self, target: Path, path: Path, file: FileIO) -> None:
        self.path = path
        self.file = file
        self._target = target

    def publish(self, digest: str, step: int, keep: int) -> Checkpoint:
        """Flush the file to disk, make it the newest checkpoint, and delete all but the `keep` newest checkpoints."""
        saved = _publish(self.path, self._target, step, digest)
        _prune(self._target, saved, keep)
        return saved


@contextlib.contextmanager
def create(target: Path) -> Iterator[NewCheckpoint]:
    """Create the file of a new checkpoint of `target`. It is removed at the end, unless it was published."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(target.parent, target.name)
    path = target.with_name(f".{target.name}.{os.getpid()}.{time.time_ns()}{_WRITING}")
    with create_locked(path) as file:
        try:
            yield NewCheckpoint(target, path, file)
        except Exception as error:  # libraries raise different errors for a full disk
            error.add_note(f"no checkpoint {target} was saved; earlier ones are untouched")
            raise
        finally:
            path.unlink(missing_ok=True)


def newest(
    target: Path, step: int | None, verify: Callable[[Checkpoint], T | None]
) -> tuple[Checkpoint, T] | None:
    """Return the newest checkpoint for which `verify` returns a result, with that result.

    Checkpoints for which it returns None are renamed as damaged.
    """
    while True:
        candidates = [c for c in published(target) if step is None or c.step == step]
        if not candidates:
            return None
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile, so list them again
            if (result := verify(candidates[-1])) is not None:
                return candidates[-1], result
            set_aside(candidates[-1], "does not match its digest")


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


def unfinished_bytes(target: Path) -> int:
    """Return the bytes of the files that are being written for a target; for a sharded checkpoint, of all ranks."""
    paths = list(target.parent.glob(f".{glob.escape(target.name)}.*{_WRITING}"))
    paths += [file for path in paths if path.is_dir() for file in path.iterdir()]
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def published(target: Path) -> list[Checkpoint]:
    """Return all checkpoints of this name, the oldest first."""
    return list_published(target, Checkpoint, f"({DIGEST_PATTERN})")


def _publish(path: Path, target: Path, step: int, digest: str) -> Checkpoint:
    """Flush the file to disk and rename it, then set aside the checkpoints of later steps.

    In this order a kill at any time leaves one complete checkpoint at least.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    final = target.with_name(f"{target.name}.{step:012d}.{digest}")
    path.rename(final)
    abandon_later(published(target), step)
    sync_directory(target.parent)
    return Checkpoint(step, final, digest)


def _prune(target: Path, saved: Checkpoint, keep: int) -> None:
    for old in superseded(published(target), saved, keep):
        old.path.unlink(missing_ok=True)


# For checkpoints that are files, and for those that are directories (sharded_checkpoint.py).


class Published(Protocol):
    """A published checkpoint: a file or a directory."""

    @property
    def step(self) -> int: ...

    @property
    def path(self) -> Path: ...


P = TypeVar("P", bound=Published)


def list_published(
    target: Path, make: Callable[[int, Path, str], P], digest_pattern: str
) -> list[P]:
    """Return the checkpoints NAME.STEP.DIGEST of a target, the oldest first, made of step, path and digest.

    `digest_pattern` matches the name after the step. Its first group is the digest.
    """
    form = re.compile(re.escape(target.name) + rf"\.(\d+)\.{digest_pattern}")
    try:
        entries = os.listdir(target.parent)
    except FileNotFoundError:
        return []
    matches = (form.fullmatch(entry) for entry in entries)
    found = (make(int(m[1]), target.parent / m[0], m[2]) for m in matches if m)
    return sorted(found, key=lambda each: (each.step, each.path))


def set_aside(found: Published, reason: str, suffix: str = _DAMAGED) -> None:
    """Rename a checkpoint that must not be used. Another process may have done so."""
    with contextlib.suppress(FileNotFoundError):
        found.path.rename(found.path.with_name(found.path.name + suffix))
        log_line(f"{found.path} {reason}: it is set aside as {suffix}")


def abandon_later(found: Sequence[Published], step: int) -> None:
    """Set aside the checkpoints of later steps than `step`, which was saved now."""
    for later in (each for each in found if each.step > step):
        set_aside(later, f"is of a later step than {step}, which is saved now", _ABANDONED)


def superseded(found: Sequence[P], saved: P, keep: int) -> list[P]:
    """Return other checkpoints of the step of `saved`, and all but the newest `keep` checkpoints."""
    others = [each for each in found if each.path != saved.path]
    same = [
        each for each in others if each.step == saved.step
    ]  # an earlier checkpoint of this step
    older = [each for each in others if each.step < saved.step]
    return same + older[: max(len(older) - max(keep, 1) + 1, 0)]


def create_locked(path: Path) -> FileIO:
    """Create `path` and lock it. If another process gets the lock later, the writer has ended."""
    while True:
        file = path.open("x+b", buffering=0)
        # On a file system without locks, files of killed writers are not removed.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return file
        file.close()  # another process removed it between open and flock


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
