"""Suspend and resume for Lightning's Trainer.

    suspend = SuspendCallback(every=100)
    trainer = Trainer(callbacks=[suspend])
    trainer.fit(model, DataLoader(data, batch_size=32, shuffle=True), ckpt_path=suspend.latest())

The callback saves between two batches, so a resumed run neither repeats nor skips a batch. It saves the order of a
DataLoader (data_order.py) and the random generators of every rank, but not those of a loader's workers. If the position
in the data cannot be saved, a line is printed when training starts. With `batches` (StepBatches of integrations.torch),
the order does not depend on generators. All processes suspend together.

If the strategy saves shards (ModelParallelStrategy, or FSDPStrategy with state_dict_type="sharded"), a checkpoint is a
directory, to which each rank writes (sharded_checkpoint.py).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import (
    DDPStrategy,
    DeepSpeedStrategy,
    SingleDeviceStrategy,
    Strategy,
)

from hai import task
from hai.task import checkpoint, checkpoint_files, sharded_checkpoint
from hai.task.channel import log_line
from hai.task.integrations.data_order import DataOrder, keep_order
from hai.task.integrations.torch import (
    StepBatches,
    estimate_bytes,
    get_generators,
    pack,
    read,
    set_generators,
)
from hai.task.sharded_checkpoint import UnfinishedCheckpoint


class SuspendCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Saves every `every` optimizer steps (if 0, only before a suspend), and suspends when the platform requests it."""

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
        self._order = DataOrder(lambda message: log_line(f"{message}."))
        self._problem = ""  # why the position in the data cannot be saved
        self._trained = 0  # number of batches
        self._saved_at = 0
        self._suspended = False
        self._rank = 0
        self._state_to_restore: dict[str, Any] | None = None  # the loaded state of this rank

    def latest(self) -> str | None:
        """Return the path of the newest intact checkpoint for `fit(ckpt_path=…)`; None in the first run."""
        sharded = sharded_checkpoint.latest_complete(checkpoint_files.target_of(self._name))
        found = checkpoint.latest(self._name)
        if sharded is not None and (found is None or found.step < sharded.step):
            return str(sharded.path)
        return None if found is None else str(found.path)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Wrap a method of the strategy, to prepare the training loader before it is iterated."""
        self._rank = trainer.global_rank
        if stage == "fit" and self._batches is None:
            process = trainer.strategy.process_dataloader

            def process_dataloader(loader: object) -> object:
                if trainer.training:
                    self._problem = keep_order(loader, self._order)
                return process(loader)

            vars(trainer.strategy)["process_dataloader"] = process_dataloader

    def state_dict(self) -> dict[str, Any]:
        """Return the state for the checkpoint, which contains that of rank 0."""
        return {"trained": self._trained, "step": self._saved_at, **self._rank_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of this rank. Lightning calls it before the loader is iterated."""
        self._trained = state_dict["trained"]
        if self._rank == 0:
            self._state_to_restore = state_dict
        else:
            self._state_to_restore = read(self._rank_name(), state_dict["step"])
            if self._state_to_restore is None:
                log_line(
                    f"rank {self._rank} did not exist at step {state_dict['step']}:"
                    " its random generators start anew, and so does the order of its data"
                )
        self._order.resume(self._state_to_restore["order"] if self._state_to_restore else None)
        self._set_position_of_batches()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the random generators, now that the creation of the loader's iterator has used torch's generator."""
        self._saved_at = trainer.global_step
        if self._state_to_restore is not None:
            set_generators(self._state_to_restore["generators"])
        if isinstance(trainer.train_dataloader, (dict, list, tuple)):
            self._problem = "there are several training loaders, whose positions are not known"
        if self._problem and trainer.is_global_zero:
            log_line(
                f"{self._problem}: after a resume, the epoch reads its data from the beginning again."
                " Use one DataLoader with a map-style data set, a loader with state_dict and load_state_dict,"
                " or StepBatches."
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the position of `batches`, because the loader is iterated again after this."""
        self._set_position_of_batches()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the end of the epoch. A run that resumes from a later checkpoint starts the next epoch."""
        self._order.finish_epoch()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Save and suspend if that is due or requested.

        A checkpoint is exact only here: the previous batch has been counted, and this batch has not.
        """
        requested = not self._suspended and self._suspend_requested(trainer)
        due = self._every and trainer.global_step - self._saved_at >= self._every
        if requested or due:
            self._save(trainer)
        if requested:
            self._suspended = True
            task.go_suspend()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch."""
        self._trained += 1
        self._order.set_trained(batch_idx + 1)

    def _set_position_of_batches(self) -> None:
        if self._batches is not None:
            self._batches.step = self._trained

    def _suspend_requested(self, trainer: Trainer) -> bool:
        requested = task.receive_suspend_command()
        return bool(trainer.strategy.reduce_boolean_decision(requested, all=False))

    def _rank_name(self) -> str:
        return f"{self._name}.rank{self._rank}"

    def _rank_state(self) -> dict[str, Any]:
        return {"generators": get_generators(), "order": self._order.state()}

    def _save(self, trainer: Trainer) -> None:
        """Save the state of every rank, then the checkpoint of rank 0, so that a checkpoint has all its parts."""
        started = time.monotonic()
        self._saved_at = step = trainer.global_step
        if not trainer.is_global_zero:
            checkpoint.save_bytes(
                self._rank_name(),
                pack(self._rank_state()),
                step=step,
                keep=self._keep + 1,
                report=False,
            )
        trainer.strategy.barrier("hai.task.integrations.lightning.own")
        if _saves_directories(trainer.strategy):
            self._save_directory(trainer, started)
        elif trainer.is_global_zero:
            checkpoint.save_path(
                self._name,
                trainer.save_checkpoint,
                step=step,
                keep=self._keep,
                report=False,
                size=_checkpoint_bytes(trainer),
            )
            task.checkpoint_saved(time.monotonic() - started, step)
        else:  # the other ranks help to gather the state, which rank 0 writes
            trainer.save_checkpoint(Path(self._name))
        trainer.strategy.barrier("hai.task.integrations.lightning")

    def _save_directory(self, trainer: Trainer, started: float) -> None:
        """Let every rank save its shards in one directory, and publish that."""
        target = checkpoint_files.target_of(self._name)
        unfinished = (
            UnfinishedCheckpoint(target, self._saved_at) if trainer.is_global_zero else None
        )
        trainer.strategy.barrier("hai.task.integrations.lightning.directory")
        path = sharded_checkpoint.unfinished_path(target, self._saved_at)
        trainer.save_checkpoint(path)
        sharded_checkpoint.flush_files(path)
        trainer.strategy.barrier("hai.task.integrations.lightning.shards")
        if unfinished is not None:
            unfinished.publish_files(self._keep)
            task.checkpoint_saved(time.monotonic() - started, self._saved_at)


def _saves_directories(strategy: Strategy) -> bool:
    """Return whether the ranks write their own shards, and a checkpoint is a directory."""
    return bool(
        isinstance(strategy, DeepSpeedStrategy)
        or getattr(strategy, "_save_distributed_checkpoint", False)  # ModelParallelStrategy
        or getattr(strategy, "_state_dict_type", "") == "sharded"  # FSDPStrategy
    )


def _checkpoint_bytes(trainer: Trainer) -> int:
    """Return more bytes than the checkpoint has: those of the model and the optimizers, and a reserve.

    Return 0 if that is unknown, because the strategy gathers the state from other ranks.
    """
    if type(trainer.strategy) not in (SingleDeviceStrategy, DDPStrategy):
        return 0
    return estimate_bytes(trainer.lightning_module, *trainer.optimizers)
