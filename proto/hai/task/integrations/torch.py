"""A PyTorch training loop that can be suspended before any step, and continues with exactly the same results.

    batches = StepBatches(len(data), batch_size=32, seed=1)
    loader = DataLoader(data, batch_sampler=batches)
    loop = Loop({"model": model, "optimizer": optimizer}, batches=batches, every=100)
    loop.load()
    for step, batch in zip(loop.steps(1000), loader):
        ...

A checkpoint contains all parts, which have state_dict and load_state_dict; the random generators of torch, CUDA, Python
and (if loaded) NumPy of each process; and the step, which is also the position of the sampler. With torch.distributed,
rank 0 writes the parts, each process writes its own generators, and the processes agree on a suspend with one
all-reduce per step.

If the model is sharded over ranks (FSDP2, tensor parallelism), each rank writes and reads its own shards:

    loop = Loop({"training": TrainingState(model, optimizer)}, sharded=True)      # of integrations.distributed

torch seeds random transforms in DataLoader workers when the loader's iterator is created. To make them repeatable, seed
them by the index of the sample.
"""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from hai import task
from hai.task import checkpoint
from hai.task.channel import log_line
from hai.task.current_channel import report_loaded
from hai.task.integrations.state_file import layout_of, unpack_state, write_layout, write_state

_RESERVE, _RESERVE_BYTES = 1.1, 16 << 20  # for what is no tensor of the model or an optimizer
_PORTABLE = 1  # cudaHostRegisterPortable
_SPARE_BYTES = (
    1 << 20
)  # the size of a state changes a little, for example with the random generators


class Stateful(Protocol):
    """A part of the state, such as a model, an optimizer, a learning-rate scheduler or a gradient scaler."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> object: ...


class StepBatches(Sampler[list[int]]):  # type: ignore[misc, unused-ignore]
    """Endless batches of indices, which are shuffled again in each epoch. Batch number s depends only on (seed, s).

    Each of the `replicas` processes gets its own part of every batch, so all processes together get each index at most
    once per epoch. The last, incomplete batch of an epoch is omitted.
    """

    def __init__(
        self, size: int, batch_size: int, *, seed: int = 0, replica: int = 0, replicas: int = 1
    ) -> None:
        self.per_epoch = size // (batch_size * replicas)
        if self.per_epoch == 0:
            raise ValueError(f"{size} items make no batch of {batch_size} for {replicas} processes")
        self.step = 0
        self._size, self._batch_size, self._seed = size, batch_size, seed
        self._replica, self._replicas = replica, replicas

    def __iter__(self) -> Iterator[list[int]]:
        epoch, position = divmod(self.step, self.per_epoch)
        while True:
            generator = torch.Generator().manual_seed(self._seed + epoch)
            order = torch.randperm(self._size, generator=generator).tolist()
            for number in range(position, self.per_epoch):
                yield order[self._part(number)]
            epoch, position = epoch + 1, 0

    def _part(self, number: int) -> slice:
        start = (number * self._replicas + self._replica) * self._batch_size
        return slice(start, start + self._batch_size)


class Loop:
    """Counts steps, saves after every `every` steps (if 0, only before a suspend), and suspends on request."""

    def __init__(
        self,
        parts: Mapping[str, Stateful],
        *,
        batches: StepBatches | None = None,
        name: str = "checkpoint",
        every: int = 0,
        keep: int = 2,
        sharded: bool = False,
    ) -> None:
        if sharded and any(isinstance(part, torch.optim.Optimizer) for part in parts.values()):
            raise TypeError(
                "an optimizer has no state to load into before its first step: "
                "with sharded=True, pass TrainingState(model, optimizer) as one part"
            )
        self.step = 0
        self._parts = parts
        self._sharded = sharded
        self._batches = batches
        self._name = name
        self._every = every
        self._keep = keep
        self._generators: dict[str, Any] | None = None
        self._suspended = False
        self._reserved = False

    def load(self) -> bool:
        """Restore the newest checkpoint. Return False if there is none. Call it before the loader is iterated.

        Raises RuntimeError if this rank does not find the checkpoint of rank 0.
        """
        started = time.monotonic()
        loaded = self._load_shards() if self._sharded else self._load_parts()
        if loaded:
            report_loaded(time.monotonic() - started)
        return loaded

    def steps(self, total: int) -> Iterator[int]:
        """Yield the numbers of the remaining steps below `total`. Save and suspend between them."""
        # Not in `load`, because creating a loader's iterator uses torch's generator.
        if self._generators is not None:
            set_generators(self._generators)
            self._generators = None
        while self.step < total:
            self._suspend_if_requested()
            yield self.step
            self.step += 1
            if not self._reserved and not self._sharded:
                self._reserve()
            if self._every and self.step % self._every == 0:
                self.save()

    def save(self) -> None:
        """Write a checkpoint now. With torch.distributed, every process must call it."""
        started = time.monotonic()
        if not self._sharded:
            self._refuse_shards()
        if _rank() != 0 or self._sharded:
            data = pack({"generators": get_generators()})
            checkpoint.save_bytes(
                self._rank_name(),
                data,
                step=self.step,
                keep=self._keep + 1,
                report=False,
            )
        _barrier()  # if rank 0 has a checkpoint, those of the others exist
        if self._sharded:
            self._save_shards()
        elif _rank() == 0:
            layout = layout_of(self._state())
            checkpoint.save(
                self._name,
                lambda file: write_layout(file, layout),
                step=self.step,
                keep=self._keep,
                report=False,
                size=layout.size,
            )
        if _rank() == 0:
            task.checkpoint_saved(time.monotonic() - started, self.step)  # once for all parts
        _barrier()  # because one call of go_suspend suspends all ranks

    def _load_parts(self) -> bool:
        found = checkpoint.read_latest(self._name) if _rank() == 0 else None
        step = _same_step(found and found[0])
        if step < 0:
            return False
        state = read(self._name, step) if found is None else unpack(found[1])
        if state is None:
            raise RuntimeError(
                f"rank {_rank()} does not find checkpoint {self._name} of step {step} in {checkpoint.directory()}; "
                "keep checkpoints on storage that all ranks share"
            )
        for key, part in self._parts.items():
            part.load_state_dict(state["parts"][key])
        self._generators = state["generators"] if _rank() == 0 else self._rank_generators(step)
        self._go_to(step)
        return True

    def _load_shards(self) -> bool:
        from hai.task.integrations.distributed import load_latest  # its import takes a second

        step = load_latest(self._name, dict(self._parts))
        if step is not None:
            self._generators = self._rank_generators(step)
            self._go_to(step)
        return step is not None

    def _save_shards(self) -> None:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict_saver import save

        from hai.task.integrations.distributed import ShardedWriter

        def write(durable: bool) -> None:
            writer = ShardedWriter(
                self._name, step=self.step, keep=self._keep, report=False, durable=durable
            )
            save(dict(self._parts), storage_writer=writer)

        try:
            write(durable=False)
        except CheckpointException as error:  # the same on all ranks
            if not all(isinstance(cause, OSError) for cause, _ in error.failures.values()):
                raise
            if _rank() == 0:
                log_line(f"the shards do not fit into memory, and are written directly: {error}")
            write(durable=True)

    def _state(self) -> dict[str, Any]:
        parts = {key: part.state_dict() for key, part in self._parts.items()}
        return {"parts": parts, "generators": get_generators()}

    def _refuse_shards(self) -> None:
        for key, part in self._parts.items():
            if isinstance(part, torch.nn.Module) and any(map(_is_shard, part.parameters())):
                raise TypeError(
                    f"part {key} is sharded over ranks, but rank 0 saves only its own shards: use sharded=True"
                )

    def _reserve(self) -> None:
        """Reserve memory for the checkpoints, now that the first step has created the state of the optimizers."""
        self._reserved = True
        self._refuse_shards()
        if _rank() == 0:
            checkpoint.reserve(layout_of(self._state()).size + _SPARE_BYTES, _pin)

    def _suspend_if_requested(self) -> None:
        if not self._suspended and suspend_agreed(self.step):
            self._suspended = True
            self.save()
            task.go_suspend()

    def _go_to(self, step: int) -> None:
        self.step = step
        if self._batches is not None:
            self._batches.step = step

    def _rank_name(self) -> str:
        return f"{self._name}.rank{_rank()}"

    def _rank_generators(self, step: int) -> dict[str, Any] | None:
        state = read(self._rank_name(), step)
        if state is None:
            log_line(
                f"rank {_rank()} did not exist at step {step}: its random generators start anew"
            )
            return None
        generators: dict[str, Any] = state["generators"]
        return generators


def suspend_agreed(step: int) -> bool:
    """Return the same as hai.task.suspend_agreed, for all processes of a torch.distributed job.

    It does not use LOCAL_RANK, so it works for every way to start the processes.
    """
    if not _distributed():
        return task.suspend_agreed(step)
    requested = torch.tensor([task.receive_suspend_command()], dtype=torch.int32, device=_device())
    dist.all_reduce(requested, op=dist.ReduceOp.MAX)
    return bool(requested.item())


def _distributed() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def _rank() -> int:
    return dist.get_rank() if _distributed() else 0


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _is_shard(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # a DTensor, whose import takes a second


def _barrier() -> None:
    if _distributed():
        dist.barrier()


def _pin(memory: memoryview) -> Callable[[], None]:
    """Pin the memory of checkpoints, so that GPUs copy to it at full speed. Return a function that unpins it."""
    if not torch.cuda.is_available():
        return lambda: None
    pointer = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    cuda: Any = torch.cuda  # untyped
    error = int(cuda.cudart().cudaHostRegister(pointer, len(memory), _PORTABLE))
    if error:
        log_line(f"memory for checkpoints cannot be pinned (CUDA error {error}): saving is slower")
        return lambda: None
    return lambda: cuda.cudart().cudaHostUnregister(pointer)


def _same_step(found: checkpoint.Checkpoint | None) -> int:
    step = -1 if found is None else found.step
    if not _distributed():
        return step
    shared = torch.tensor([step], dtype=torch.int64, device=_device())
    dist.broadcast(shared, src=0)
    return int(shared.item())


def read(name: str, step: int) -> dict[str, Any] | None:
    """Return the state in the checkpoint of that step, on the CPU; None if there is no such checkpoint."""
    found = checkpoint.read_latest(name, step=step)
    return None if found is None else unpack(found[1])


def unpack(content: memoryview) -> dict[str, Any]:
    """Return the state in the content of a checkpoint, on the CPU. Its tensors are views of the content."""
    state: dict[str, Any]
    if bytes(content[:2]) == b"PK":  # earlier releases wrote archives with torch.save
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    else:
        state = unpack_state(content)
    return state


def pack(state: dict[str, Any]) -> bytes:
    """Return a state as the bytes of a checkpoint."""
    buffer = io.BytesIO()
    write_state(buffer, state)
    return buffer.getvalue()


def estimate_bytes(*parts: Any) -> int:
    """Return more bytes than a library writes for a model and its optimizers."""
    return int(_RESERVE * sum(_tensor_bytes(part.state_dict()) for part in parts)) + _RESERVE_BYTES


def _tensor_bytes(tree: Any) -> int:
    if isinstance(tree, torch.Tensor):
        return int(tree.nbytes)
    if isinstance(tree, Mapping):
        return sum(map(_tensor_bytes, tree.values()))
    return sum(map(_tensor_bytes, tree)) if isinstance(tree, list | tuple) else 0


def get_generators() -> dict[str, Any]:
    """Return the states of the generators of torch, CUDA, Python and NumPy.

    They consist of tensors, numbers and tuples, so that they can be loaded without running code.
    """
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if numpy := sys.modules.get("numpy"):
        name, keys, *position = numpy.random.get_state()
        states["numpy"] = (name, keys.tolist(), *position)
    return states


def set_generators(states: dict[str, Any]) -> None:
    """Set the states of the generators to those that get_generators() returned."""
    # a copy, because torch ignores the offset of a view in its storage
    torch.set_rng_state(states["torch"].clone())
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([state.clone() for state in states["cuda"]])
    if "numpy" in states and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(states["numpy"])
