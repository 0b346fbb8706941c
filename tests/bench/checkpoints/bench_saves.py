"""Save and load states of PyTorch: the time of each way beside the speed of memory and of the disk.

A staged save is measured after `checkpoint.reserve`, as the Loop does it. "asked until the node is free" is measured
with a real server, agent and program: from the request to suspend until the end of the run.

HAI_BENCH_STATE_GB sets the sizes, default `1`; HAI_BENCH_DIRECTORY the disk, default the temporary directory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hai.task import staging_buffers
from hai_backend.launch.staging import default_root
from tests.bench.figures import Figure
from tests.support.deployment import process_deployment

REPEATS = 3
TENSOR_BYTES = 64 << 20
DURABLE_SHARE, LOAD_SHARE = 0.85, 0.85  # of what dd writes, and of what reads the file
STALL_SHARE, LEAVE_SHARE = 1.3, 1.5  # of a memory copy
MEMORY_SHARE = 1.01  # of the state: the header and whole pages
WRITER = "hai_backend.launch.checkpoint_writer"


def figures() -> Iterator[Figure]:
    with suppress(ImportError):
        import torch  # noqa: F401 - without it there is nothing to measure

        for gigabytes in map(float, os.environ.get("HAI_BENCH_STATE_GB", "1").split(",")):
            yield from _figures_of(int(gigabytes * (1 << 30)))


def _figures_of(size: int) -> Iterator[Figure]:
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save as save_planned

    from hai.task import checkpoint
    from hai.task.integrations.state_file import unpack_state, write_state

    label = f"{size / (1 << 30):g} GB"
    directory = Path(tempfile.mkdtemp(dir=os.environ.get("HAI_BENCH_DIRECTORY")))
    state = {f"w{n}": torch.randn(TENSOR_BYTES // 4) for n in range(max(size // TENSOR_BYTES, 1))}
    size = sum(tensor.nbytes for tensor in state.values())
    model = directory / "model"
    try:
        copy = _copy_seconds(state)
        yield Figure(f"memory copy, {label}", copy, "s")
        disk = best(lambda: _dd(directory / "dd", size))
        yield Figure(f"dd oflag=direct conv=fsync, {label}", disk, "s")
        save = best(lambda: checkpoint.save(model, lambda file: write_state(file, state), keep=1))
        yield Figure(f"checkpoint.save until durable, {label}", save, "s", disk / DURABLE_SHARE)
        yield from _staged_figures(directory, state, label, size, copy, disk)
        plain = best(lambda: _torch_save(state, directory / "plain"))
        yield Figure(f"torch.save + fsync, {label}", plain, "s")
        (directory / "plain").unlink()
        planned = best(lambda: save_planned(state, checkpoint_id=directory / "dcp"))
        yield Figure(f"torch.distributed.checkpoint.save, {label}", planned, "s")
        shutil.rmtree(directory / "dcp")
        yield Figure(f"DCP async_save returns, {label}", _async_seconds(state, directory), "s")
        found = checkpoint.latest(model)
        assert found is not None
        read = best(lambda: _read(found.path), before=lambda: _drop_cache(found.path))
        yield Figure(f"reading the file, {label}", read, "s")

        def load() -> object:
            loaded = checkpoint.read_latest(model)
            return loaded and unpack_state(loaded[1])

        verified = best(load, before=lambda: _drop_cache(found.path))
        yield Figure(f"load and verify, {label}", verified, "s", read / LOAD_SHARE)
    finally:
        shutil.rmtree(directory)


def _staged_figures(
    directory: Path, state: dict[str, Any], label: str, size: int, copy: float, disk: float
) -> Iterator[Figure]:
    from hai.task import checkpoint, env, staging
    from hai.task.integrations.state_file import layout_of, unpack_state, write_layout

    root = default_root(directory)
    memory = root / "1"
    memory.mkdir(parents=True)
    layout = layout_of(state)
    stalls, writes = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(env.STAGING_DIR, str(memory))
        staging_buffers.buffers(memory).reserve(layout.size)
        for step in range(REPEATS):
            started = time.monotonic()
            checkpoint.save(
                directory / "staged",
                lambda file: write_layout(file, layout),
                step=step,
                size=layout.size,
                keep=1,
            )
            stalls.append(time.monotonic() - started)
            started = time.monotonic()
            if step < REPEATS - 1:
                subprocess.run([sys.executable, "-m", WRITER, str(root)], check=True)
                writes.append(time.monotonic() - started)
        used = sum(path.stat().st_blocks * 512 for path in memory.iterdir())
        yield Figure(f"training stands still, {label}", min(stalls), "s", STALL_SHARE * copy)
        yield Figure(f"writer until durable, {label}", min(writes), "s", disk / DURABLE_SHARE)
        yield Figure(f"memory for staged checkpoints, {label}", used / size, "x", MEMORY_SHARE)
        staging_buffers.buffers(memory).close()  # as if the program had ended
        started = time.monotonic()
        found = checkpoint.read_latest(directory / "staged")
        assert found is not None
        unpack_state(found[1])
        yield Figure(f"load from memory, {label}", time.monotonic() - started, "s")
        del found
    staging.write_out_all(memory)
    shutil.rmtree(root)
    shutil.rmtree(directory / "staged", ignore_errors=True)
    freed = asyncio.run(_leave_seconds(directory / "home", size))
    yield Figure(f"asked until the node is free, {label}", freed, "s", LEAVE_SHARE * copy + 0.3)


PROGRAM = """
import sys, time, torch
from hai.task.integrations.torch import Loop

class State:
    def state_dict(self):
        return self.tensors
    def load_state_dict(self, state):
        self.tensors = state

state = State()
state.tensors = {f"w{n}": torch.randn(16 << 20) for n in range(int(sys.argv[1]))}
for step in Loop({"state": state}).steps(1_000_000):
    time.sleep(0.05)
    print(step, flush=True)
"""


async def _leave_seconds(home: Path, size: int) -> float:
    """Return the seconds from a request to suspend until the end of the run."""
    async with process_deployment(home) as here:
        spec = here.spec("leaves", PROGRAM, str(size // TENSOR_BYTES))
        task = await here.client.tasks.create(spec)
        await here.until_printed(task.id, "100")
        started = time.monotonic()
        await here.client.tasks.suspend(task.id, hold=True)
        await here.client.tasks.wait(task.id, "suspended", timeout=120)
        return time.monotonic() - started


def _async_seconds(state: Any, directory: Path) -> float:
    """Return the seconds for which DCP's async_save stops the program."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict_saver import async_save

    dist.init_process_group("gloo", f"file://{directory}/ranks", rank=0, world_size=1)
    try:
        started = time.monotonic()
        future = async_save(state, checkpoint_id=directory / "async")
        seconds = time.monotonic() - started
        future.result()
    finally:
        dist.destroy_process_group()
    shutil.rmtree(directory / "async")
    return seconds


def best(work: Callable[[], object], before: Callable[[], None] = lambda: None) -> float:
    """Return the seconds of the fastest of several runs. `before` prepares each of them."""
    seconds = []
    for _ in range(REPEATS):
        before()
        started = time.monotonic()
        work()
        seconds.append(time.monotonic() - started)
    return min(seconds)


def _copy_seconds(state: dict[str, Any]) -> float:
    """Return the seconds of a copy into memory that was used before."""
    import torch

    target = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    return best(lambda: [target[name].copy_(tensor) for name, tensor in state.items()])


def _dd(path: Path, size: int) -> None:
    block = 16 << 20
    command = ["dd", "if=/dev/zero", f"of={path}", f"bs={block}", f"count={size // block}"]
    subprocess.run([*command, "oflag=direct", "conv=fsync"], check=True, capture_output=True)
    path.unlink()


def _torch_save(state: Any, path: Path) -> None:
    import torch

    torch.save(state, path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(16 << 20)
        while file.readinto(buffer):
            pass


def _drop_cache(path: Path) -> None:
    """Let the next read come from the disk."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
