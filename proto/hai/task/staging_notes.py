"""Notes beside a target, which say where its staged checkpoints are (see staging.py).

The note `.NAME.STEP.staged` names the .json file of a staged checkpoint and the machine. When a run gives up waiting
for another machine, it renames the note to `.NAME.STEP.lost`. That machine then drops the checkpoint: published late,
it would replace what the run has saved meanwhile.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hai.task import checkpoint_files, env
from hai.task.channel import log_line
from hai.task.checkpoint_files import Checkpoint
from hai.task.sharded_checkpoint import ShardedCheckpoint

_NOTE, _LOST = ".staged", ".lost"
_LOST_SECONDS = 86400.0  # a machine that has not dropped the checkpoint by then has lost it
_WAIT_SECONDS = 0.05
_SILENT_SECONDS = 30.0  # a pod that writes a checkpoint has started by then


@dataclass(frozen=True, slots=True)
class LostCheckpoint:
    """A checkpoint that was only in the memory of a node."""

    step: int
    node: str


@dataclass(frozen=True, slots=True)
class Note:
    """The content of a note: the .json file of a staged checkpoint, its machine, and the node of the task."""

    file: Path
    step: int
    path: Path
    machine: str
    node: str

    def is_here(self) -> bool:
        """Return whether this process can see the memory of the checkpoint."""
        return self.machine == _machine()


def read(target: Path, suffix: str = _NOTE) -> list[Note]:
    """Return the notes of a target, by their steps."""
    notes = []
    for file in sorted(target.parent.glob(f".{glob.escape(target.name)}.{'[0-9]' * 12}{suffix}")):
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            facts = json.loads(file.read_bytes())
            step, path = int(file.name.split(".")[-2]), Path(facts["path"])
            notes.append(Note(file, step, path, facts["machine"], facts["node"]))
    return notes


def write(target: Path, step: int, path: Path) -> None:
    """Write the note of a staged checkpoint. `path` is its .json file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    node = os.environ.get(env.NODE_NAME, "")
    facts = {"path": str(path), "node": node, "machine": _machine()}
    target.with_name(f".{target.name}.{step:012d}{_NOTE}").write_text(json.dumps(facts))


def remove(target: Path, path: Path) -> None:
    """Remove the note of a checkpoint, unless the same step was staged again."""
    for note in (*read(target), *read(target, _LOST)):
        if note.path == path and note.is_here():
            note.file.unlink(missing_ok=True)


def is_given_up(target: Path, path: Path) -> bool:
    """Return whether a run on another machine has continued without this staged checkpoint."""
    return any(note.path == path and note.is_here() for note in read(target, _LOST))


def wait_for_other_machines(target: Path) -> None:
    """Wait until the checkpoints of a target that are in the memory of other machines are written.

    Stop waiting when nothing of them was written for 30 s. Then they count as lost.
    """
    progress, since = None, time.monotonic()
    while notes := [note for note in read(target) if not note.is_here()]:
        current = [note.file for note in notes], checkpoint_files.unfinished_bytes(target)
        if progress is None:
            log_line(f"waiting until node {notes[-1].node or '?'} has written {target.name}")
        if current != progress:
            progress, since = current, time.monotonic()
        elif time.monotonic() - since > _SILENT_SECONDS:
            return
        time.sleep(_WAIT_SECONDS)


def find_lost(
    target: Path, durable: Sequence[Checkpoint | ShardedCheckpoint]
) -> list[LostCheckpoint]:
    """Return the checkpoints of a target that were staged in a memory that is lost. Each is returned only once.

    `durable` are the published checkpoints. Call `wait_for_other_machines` first.

    A checkpoint that was published later does not make them known as durable, but nobody misses them then.
    """
    newest = max((found.path.stat().st_mtime for found in durable), default=0.0)
    steps = {found.step for found in durable}
    lost = []
    for note in read(target):
        with contextlib.suppress(FileNotFoundError):  # it has become durable
            if not (note.is_here() and note.path.exists()):
                later = note.step > max(steps, default=-1) or note.file.stat().st_mtime > newest
                if note.step not in steps and later:
                    lost.append(LostCheckpoint(note.step, note.node))
                _give_up(note)
    _remove_old(target)
    return lost


def _give_up(note: Note) -> None:
    if note.is_here():
        note.file.unlink()
    else:
        note.file.rename(note.file.with_suffix(_LOST))


def _remove_old(target: Path) -> None:
    for note in read(target, _LOST):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - note.file.stat().st_mtime > _LOST_SECONDS:
                note.file.unlink()


def _machine() -> str:
    return os.environ.get(env.STAGING_MACHINE) or os.uname().nodename
