"""The memory of a staging directory: buffers that a program fills again and again, and the file that it writes to."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from hai.task import checkpoint_files, env, staging
from hai.task.block_file import BlockFile, SeekableFile, write_all
from hai.task.staging import FileInMemory

TYPE_CHECKING = False  # type checkers assume True
if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer as Bytes

    Prepare = Callable[[memoryview], Callable[[], None]]

_COPY_BYTES = 16 << 20
_SPARE_SHARE = 0.05  # part of the machine's memory that stays free
_CGROUP = Path("/sys/fs/cgroup")
_SPARE_TMPFS_SHARE = 0.2  # part of the tmpfs that stays free: workers of a DataLoader may need it


class StagingFull(OSError):
    """The checkpoint does not fit into the memory that is allowed or free."""


class Buffer:
    """A locked file in the staging directory, which holds one checkpoint at a time.

    The lock ends with this process. `filling` is true from the time at which it is taken until it is staged or dropped.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{time.time_ns():020d}-{os.getpid()}{staging.DATA}"
        self.filling = False
        self._unprepare: Callable[[], None] | None = None
        self._file = checkpoint_files.create_locked(self.path)
        self._fileno = self._file.fileno()
        self._memory: memoryview | None = None

    @property
    def size(self) -> int:
        """The allocated bytes."""
        return os.fstat(self._fileno).st_size

    def stage(self, target: Path, size: int, step: int, keep: int) -> None:
        """Publish the first `size` bytes as a staged checkpoint."""
        staging.publish(self.path.parent, target, [FileInMemory(self.path, size)], step, keep)
        self.filling = False

    def memory(self, size: int, prepare: Prepare | None = None) -> memoryview:
        """Return the first `size` bytes as memory. They are allocated and mapped first, if that was not done before.

        `prepare` is then called with the memory, and what it returns is called before the memory is unmapped. Raises
        OSError if the memory of the node does not suffice.
        """
        if self._memory is None or len(self._memory) < size:
            self._unmap()
            os.posix_fallocate(
                self._fileno, 0, size
            )  # otherwise a full tmpfs would kill the program
            self._memory = memoryview(mmap.mmap(self._fileno, size))
            with open("/dev/zero", "rb", buffering=0) as zeros:  # maps the pages without the GIL
                for start in range(0, size, _COPY_BYTES):
                    zeros.readinto(self._memory[start : start + _COPY_BYTES])
            self._unprepare = prepare(self._memory) if prepare is not None else None
        return self._memory[:size]

    def write(self, data: memoryview, offset: int) -> None:
        write_all(self._fileno, data, offset)

    def read(self, into: memoryview, offset: int) -> int:
        return os.preadv(self._fileno, [into], offset)

    def reopen(self) -> None:
        """Lock the file at the path, after a library may have replaced it."""
        if os.path.samestat(os.fstat(self._fileno), self.path.stat()):
            return
        file = self.path.open("r+b", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
        self.close()
        self._file, self._fileno = file, file.fileno()

    def truncate(self, size: int) -> None:
        """Set the allocated bytes. The memory is no longer mapped."""
        self._unmap()
        os.ftruncate(self._fileno, size)

    def remove(self) -> None:
        """Remove the file. Its memory is free when no process has it mapped."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Unmap and unlock the file."""
        self._unmap()
        self._file.close()

    def _unmap(self) -> None:
        if self._unprepare is not None:
            self._unprepare()
        self._unprepare = self._memory = None


class Buffers:
    """The buffers of this process in one staging directory. `limit` is for all tasks of the node, in bytes; 0: none."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._buffers: list[Buffer] = []
        self._shard: Buffer | None = None  # of the last sharded checkpoint
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def take(self, size: int, *, new: bool = False) -> Buffer:
        """Return a free buffer, of `size` bytes if that is known (not 0), which the caller fills.

        With `new`, it is a new file, in place of the buffers that are free. If there is no memory for another buffer,
        wait until a checkpoint of this process is durable. Raises StagingFull if the checkpoint never fits.
        """
        with self._lock:
            buffer = self._take(size, new)
            buffer.filling = True
            return buffer

    def take_shard(self, size: int) -> Buffer:
        """Return a buffer for the file of this rank in a sharded checkpoint, which another rank stages.

        The buffer is kept from other saves until the next call, because this rank does not know when it is staged.
        """
        with self._lock:
            if self._shard is not None:
                self._shard.filling = False  # its save is over
            self._shard = self._take(size)
            self._shard.filling = True
            return self._shard

    def discard(self, buffer: Buffer) -> None:
        """Free the memory of a buffer whose content is not needed."""
        with self._lock:
            self._buffers.remove(buffer)
            buffer.remove()

    def reserve(self, size: int, prepare: Prepare | None = None) -> None:
        """Allocate and map a buffer of `size` bytes, so that the next save need not. Raises OSError."""
        with self._lock:  # a save waits, because it needs the same buffer
            self._take(size).memory(size, prepare)

    def create_file(
        self, size: int, overflow: Callable[[], BlockFile], on_written: Callable[[int], None]
    ) -> StagedFile:
        """Return a file for a checkpoint of `size` bytes; 0 if that is unknown.

        `on_written` is called with the number of bytes that each call has added. Raises OSError if there is no memory.
        """
        buffer = self.take(size)
        try:
            memory = buffer.memory(size) if size else None
        except OSError:
            buffer.filling = False
            raise
        return StagedFile(buffer, memory, buffer.size + self.allowed(), overflow, on_written)

    def close(self) -> None:
        """Unlock the buffers, as the end of this process does."""
        while self._buffers:
            self._buffers.pop().close()

    def _take(self, size: int, new: bool = False) -> Buffer:
        if self._owner != os.getpid():  # the parent of this forked process owns the buffers
            self._buffers, self._owner = [], os.getpid()
        # Another thread stages a buffer before it is no longer being filled, so look at `filling` first.
        idle = [buffer for buffer in self._buffers if not buffer.filling]
        used = staging.used_buffers(self._directory)
        free = [buffer for buffer in idle if buffer.path not in used]
        fitting = [buffer for buffer in free if buffer.size >= size and not new]
        if fitting:
            return (min if size else max)(fitting, key=lambda buffer: buffer.size)
        for other in free:
            self._buffers.remove(other)
            other.remove()
        if size > self.allowed():
            paths = {buffer.path for buffer in self._buffers}
            staged = staging.pending(self._directory)
            busy = [each for each in staged if paths & {file.data for file in each.files}]
            if not busy:
                raise StagingFull(f"{size} bytes do not fit into {self.allowed()} bytes")
            # This also waits for another process that writes it. Then the buffer is free.
            staging.write_out_all(self._directory, busy[0].target)
            return self._take(size, new)
        buffer = Buffer(self._directory)
        self._buffers.append(buffer)
        return buffer

    def allowed(self) -> int:
        """Return how many more bytes may be staged on this node now."""
        disk = os.statvfs(self._directory)
        free_blocks = disk.f_bavail - int(_SPARE_TMPFS_SHARE * disk.f_blocks)
        allowed = min(_available_bytes(), free_blocks * disk.f_bsize)
        if self._limit:
            allowed = min(allowed, self._limit - _allocated_bytes(self._directory.parent))
        return max(allowed, 0)

    def reusable(self) -> int:
        """Return the bytes of all buffers of this task that hold no staged checkpoint."""
        used = staging.used_buffers(self._directory)
        paths = self._directory.glob(f"*{staging.DATA}")
        return sum(_sizes(path for path in paths if path not in used))


class StagedFile(SeekableFile):
    """The file that a program writes a checkpoint to. It is in memory, until it exceeds what is allowed.

    Then everything is written to `overflow()`, a new file on durable storage, and so is what follows.
    """

    def __init__(
        self,
        buffer: Buffer,
        memory: memoryview | None,
        allowed: int,
        overflow: Callable[[], BlockFile],
        on_written: Callable[[int], None],
    ) -> None:
        super().__init__()
        self.buffer = buffer
        self._memory = memory  # of the buffer, if the size is known
        self._allowed = allowed
        self._overflow = overflow
        self._direct: BlockFile | None = None
        self._on_written = on_written

    def tell(self) -> int:
        return self._direct.tell() if self._direct is not None else super().tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self._direct is not None:
            return self._direct.seek(offset, whence)
        return super().seek(offset, whence)

    def extend(self, count: int) -> memoryview | None:
        """Append `count` bytes, which the caller fills in the returned memory; None if they must be written instead."""
        end = self._position + count
        if self._memory is None or self._position != self.size or end > len(self._memory):
            return None
        part = self._memory[self._position : end]
        self._advance(end)
        return part

    def write(self, data: Bytes) -> int:
        view = memoryview(data)
        if not view.nbytes:
            return 0
        view = view.cast("B")
        if self._direct is None and not self._write_to_memory(view):
            self.spill()
        if self._direct is not None:
            self._direct.write(view)
        return len(view)

    def readinto(self, buffer: Bytes) -> int:
        if self._direct is not None:
            return self._direct.readinto(buffer)
        view = memoryview(buffer).cast("B")
        count = self.buffer.read(view[: max(self.size - self._position, 0)], self._position)
        self._position += count
        return count

    def truncate(self, size: int | None = None) -> int:
        if self._direct is not None:
            return self._direct.truncate(size)
        new = self._position if size is None else size
        for start in range(
            self.size, new, _COPY_BYTES
        ):  # a buffer that was used before has old bytes
            self.buffer.write(memoryview(bytes(min(_COPY_BYTES, new - start))), start)
        self.size = new
        return new

    def close(self) -> None:
        """Let the buffer be filled again, unless it is staged."""
        if not self.closed:
            self.buffer.filling = False
        super().close()

    def flush(self) -> None:
        if self._direct is not None and not self._direct.closed:
            self._direct.flush()

    def _write_to_memory(self, view: memoryview) -> bool:
        """Return False if the bytes are not allowed or do not fit."""
        end = self._position + len(view)
        if end > self._allowed:
            return False
        try:
            if self._position > self.size:  # bytes of a gap are zero
                self.truncate(self._position)
            if self._memory is not None and end <= len(self._memory):
                self._memory[self._position : end] = view
            else:
                self.buffer.write(view, self._position)
        except OSError:  # the tmpfs is full
            return False
        self._advance(end)
        return True

    def _advance(self, end: int) -> None:
        self._position = end
        self._on_written(max(end - self.size, 0))
        self.size = max(self.size, end)

    def spill(self) -> None:
        """Write the content to a new file on durable storage, and what follows, too."""
        direct = self._overflow()
        block = memoryview(bytearray(_COPY_BYTES))
        for start in range(0, self.size, _COPY_BYTES):
            part = block[: min(_COPY_BYTES, self.size - start)]
            self.buffer.read(part, start)
            direct.write(part)
        direct.seek(self._position)
        self._direct, self._memory = direct, None
        self.buffer.truncate(0)


_buffers: dict[Path, Buffers] = {}


def buffers(directory: Path) -> Buffers:
    """Return the buffers of this process in a staging directory. HAI_STAGING_BYTES limits those of the node."""
    if directory not in _buffers:
        _buffers[directory] = Buffers(directory, int(os.environ.get(env.STAGING_BYTES) or 0))
    return _buffers[directory]


def has_room(directory: Path, error: Exception) -> bool:
    """Return False if a write has failed with `error` because the memory is full, or its directory was removed.

    A library may raise an error of its own.
    """
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return False
    return directory.exists() and os.statvfs(directory).f_bavail > 0


def _allocated_bytes(root: Path) -> int:
    """Return the bytes of all buffers on the node. Each task has a directory in `root`."""
    return sum(_sizes(root.glob(f"*/*{staging.DATA}")))


def _sizes(paths: Iterator[Path]) -> Iterator[int]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield path.stat().st_blocks * 512


def _available_bytes() -> int:
    """Return the memory that the machine and the container can give, less a spare part of the machine's."""
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":", 1) for line in file)
    total, available = (int(facts[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    return min(available - int(_SPARE_SHARE * total), _container_bytes(_CGROUP))


def _container_bytes(cgroup: Path) -> int:
    """Return what a container may use up to its memory limit, which also counts its files in a tmpfs.

    Cached files of disks count as free.
    """
    try:
        limit, used = ((cgroup / f"memory.{name}").read_text() for name in ("max", "current"))
        lines = (cgroup / "memory.stat").read_text().splitlines()
    except FileNotFoundError:  # no container, or cgroups of version 1
        return sys.maxsize
    if limit.strip() == "max":
        return sys.maxsize
    facts = {name: int(value) for name, value in (line.split() for line in lines)}
    return int(limit) - int(used) + facts["inactive_file"] + facts["active_file"]
