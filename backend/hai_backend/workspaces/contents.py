"""Stores file contents by digest.

The directory `incoming` has contents that pushes brought, `objects` older versions that are retained. Both are on the
file system of the tree, so contents move between them and the tree by rename.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

from blake3 import blake3

from hai_backend.workspaces.storage.directories import OPEN_DIRECTORY

PIECE_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10
_LARGE_BYTES, _LARGE_PIECE_BYTES = 64 << 20, 8 << 20
_FICLONE = 0x40049409  # FICLONE: share blocks, where the file system can
_UNSUPPORTED = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.EPERM}
)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_VECTORS = 512  # buffers of one write; Linux accepts 1024
_SYNC_FILE_RANGE_WRITE = 2
_RENAME_NOREPLACE = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Contents:
    """One directory of files that are named by digest. Names may have a suffix, as in `.part` and `.2`."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True, mode=0o700)
        self.folder = os.open(path, OPEN_DIRECTORY)
        self._unverified: set[str] = set()
        self._flushing = ThreadPoolExecutor(
            1, "flushing"
        )  # one for each workspace, because disks may be slow
        self._early_sync: Future[None] | None = None
        self._failure: OSError | None = None

    def close(self) -> None:
        self._flushing.shutdown()
        os.close(self.folder)

    def list_names(self) -> list[str]:
        with self._listing() as folder:
            return os.listdir(folder)

    def mark_unverified(self) -> None:
        """Mark all files as unverified, because a process may have died while it wrote them. `has` reads such files."""
        self._unverified = {name for name in self.list_names() if "." not in name}

    def has(self, name: str, listed: Collection[str] | None = None) -> bool:
        """Return whether a complete file of this name exists. For many checks, pass the current names as `listed`."""
        if listed is None:
            try:
                os.stat(name, dir_fd=self.folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
        elif name not in listed:
            return False
        return name not in self._unverified or self._is_complete(name)

    def _is_complete(self, name: str) -> bool:
        self._unverified.discard(name)
        with closing_descriptor(self.open(name)) as file:
            complete = hash_file(file).hex() == name
        if not complete:
            self.remove(name)
        return complete

    def put(self, name: str, data: memoryview) -> None:
        """Write a complete file. Replace an existing one."""
        self._unverified.discard(name)
        file = os.open(name, CREATE | os.O_TRUNC, 0o644, dir_fd=self.folder)
        try:
            write_all(file, data)
        except BaseException:
            self.remove(name)
            raise
        finally:
            os.close(file)

    def write_at(self, name: str, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Write parts of an incomplete file at their offsets. Adjacent parts are written together."""
        with closing_descriptor(self.create(name)) as file:
            for offset, data in _merge_adjacent(parts):
                _write_at(file, offset, data)

    def create(self, name: str) -> int:
        """Open a file for writing without truncating it."""
        return os.open(name, CREATE, 0o644, dir_fd=self.folder)

    def open(self, name: str) -> int:
        return os.open(name, _READ, dir_fd=self.folder)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.folder)

    def count_bytes(self) -> int:
        """Return the total size of all files in bytes."""
        with self._listing() as folder, os.scandir(folder) as entries:
            return sum(file.stat(follow_symlinks=False).st_size for file in entries)

    @contextmanager
    def _listing(self) -> Iterator[int]:
        """Open the directory again for a listing.

        A descriptor has only one listing position, and on btrfs it does not list entries that are newer than itself.
        """
        with closing_descriptor(os.open(".", OPEN_DIRECTORY, dir_fd=self.folder)) as folder:
            yield folder

    def sync(self, names: list[str] | None) -> None:
        """Write these files to disk, or if `names` is None, the whole file system, which is faster for many files."""
        if self._early_sync is not None:
            wait((self._early_sync,))
        if names is None:
            self._flush()
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        if names is not None:
            self._sync_each(names)

    def _sync_each(self, names: list[str]) -> None:
        for name in names:
            with closing_descriptor(self.open(name)) as file:
                os.fdatasync(file)
        os.fsync(self.folder)

    def sync_early(self, names: Sequence[str] = ()) -> None:
        """Start to write these files to disk, or all if `names` is empty. Do nothing while an earlier start runs."""
        if self._early_sync is None or self._early_sync.done():
            submit = self._flushing.submit
            self._early_sync = (
                submit(self._start_writeback, names) if names else submit(self._flush)
            )

    def _start_writeback(self, names: Sequence[str]) -> None:
        """Start to write files to disk. Unlike `_flush`, this does not wait for other files on the file system."""
        for name in names:
            with suppress(FileNotFoundError), closing_descriptor(self.open(name)) as file:
                write_back(file)

    def _flush(self) -> None:
        """Flush the file system. The kernel reports a failure only once, so the next `sync` raises the failure."""
        if _libc.syncfs(self.folder) != 0:
            self._failure = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def closing_descriptor(file: int) -> Iterator[int]:
    """Close a file descriptor at the end of the block."""
    try:
        yield file
    finally:
        os.close(file)


def open_for_reading(folder: int, name: str) -> int:
    """Open a file for reading, without following links or waiting for the writer of a pipe."""
    return os.open(name, _READ, dir_fd=folder)


def rename_no_replace(source: str, source_fd: int, target: str, target_fd: int) -> bool:
    """Rename atomically unless the target exists. Return False if it exists, or if the file system cannot do this.

    Raise FileNotFoundError.
    """
    sys.audit("os.rename", source, target, source_fd, target_fd)
    old, new = os.fsencode(source), os.fsencode(target)
    if _libc.renameat2(source_fd, old, target_fd, new, _RENAME_NOREPLACE) == 0:
        return True
    if ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, "it has been moved", source)
    return False


def write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def _merge_adjacent(
    parts: Iterable[tuple[int, memoryview]],
) -> Iterator[tuple[int, list[memoryview]]]:
    """Yield the offset and the data of each run of adjacent parts."""
    start, end, run = 0, 0, list[memoryview]()
    for offset, data in parts:
        if run and (offset != end or len(run) >= _MAX_VECTORS):
            yield start, run
            run = []
        if not run:
            start = end = offset
        run.append(data)
        end += len(data)
    if run:
        yield start, run


def _write_at(file: int, offset: int, run: list[memoryview]) -> None:
    written = os.pwritev(file, run, offset)
    for data in run:
        if written < len(data):
            write_all_at(file, offset + written, data[written:])
        offset += len(data)
        written = max(0, written - len(data))


def write_all_at(file: int, offset: int, data: memoryview) -> None:
    """Write all data at an offset, regardless of the file position."""
    while data:
        written = os.pwrite(file, data, offset)
        offset, data = offset + written, data[written:]


def write_back(file: int) -> None:
    """Start to write a file to disk, without waiting and without reporting errors."""
    begin, complete = ctypes.c_int64(0), ctypes.c_int64(0)
    _libc.sync_file_range(file, begin, complete, _SYNC_FILE_RANGE_WRITE)


def hash_file(file: int) -> bytes:
    """Return the digest of a file's content. Large files are hashed on all cores, because a client is waiting."""
    size = os.fstat(file).st_size
    if size < _LARGE_BYTES:
        return _hash(file, blake3(), min(PIECE_BYTES, size + 1))
    return _hash(file, blake3(max_threads=blake3.AUTO), _LARGE_PIECE_BYTES)


def _hash(file: int, hasher: blake3, size: int) -> bytes:
    piece, offset = memoryview(bytearray(size)), 0
    while read := os.preadv(file, [piece], offset):
        hasher.update(piece[:read])
        offset += read
    return hasher.digest()


def copy_and_verify(source: int, target: int, digest: bytes) -> bool:
    """Copy into an empty file, and return whether the copy has this digest. A small file is read only once."""
    small = os.pread(source, _SMALL_BYTES + 1, 0)
    if len(small) <= _SMALL_BYTES and blake3(small).digest() == digest:
        write_all(target, memoryview(small))
        return True
    _clone_or_copy(source, target)
    return hash_file(target) == digest


def _clone_or_copy(source: int, target: int) -> None:
    """Clone the blocks if the file system supports cloning, else copy in the kernel."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        copy_range(source, 0, target, 0, os.fstat(source).st_size)


def copy_range(source: int, source_offset: int, target: int, offset: int, size: int) -> None:
    """Copy a range of one file into another; stop early where the source ends."""
    while size > 0:
        copied = _copy_some(source, source_offset, target, offset, size)
        if copied == 0:
            return
        source_offset, offset, size = source_offset + copied, offset + copied, size - copied


def _copy_some(source: int, source_offset: int, target: int, offset: int, size: int) -> int:
    try:
        return os.copy_file_range(source, target, size, source_offset, offset)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return os.pwrite(target, os.pread(source, min(size, PIECE_BYTES), source_offset), offset)
