"""Save and load states of PyTorch: the time of each way beside the speed of memory and of the disk.

HAI_BENCH_STATE_GB sets the sizes, default `1`; HAI_BENCH_DIRECTORY the disk, default the temporary directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure

REPEATS = 3
TENSOR_BYTES = 64 << 20
DURABLE_SHARE, LOAD_SHARE = 0.85, 0.85  # of what dd writes, and of what reads the file


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
        yield Figure(f"memory copy, {label}", _copy_seconds(state), "s")
        disk = best(lambda: _dd(directory / "dd", size))
        yield Figure(f"dd oflag=direct conv=fsync, {label}", disk, "s")
        save = best(lambda: checkpoint.save(model, lambda file: write_state(file, state), keep=1))
        yield Figure(f"checkpoint.save until durable, {label}", save, "s", disk / DURABLE_SHARE)
        plain = best(lambda: _torch_save(state, directory / "plain"))
        yield Figure(f"torch.save + fsync, {label}", plain, "s")
        (directory / "plain").unlink()
        planned = best(lambda: save_planned(state, checkpoint_id=directory / "dcp"))
        yield Figure(f"torch.distributed.checkpoint.save, {label}", planned, "s")
        shutil.rmtree(directory / "dcp")
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
