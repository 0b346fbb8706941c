"""Suspend and resume for the Trainer of Hugging Face Transformers.

    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[SuspendCallback()])
    trainer.train(resume_from_checkpoint=latest(arguments.output_dir))

The Trainer writes its own checkpoints, also by its own schedule (`save_steps`). When the platform requests a suspend,
the callback requests a checkpoint, and suspends after it is on disk. `output_dir` must be on storage that all ranks
share.
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
from hai.task.channel import log_line
from hai.task.integrations.torch import suspend_agreed

_MANIFEST = "hai-manifest.json"  # names and sizes of the files; written last


class SuspendCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Requests a checkpoint and suspends when the platform requests a suspend."""

    def __init__(self) -> None:
        self._suspend_requested = False
        self._suspended = False
        self._step_ended = 0.0

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Request a checkpoint if a suspend is requested. The Trainer calls it between two optimizer steps."""
        self._step_ended = time.monotonic()
        if not self._suspended and (self._suspend_requested or suspend_agreed(state.global_step)):
            self._suspend_requested = control.should_save = True
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Complete the checkpoint after this process has written its part, and suspend if that is requested."""
        _barrier()
        if state.is_world_process_zero:
            _seal(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")
            task.checkpoint_saved(time.monotonic() - self._step_ended, state.global_step)
        if self._suspend_requested:
            self._suspend_requested, self._suspended = False, True
            _barrier()  # because one call of go_suspend suspends all ranks
            task.go_suspend()


def latest(output_dir: str | Path) -> str | None:
    """Return the path of the newest complete checkpoint; None in the first run."""
    found = Path(output_dir).glob(f"checkpoint-*/{_MANIFEST}")
    for manifest in sorted(found, key=lambda m: int(m.parent.name.split("-")[1]), reverse=True):
        if _complete(manifest):
            return str(manifest.parent)
        log_line(f"{manifest.parent} is damaged; the checkpoint before it is used")
    return None


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
