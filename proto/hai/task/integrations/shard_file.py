"""The file of one rank in a sharded checkpoint: the bytes of its chunks and values, one after the other.

Each begins at a multiple of 64 bytes. Threads hash blocks while the file is written, and verify those that are read.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlanner,
    ReadItem,
    SavePlanner,
    WriteItem,
)
from torch.distributed.checkpoint.storage import WriteResult

from hai.task import block_file
from hai.task.block_file import BlockFile, Span, read_spans
from hai.task.current_channel import SaveProgress
from hai.task.integrations.shard_manifest import RankFile, StoredPart
from hai.task.staging_buffers import Buffers

_ALIGNMENT = 64
_BUFFER_BYTES = 256 << 20  # of host memory for tensors that cannot be read in place


class DamagedCheckpointError(Exception):
    """A file of a checkpoint is not what was saved."""


def write_file(path: Path, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    """Write a new file with these items, and flush it to disk. Without items, no file is written."""
    if not items:
        return []
    progress = SaveProgress(sum(map(size_of, items)))
    places = []
    try:
        with path.open("x+b", buffering=0) as file, BlockFile(file, progress.add) as blocks:
            for item in items:
                blocks.write(bytes(-blocks.tell() % _ALIGNMENT))
                start = blocks.tell()
                length = blocks.write(_bytes_of(planner.resolve_data(item)))
                places.append((item.index, start, length))
            digests = [digest.hex() for digest in blocks.finish_blocks()]
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        progress.end()
    written = RankFile(path.name, size, block_file.BLOCK_BYTES, digests)
    return [
        WriteResult(index, length, StoredPart(written, start, length))
        for index, start, length in places
    ]


def stage_file(
    name: str, items: list[WriteItem], planner: SavePlanner, buffers: Buffers
) -> list[WriteResult]:
    """Copy these items into a buffer, from which the file is written later. Raises OSError if there is no memory."""
    if not items:
        return []
    parts, size = [], 0
    for item in items:
        size += -size % _ALIGNMENT
        # Values are few and small. Tensors are resolved one after the other, because planners may create them.
        value = _value_of(item, planner) if item.tensor_data is None else None
        length = size_of(item) if value is None else len(value)
        parts.append((item, value, size, length))
        size += length
    progress = SaveProgress(size)
    try:
        buffer = buffers.take_shard(size)
        memory = buffer.memory(size)
        end, devices = 0, set[torch.device]()
        for item, value, start, length in parts:
            memory[end:start] = bytes(start - end)
            end = start + length
            if value is not None:
                memory[start:end] = value
            elif length:
                tensor: Any = planner.resolve_data(item)
                _copy(tensor, memory[start:end])
                devices |= {tensor.device} if tensor.is_cuda else set()
            progress.add(length)
        for device in devices:  # pinned memory is filled in the background
            torch.cuda.synchronize(device)
    finally:
        progress.end()
    written = RankFile(name, size, 0, [], buffer.path.name)
    return [
        WriteResult(item.index, length, StoredPart(written, start, length))
        for item, _, start, length in parts
    ]


def read_items(
    directory: Path, items: Iterable[ReadItem], metadata: Metadata, planner: LoadPlanner
) -> None:
    """Read these items from the files in a directory, and pass them to the planner.

    Raises DamagedCheckpointError if a block that contains them is not what was saved.
    """
    by_file: dict[str, list[ReadItem]] = {}
    for item in items:
        by_file.setdefault(metadata.storage_data[item.storage_index].file.name, []).append(item)
    for name, requested in by_file.items():
        try:
            with (directory / name).open("rb", buffering=0) as file:
                _read_file(file, requested, metadata, planner)
        except FileNotFoundError as error:
            raise DamagedCheckpointError(f"has no file {name}") from error


def _read_file(
    file: io.FileIO, items: list[ReadItem], metadata: Metadata, planner: LoadPlanner
) -> None:
    expected: RankFile = metadata.storage_data[items[0].storage_index].file
    if os.fstat(file.fileno()).st_size != expected.size:
        raise DamagedCheckpointError(f"has a file {expected.name} of another size")
    digests = [bytes.fromhex(digest) for digest in expected.digests]
    reads = (_prepare(item, metadata, planner) for item in items)
    for some in _batches(reads):
        if not read_spans(file, [read.span for read in some], digests, expected.block_bytes):
            raise DamagedCheckpointError(
                f"has a file {expected.name} that does not match its digest"
            )
        for read in some:
            read.finish(planner)


@dataclass(frozen=True, eq=False)
class _Read:
    """One item that is being read into memory."""

    item: ReadItem
    span: Span
    buffer: torch.Tensor | None = None  # the read rows; None if the target is the memory
    target: torch.Tensor | None = None  # None for a value

    def finish(self, planner: LoadPlanner) -> None:
        if self.target is None:
            planner.load_bytes(self.item, io.BytesIO(self.span.memory))
            return
        if self.buffer is not None:
            self.target.copy_(self.buffer)
        planner.commit_tensor(self.item, self.target)


def _prepare(item: ReadItem, metadata: Metadata, planner: LoadPlanner) -> _Read:
    stored: StoredPart = metadata.storage_data[item.storage_index]
    if item.type == LoadItemType.BYTE_IO:
        return _Read(item, Span(stored.start, memoryview(bytearray(stored.length))))
    entry = metadata.state_dict_metadata[item.storage_index.fqn]
    assert isinstance(entry, TensorStorageMetadata)
    chunk = next(c for c in entry.chunks if c.offsets == item.storage_index.offset)
    dtype = entry.properties.dtype
    target = planner.resolve_tensor(item).detach()
    # Only the rows along the first dimension are read, because they are contiguous in the file.
    shape = [*item.lengths[:1], *chunk.sizes[1:]]
    first = item.storage_offsets[0] * math.prod(chunk.sizes[1:]) if chunk.sizes else 0
    start = stored.start + first * dtype.itemsize
    if shape == list(target.shape) and _is_plain(target, dtype):
        return _Read(item, Span(start, _memory(target)), None, target)
    rows = torch.empty(shape, dtype=dtype, pin_memory=target.is_cuda)
    box = rows
    for dimension in range(1, len(shape)):
        box = box.narrow(dimension, item.storage_offsets[dimension], item.lengths[dimension])
    return _Read(item, Span(start, _memory(rows)), box, target)


def _batches(reads: Iterable[_Read]) -> Iterator[list[_Read]]:
    """Group reads so that those of one group need limited memory."""
    batch: list[_Read] = []
    buffered = 0
    for read in reads:
        batch.append(read)
        buffered += len(read.span.memory) if read.buffer is not None else 0
        if buffered >= _BUFFER_BYTES:
            yield batch
            batch, buffered = [], 0
    if batch:
        yield batch


def _is_plain(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether the memory of a tensor is that of a chunk of this type."""
    return bool(
        tensor.device.type == "cpu"
        and tensor.dtype == dtype
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def size_of(item: WriteItem) -> int:
    """Return the bytes of a tensor; 0 for a value, whose size is not known before."""
    if item.tensor_data is None:
        return 0
    size: int = math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize
    return size


def _bytes_of(data: Any) -> memoryview:
    if isinstance(data, io.BytesIO):
        return data.getbuffer()
    return _memory(data.detach().cpu().resolve_conj().resolve_neg().contiguous())


def _value_of(item: WriteItem, planner: SavePlanner) -> memoryview:
    data = planner.resolve_data(item)
    assert isinstance(data, io.BytesIO)
    return data.getbuffer()


def _copy(tensor: Any, memory: memoryview) -> None:
    """Copy the elements of a tensor on any device into memory of the same size."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    source = plain.reshape(-1).view(torch.uint8)
    torch.frombuffer(memory, dtype=torch.uint8).copy_(source, non_blocking=True)


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the host."""
    content: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(content)
