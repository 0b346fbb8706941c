"""Suspend and resume for Lightning's Trainer.

    batches = StepBatches(len(data), batch_size=32)                      # of integrations.torch
    suspend = SuspendCallback(batches=batches, every=100)
    trainer = Trainer(callbacks=[suspend], limit_train_batches=batches.per_epoch, use_distributed_sampler=False)
    trainer.fit(model, DataLoader(data, batch_sampler=batches), ckpt_path=suspend.latest())

Saves between two batches, so a resumed run neither repeats nor skips one. Lightning does not keep the position in the
data (a resumed epoch begins with its first batch again), hence `batches`; nor the random generators: the callback keeps
them for jobs of one process. All processes leave together.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from hai import task
from hai.task import checkpoint
from hai.task.integrations.torch import StepBatches, get_generators, set_generators


class SuspendCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Saves every `every` optimizer steps (0: only when suspended) and leaves when the platform asks."""

    def __init__(
        self,
        name: str = "lightning",
        *,
        batches: StepBatches | None = None,
        every: int = 0,
        keep: int = 2,
    ) -> None:
        self._name = name
        self._batches = batches
        self._every = every
        self._keep = keep
        self._trained = 0  # batches
        self._saved_at = 0
        self._left = False
        self._generators: dict[str, Any] | None = None

    def latest(self) -> str | None:
        """Path for `fit(ckpt_path=…)`: the newest intact checkpoint; None in the first run."""
        found = checkpoint.latest(self._name)
        return None if found is None else str(found.path)

    def state_dict(self) -> dict[str, Any]:
        """Goes into the checkpoint."""
        return {"trained": self._trained, "generators": get_generators()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Comes before the loader is iterated."""
        self._trained = state_dict["trained"]
        self._generators = state_dict["generators"]
        self._move_batches()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The loader's iterator exists now; making it has drawn from torch's generator."""
        self._saved_at = trainer.global_step
        if self._generators is not None and trainer.world_size == 1:
            set_generators(self._generators)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The loader is iterated anew after this."""
        self._move_batches()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch before has been counted, this one has not: the only place where a checkpoint is exact."""
        asked = not self._left and self._asked(trainer)
        due = self._every and trainer.global_step - self._saved_at >= self._every
        if asked or due:
            self._save(trainer)
        if asked:
            self._left = True
            task.go_suspend()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count it."""
        self._trained += 1

    def _move_batches(self) -> None:
        if self._batches is not None:
            self._batches.step = self._trained

    def _asked(self, trainer: Trainer) -> bool:
        asked = task.receive_suspend_command()
        return bool(trainer.strategy.reduce_boolean_decision(asked, all=False))

    def _save(self, trainer: Trainer) -> None:
        started = time.monotonic()
        self._saved_at = step = trainer.global_step
        if trainer.is_global_zero:
            checkpoint.save_path(
                self._name, trainer.save_checkpoint, step=step, keep=self._keep, report=False
            )
            task.checkpoint_saved(time.monotonic() - started, step)
        else:  # takes part in gathering the state; rank 0 writes
            trainer.save_checkpoint(Path(self._name))
        trainer.strategy.barrier("hai.task.integrations.lightning")
