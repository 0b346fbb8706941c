"""Suspend and resume for the Trainer of Hugging Face Transformers.

    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[SuspendCallback()])
    trainer.train(resume_from_checkpoint=latest(arguments.output_dir))

The Trainer writes its own checkpoints, also by its own schedule (`save_steps`). When the platform requests a suspend,
the callback requests a checkpoint, and suspends after that. `output_dir` must be on storage that all ranks share.

Before a suspend, a single process writes the checkpoint to memory (staged_directory.py). It is written to disk later,
as a directory `suspended.STEP.DIGEST.dcp` in `output_dir`. All other checkpoints are written directly: those of the
Trainer's schedule, of several processes, with DeepSpeed or FSDP, and if the Trainer itself uses its checkpoints later
(`metric_for_best_model`, `load_best_model_at_end`, `push_to_hub`).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hai import task
from hai.task import checkpoint, sharded_checkpoint, staged_directory, staging
from hai.task.channel import log_line
from hai.task.checkpoint_files import Checkpoint
from hai.task.integrations.torch import estimate_bytes, suspend_agreed
from hai.task.sharded_checkpoint import ShardedCheckpoint
from hai.task.staged_directory import StagedDirectory

_MANIFEST = "hai-manifest.json"  # names and sizes of the files; written last
_SUSPENDED = "suspended"  # name of the checkpoints that are staged in memory
_KEEP = 2


class SuspendCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Requests a checkpoint and suspends when the platform requests a suspend."""

    def __init__(self) -> None:
        self._suspend_requested = False
        self._suspended = False
        self._step_ended = 0.0
        self._memory: StagedDirectory | None = None  # in place of output_dir during a save
        self._output_dir = ""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> TrainerControl:
        """Request a checkpoint if a suspend is requested. The Trainer calls it between two optimizer steps."""
        self._step_ended = time.monotonic()
        if not self._suspended and (self._suspend_requested or suspend_agreed(state.global_step)):
            self._suspend_requested = control.should_save = True
            if _may_stage(args):
                size = estimate_bytes(objects["model"], objects["optimizer"])
                target = Path(str(args.output_dir)) / _SUSPENDED
                self._memory = staged_directory.create(size, target)
            if self._memory is not None:
                self._output_dir, args.output_dir = str(args.output_dir), str(self._memory.path)
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Complete the checkpoint after this process has written its part, and suspend if that is requested."""
        _barrier()
        if state.is_world_process_zero:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            if self._memory is None:
                _seal(folder)
            else:
                target = Path(self._output_dir) / _SUSPENDED
                self._memory.stage(folder, target, state.global_step, _KEEP)
                self._memory, args.output_dir = None, self._output_dir
            task.checkpoint_saved(time.monotonic() - self._step_ended, state.global_step)
        if self._suspend_requested:
            self._suspend_requested, self._suspended = False, True
            _barrier()  # because one call of go_suspend suspends all ranks
            task.go_suspend()


def latest(output_dir: str | Path) -> str | None:
    """Return the path of the newest complete checkpoint; None in the first run.

    A checkpoint that is staged in memory is first written to disk. Raises OSError if that fails.
    """
    target = Path(output_dir) / _SUSPENDED
    staging.write_out_all(staging.directory(), target)
    suspended, written = sharded_checkpoint.latest_complete(target), _latest_written(output_dir)
    found: list[Checkpoint | ShardedCheckpoint] = [c for c in (written, suspended) if c is not None]
    newest = max(found, key=lambda each: each.step, default=None)
    durable = [*found, *sharded_checkpoint.published(target)]
    checkpoint.report_losses(target, durable, None if newest is None else newest.step)
    return None if newest is None else str(newest.path)


def _latest_written(output_dir: str | Path) -> Checkpoint | None:
    """Return the newest complete checkpoint that the Trainer has written directly."""
    found = Path(output_dir).glob(f"checkpoint-*/{_MANIFEST}")
    for manifest in sorted(found, key=lambda m: _step(m.parent), reverse=True):
        if _complete(manifest):
            return Checkpoint(_step(manifest.parent), manifest.parent, "")
        log_line(f"{manifest.parent} is damaged; the checkpoint before it is used")
    return None


def _step(folder: Path) -> int:
    return int(folder.name.split("-")[1])


def _may_stage(args: TrainingArguments) -> bool:
    """Return whether one process writes the whole checkpoint, and the Trainer does not need it later."""
    needed_later = args.metric_for_best_model or args.load_best_model_at_end or args.push_to_hub
    return args.world_size == 1 and not (args.deepspeed or args.fsdp or needed_later)


def _barrier() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def _seal(folder: Path) -> None:
    """Flush all files to disk, then write and flush the manifest."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST]
    for path in files:
        _flush(path)
    scratch = folder / f".{_MANIFEST}"
    scratch.write_text(json.dumps({str(p.relative_to(folder)): p.stat().st_size for p in files}))
    _flush(scratch)
    scratch.rename(folder / _MANIFEST)
    _flush(folder)
    _flush(folder.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _complete(manifest: Path) -> bool:
    sizes: dict[str, int] = json.loads(manifest.read_text())
    files = {manifest.parent / name: size for name, size in sizes.items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in files.items())
