"""What the ranks of rank_server.py do: build sharded states, save and load them, and be killed meanwhile.

A state is built from a seed. Its digest is that of all tensors, gathered from the ranks.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # now, and not in each rank
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys, load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from hai.task import block_file, staging
from hai.task.integrations import shard_file
from hai.task.integrations.distributed import (
    ShardedReader,
    ShardedWriter,
    TrainingState,
    load_latest,
)
from hai.task.integrations.torch import Loop

State = dict[str, Any]
_TENSORS = 16  # of the measured state


class Model(torch.nn.Module):
    """A network whose output does not divide by the number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 24)
        self.second = torch.nn.Linear(24, 5)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(torch.relu(self.first(x)))


def _train_once(model: Any, optimizer: Any) -> None:
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _mesh() -> Any:
    return init_device_mesh("cpu", (_world(),))


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _fsdp(model: Any) -> Any:
    fully_shard(model.first, mesh=_mesh())
    fully_shard(model, mesh=_mesh())
    return model


def _tensor_parallel(model: Any) -> Any:
    return parallelize_module(
        model, _mesh(), {"first": ColwiseParallel(), "second": RowwiseParallel()}
    )


def _fsdp_and_tensor_parallel(model: Any) -> Any:
    mesh = init_device_mesh("cpu", (2, _world() // 2), mesh_dim_names=("data", "tensor"))
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    return model


def _ddp(model: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "fsdp": _fsdp,
    "ddp": _ddp,
    "tensor parallel": _tensor_parallel,
    "fsdp and tensor parallel": _fsdp_and_tensor_parallel,
    "plain": lambda model: model,
}


class Training:
    """A model and its optimizer, which has no state before the first step."""

    def __init__(self, kind: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = WRAPPERS[kind](Model())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01 * (1 + seed))
        self.part = TrainingState(self.model, self.optimizer)
        self.state: State = {"training": self.part, "note": seed}

    def digest(self) -> str:
        return digest_of(self.part.state_dict())


def digest_of(state: State) -> str:
    """Return the digest of all tensors and values of a state."""
    digest = hashlib.sha256()
    for name, value in sorted(_leaves(state)):
        tensor = value.full_tensor() if isinstance(value, DTensor) else value
        if isinstance(tensor, torch.Tensor):
            content = (
                tensor.detach()
                .resolve_conj()
                .contiguous()
                .reshape(-1)
                .view(torch.uint8)
                .numpy()
                .tobytes()
            )
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode() + content)
        else:
            digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()


def _leaves(tree: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in _leaves(value, f"{name}/{key}")]
    if isinstance(tree, (list, tuple)):
        return [leaf for n, value in enumerate(tree) for leaf in _leaves(value, f"{name}/{n}")]
    return [(name, tree)]


def save_training(name: str, kind: str, step: int) -> str:
    training = Training(kind, seed=1)
    _train_once(training.model, training.optimizer)
    save(training.state, storage_writer=ShardedWriter(name, step=step))
    return training.digest()


def load_training(name: str, kind: str) -> dict[str, Any]:
    training = Training(kind, seed=2)
    step = load_latest(name, training.state)
    return {"step": step, "digest": training.digest(), "note": training.state["note"]}


def run_loop(name: str, steps: int, leave_at: int | None = None, kind: str = "fsdp") -> str:
    """Train with a Loop. `leave_at` is the step before which all ranks end, as after a kill. Return the digest."""
    torch.manual_seed(_rank())
    training = Training(kind, seed=1)
    loop = Loop({"training": training.part}, name=name, every=3, sharded=True)
    if not loop.load():
        torch.manual_seed(100 + _rank())
    for step in loop.steps(steps):
        if step == leave_at:
            break
        _train_once(training.model, training.optimizer)  # with random numbers of this rank
    return training.digest()


def save_shards_from_one_rank(name: str) -> str:
    training = Training("fsdp", seed=1)
    try:
        Loop({"model": training.model}, name=name).save()
    except TypeError as error:
        return str(error)
    return ""


def tensors(seed: int, rows: int = 64) -> State:
    """Return a state of many kinds of tensors, filled with random bits."""
    torch.manual_seed(seed)
    numbers = torch.randn(rows, 24)
    state: State = {
        "plain": numbers[:5].clone(),
        "scalar": numbers[0, 0].clone(),
        "empty": torch.empty(0, 4),
        "column": numbers.t()[3],
        "bfloat16": numbers.bfloat16(),
        "float8": numbers.to(torch.float8_e4m3fn),
        "conjugate": torch.view_as_complex(torch.randn(6, 2)).conj(),
        "nested": {"list": [seed, "text", None, 1.5], 7: torch.arange(seed, seed + 9)},
    }
    if dist.is_initialized():
        mesh = _mesh()
        for dtype in (torch.float32, torch.float16, torch.int8):
            value = (numbers * 100).to(dtype)
            state[f"rows {dtype}"] = distribute_tensor(value, mesh, [Shard(0)], src_data_rank=None)
        state["columns"] = distribute_tensor(numbers, mesh, [Shard(1)], src_data_rank=None)
        state["odd"] = distribute_tensor(numbers[:7], mesh, [Shard(0)], src_data_rank=None)
        state["copies"] = distribute_tensor(numbers, mesh, [Replicate()], src_data_rank=None)
    return state


def save_tensors(
    name: str,
    step: int,
    keep: int = 2,
    seed: int | None = None,
    block_bytes: int | None = None,
    killed: tuple[int, int] | None = None,
) -> str:
    """Save a state. `killed` is a rank, and the number of its file operation before which it is killed."""
    state = tensors(step if seed is None else seed)
    if block_bytes is not None:
        block_file.BLOCK_BYTES = block_bytes
    if killed is not None and killed[0] == _rank():
        _kill_before(killed[1])
    save(state, storage_writer=ShardedWriter(name, step=step, keep=keep))
    return digest_of(state)


def write_out(memory: str, killed: tuple[int, int]) -> None:
    """Write what is staged. This process is killed before so many operations on files."""
    _kill_before(killed[1])
    staging.write_out_all(Path(memory))


def load_tensors(name: str, step: int | None = None, only: str = "") -> dict[str, Any]:
    """Load into a state of other content. Return what was loaded, and the files of ranks that this rank has opened."""
    state = {key: value for key, value in tensors(99).items() if key.startswith(only)}
    opened: list[str] = []
    sys.addaudithook(
        lambda event, values: (
            opened.append(os.path.basename(values[0]))
            if event == "open" and str(values[0]).endswith(".bin")
            else None
        )
    )
    shard_file._BUFFER_BYTES = 100
    loaded = load_latest(name, state, step=step)
    return {"step": loaded, "digest": digest_of(state), "opened": sorted(opened)}


def load_by_reader(name: str) -> str:
    state = tensors(99)
    load(state, storage_reader=ShardedReader(name))
    return digest_of(state)


def export(name: str) -> str:
    """Load the whole state into one process, without a state that says what to load."""
    return digest_of(_load_state_dict_from_keys(storage_reader=ShardedReader(name)))


def save_again(name: str, steps: list[int], plan_caching: bool) -> list[str]:
    """Save several steps in one process. Return the digests."""
    digests = []
    for step in steps:
        state = tensors(step)
        planner = DefaultSavePlanner(enable_plan_caching=plan_caching)
        save(state, storage_writer=ShardedWriter(name, step=step), planner=planner)
        digests.append(digest_of(state))
    return digests


def save_async(name: str, step: int) -> str:
    state = tensors(step)
    state["conjugate"] = state["conjugate"].resolve_conj()  # DCP's copy in memory would lose it
    async_save(state, storage_writer=ShardedWriter(name, step=step)).result()
    return digest_of(state)


def save_on_other_storage(folder: str) -> str:
    """Save where each rank sees another directory. Return the error."""
    try:
        save(tensors(1), storage_writer=ShardedWriter(f"{folder}/{_rank()}/model", step=1))
    except CheckpointException as error:
        return str(error)
    return ""


class FullDiskPlanner(DefaultSavePlanner):
    """Fails after it has handed over two values."""

    left = 2

    def resolve_data(self, write_item: Any) -> Any:
        if self.left == 0:
            raise OSError(28, "No space left on device")
        self.left -= 1
        return super().resolve_data(write_item)


def fail_then_save(name: str, failing_rank: int) -> list[str]:
    """Save a step in which a rank fails, then another one. Return the error, and the digest of the second."""
    planner = FullDiskPlanner() if _rank() == failing_rank else DefaultSavePlanner()
    failed = ""
    try:
        save(tensors(1), storage_writer=ShardedWriter(name, step=1), planner=planner)
    except CheckpointException as error:
        failed = str(error)
    save(tensors(2), storage_writer=ShardedWriter(name, step=2))
    return [failed, digest_of(tensors(2))]


def measure(folder: str, size: int, repeats: int = 3) -> dict[str, float]:
    """Return the least seconds to save and load a state of `size` bytes, of which each rank has a part."""
    rows = max(size // _TENSORS // 4096, _world())
    if not dist.is_initialized():
        state: State = {f"w{n}": torch.randn(rows, 1024) for n in range(_TENSORS)}
    else:
        parts = [torch.randn(rows // _world(), 1024) for _ in range(_TENSORS)]
        state = {
            f"w{n}": DTensor.from_local(part, _mesh(), [Shard(0)]) for n, part in enumerate(parts)
        }
    ours, theirs = f"{folder}/model", f"{folder}/theirs"
    writer = ShardedWriter(ours, step=1, keep=1)
    seconds = {
        "save": _best(repeats, lambda: save(state, storage_writer=writer)),
        "load": _best(repeats, lambda: load_latest(ours, state), before=lambda: _evict(folder)),
        "save of DCP": _best(repeats, lambda: save(state, checkpoint_id=theirs)),
        "load of DCP": _best(
            repeats, lambda: load(state, checkpoint_id=theirs), before=lambda: _evict(folder)
        ),
    }
    return seconds


def _best(
    repeats: int, work: Callable[[], object], before: Callable[[], None] = lambda: None
) -> float:
    """Return the seconds of the fastest of several runs, from the first rank's start to the last rank's end."""
    seconds = []
    for _ in range(repeats):
        before()
        _barrier()
        started = time.monotonic()
        work()
        _barrier()
        seconds.append(time.monotonic() - started)
    return min(seconds)


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def _evict(folder: str) -> None:
    """Let the next read come from the disk."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


_CREATED = re.compile(r"\.dcp|\.(data|part|shards)$")  # names of files of checkpoints


def _kill_before(number: int) -> None:
    """Kill this process before its n-th operation on files: create, write, flush, rename or remove."""
    left = number

    def count() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def audit(event: str, values: tuple[Any, ...]) -> None:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
        if changes or (
            event == "open" and _CREATED.search(str(values[0])) and values[2] & os.O_CREAT
        ):
            count()

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            count()
            return real(*arguments)

        return call

    sys.addaudithook(audit)
    os.fsync = counting(os.fsync)
    os.pwrite = counting(os.pwrite)
