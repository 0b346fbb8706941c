"""Checkpoints of models that are sharded over ranks, with torch.distributed.checkpoint (DCP).

    state = {"training": TrainingState(model, optimizer)}
    step = load_latest("model", state)              # None in the first run
    ...
    save(state, storage_writer=ShardedWriter("model", step=step))

Each rank writes only its own shards, at the same time as the others, and reads only those that it needs. So a run may
continue on another number of ranks. Threads compute digests while the bytes pass. A checkpoint is published by one
rename after the files of all ranks are on disk (sharded_checkpoint.py), so all ranks must see the same directory.

Where hai.task stages checkpoints, each rank copies its shards into memory, and the coordinator stages them all as one
checkpoint, which is written later.
Planners and state dictionaries are those of DCP.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from hai.task import (
    checkpoint,
    checkpoint_files,
    current_channel,
    sharded_checkpoint,
    staging,
    staging_buffers,
    staging_notes,
)
from hai.task.integrations.shard_file import (
    DamagedCheckpointError,
    read_items,
    size_of,
    stage_file,
    write_file,
)
from hai.task.integrations.shard_manifest import RankFile, pack_manifest, unpack_manifest
from hai.task.sharded_checkpoint import ShardedCheckpoint, UnfinishedCheckpoint
from hai.task.staging import FileInMemory

_ITEM_BYTES = 4096  # for the alignment of an item, or a value


def load_latest(
    name: str | Path,
    state: dict[str, Any],
    *,
    step: int | None = None,
    planner: LoadPlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
) -> int | None:
    """Load the newest intact checkpoint, or the one of exactly `step`, into `state` with DCP. Every rank calls it.

    Return its step; None if there is none. If a rank finds damage, all ranks load the checkpoint before it. Raises
    RuntimeError if there is none before it, because parts of `state` are overwritten then.
    """
    started = time.monotonic()
    target = checkpoint_files.target_of(name)
    damaged = False
    while True:
        found = _newest_step(target, step, process_group)
        if found is None and damaged:
            raise RuntimeError(
                f"every checkpoint {target} was damaged and is set aside: start the program again, from its beginning"
            )
        if found is None:
            return None
        reader = ShardedReader(name, step=found)
        try:
            load(state, storage_reader=reader, planner=planner, process_group=process_group)
        except CheckpointException as error:
            causes = [cause for cause, _ in error.failures.values()]
            if not any(isinstance(cause, DamagedCheckpointError) for cause in causes):
                raise
            damaged = True
        else:
            current_channel.report_loaded(time.monotonic() - started)
            return found


class TrainingState:
    """A model and its optimizers as one entry of a state, with the names of parameters in place of their numbers.

    DCP loads only what a state already has, and a new optimizer has nothing. This creates it before it is loaded.
    """

    def __init__(self, model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        self._model = model
        self._optimizers = optimizers

    def state_dict(self) -> dict[str, Any]:
        model, optimizers = get_state_dict(self._model, self._optimizers)
        return {"model": model, "optimizers": optimizers}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self._model,
            self._optimizers,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizers"],
        )


class ShardedWriter(StorageWriter):
    """Writes one checkpoint. Create it on every rank, and pass it to save or async_save of DCP."""

    def __init__(
        self,
        name: str | Path,
        *,
        step: int,
        keep: int = 2,
        report: bool = True,
        durable: bool = False,
    ) -> None:
        """`name` is a name in checkpoint.directory(), or a path. All but the `keep` newest checkpoints are deleted.

        The checkpoint is reported to the platform, except with report=False. In a task, it may be only staged in memory
        when the save returns (see hai.task.checkpoint), except with durable=True.
        """
        super().__init__()
        self._target = checkpoint_files.target_of(name)
        self._durable = durable
        self._staging = staging.directory_for(self._target)
        self._step = step
        self._keep = keep
        self._report = report
        self._started = 0.0
        self._unfinished: UnfinishedCheckpoint | None = None  # of the coordinator

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            raise ValueError(
                f"checkpoint_id={checkpoint_id} is not used: pass a name or path to ShardedWriter"
            )

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise ValueError("use_collectives=False is not possible: the ranks publish together")
        self._started = time.monotonic()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Decide where the ranks write, and name the file of each. Only the coordinator calls it."""
        if self._fits_into_memory(plans):
            self._staged_mark.touch()
        else:
            if self._staging is not None:
                self._staged_mark.unlink(missing_ok=True)
                staging.write_out_all(self._staging)  # with the parts that ranks have saved before
            # First, because the newest checkpoint is the one that is published last.
            staging.write_out_all(None, self._target)
            self._unfinished = UnfinishedCheckpoint(self._target, self._step)
        # The same in each save, because planners may keep their plans.
        return [
            replace(plan, storage_data=f"rank{rank:05d}.bin") for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Copy the file of this rank into memory, or write it and flush it to disk."""
        if self._staging is not None and self._staged_mark.exists():
            buffers = staging_buffers.buffers(self._staging)
            results = stage_file(plan.storage_data, plan.items, planner, buffers)
        else:
            results = write_file(self._rank_path(plan.storage_data), plan.items, planner)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Publish the checkpoint. Only the coordinator calls it, after all ranks have written."""
        parts = {written.index: written.storage_data for rank in results for written in rank}
        files = {part.file.name: part.file for part in parts.values()}
        if self._unfinished is None:
            self._stage(pack_manifest(metadata, parts), files.values())
        else:
            self._publish(self._unfinished, pack_manifest(metadata, parts), files.values())
        if self._report:
            current_channel.report_saved(time.monotonic() - self._started, self._step)

    def _stage(self, manifest: bytes, files: Iterable[RankFile]) -> None:
        assert self._staging is not None
        in_memory = [FileInMemory(self._staging / f.data, f.size, f.name) for f in files]
        staging.publish(
            self._staging, self._target, in_memory, self._step, self._keep, manifest.decode()
        )
        self._staged_mark.unlink()

    def _publish(
        self, unfinished: UnfinishedCheckpoint, manifest: bytes, files: Iterable[RankFile]
    ) -> None:
        try:
            self._check_files(files)
            unfinished.publish(manifest, self._keep)
        except Exception as error:
            error.add_note(f"no checkpoint {self._target} was saved; earlier ones are untouched")
            with contextlib.suppress(OSError):
                unfinished.discard()
            raise

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False

    @property
    def _staged_mark(self) -> Path:
        """A file that tells all ranks, which are on one node, to write to memory."""
        assert self._staging is not None
        return self._staging / f"{self._target.name}.{self._step:012d}{staging.MARK}"

    def _fits_into_memory(self, plans: list[SavePlan]) -> bool:
        if self._durable or self._staging is None:
            return False
        buffers = staging_buffers.buffers(self._staging)
        size = sum(size_of(item) + _ITEM_BYTES for plan in plans for item in plan.items)
        return size <= buffers.allowed() + buffers.reusable()

    def _rank_path(self, file_name: str) -> Path:
        directory = sharded_checkpoint.unfinished_path(self._target, self._step)
        if not directory.is_dir():
            raise FileNotFoundError(
                f"{directory} was created by another rank and is not found here: "
                "keep checkpoints on storage that all ranks share"
            )
        return directory / file_name

    def _check_files(self, files: Iterable[RankFile]) -> None:
        directory = sharded_checkpoint.unfinished_path(self._target, self._step)
        for file in files:
            path = directory / file.name
            if not path.exists() or path.stat().st_size != file.size:
                raise FileNotFoundError(
                    f"{path} was written by another rank and is not complete here: "
                    "keep checkpoints on storage that all ranks share"
                )


class ShardedReader(StorageReader):
    """Reads the newest checkpoint of a name, or the one of exactly `step`. Create it on every rank for load of DCP.

    If a file is damaged, load raises CheckpointException on all ranks. The checkpoint has then been set aside, so
    that the next reader uses the one before it. load_latest() does this without an error.
    """

    def __init__(self, name: str | Path, *, step: int | None = None) -> None:
        """Raises FileNotFoundError if there is no checkpoint."""
        super().__init__()
        target = checkpoint_files.target_of(name)
        found = _latest(target, step)
        if found is None:
            raise FileNotFoundError(
                f"no checkpoint {target}" + ("" if step is None else f" of step {step}")
            )
        self.checkpoint, self._manifest = found
        self._metadata: Metadata | None = None

    @property
    def step(self) -> int:
        """The step of the checkpoint."""
        return self.checkpoint.step

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            raise ValueError(
                f"checkpoint_id={checkpoint_id} is not used: pass a name or path to ShardedReader"
            )

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return unpack_manifest(self._manifest)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self._metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return replace(plan, storage_data=self.checkpoint.path.name)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Check that all ranks read the same checkpoint. Only the coordinator calls it."""
        names = {plan.storage_data for plan in plans}
        if len(names) > 1:
            raise RuntimeError(
                f"the ranks found different checkpoints ({', '.join(sorted(names))}): "
                "keep checkpoints on storage that all ranks share"
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read and verify the shards of this rank. Raises DamagedCheckpointError."""
        assert self._metadata is not None
        try:
            read_items(self.checkpoint.path, plan.items, self._metadata, planner)
        except DamagedCheckpointError as error:
            self.checkpoint.set_aside(str(error))
            raise
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False


def _latest(target: Path, step: int | None) -> tuple[ShardedCheckpoint, bytes] | None:
    """Return the newest checkpoint with its manifest, after staged ones are on disk."""
    staging_notes.wait_for_other_machines(target)
    staging.write_out_all(staging.directory(), target)
    found = sharded_checkpoint.latest(target, step)
    checkpoint.report_losses(target, sharded_checkpoint.published(target), found and found[0].step)
    return found


def _newest_step(
    target: Path, step: int | None, process_group: dist.ProcessGroup | None
) -> int | None:
    """Return the step of the newest checkpoint that the first rank of the group finds, on all its ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        found = _latest(target, step)
        return None if found is None else found[0].step
    shared: list[int | None] = [None]
    if dist.get_rank(process_group) == 0:
        found = _latest(target, step)
        shared = [None if found is None else found[0].step]
    first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    dist.broadcast_object_list(shared, src=first, group=process_group)
    return shared[0]
