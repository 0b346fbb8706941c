"""Contents of files by digest: `incoming` holds what a push brought, `objects` older versions that are kept.

Both lie beside the tree, on its file system, so that content moves between them and the tree by rename.
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

from hai_backend.workspaces.storage.directories import DIRECTORY

PIECE = 1 << 20
_SMALL_BYTES = 64 << 10
_LARGE_BYTES, _LARGE_PIECE = 64 << 20, 8 << 20
_CLONE = 0x40049409  # FICLONE: share blocks, where the file system can
_CANNOT = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.EPERM}
)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_VECTORS = 512  # parts of one write; Linux takes 1024
_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_NOREPLACE = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Contents:
    """One flat directory of files named by digest. Names may have an end: `.part`, `.2`."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True, mode=0o700)
        self.folder = os.open(path, DIRECTORY)
        self._doubtful: set[str] = set()
        self._flushing = ThreadPoolExecutor(1, "flushing")  # a slow disk keeps nobody else waiting
        self._early: Future[None] | None = None
        self._failure: OSError | None = None

    def close(self) -> None:
        self._flushing.shutdown()
        os.close(self.folder)

    def names(self) -> list[str]:
        with self._listing() as folder:
            return os.listdir(folder)

    def doubt(self) -> None:
        """What is here was left by another process, perhaps in the middle of a write: `has` reads it first."""
        self._doubtful = {name for name in self.names() if "." not in name}

    def has(self, name: str, listed: Collection[str] | None = None) -> bool:
        """Whether it is here, and whole. Who asks for many has `listed` the names just now."""
        if listed is None:
            try:
                os.stat(name, dir_fd=self.folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
        elif name not in listed:
            return False
        return name not in self._doubtful or self._is_whole(name)

    def _is_whole(self, name: str) -> bool:
        self._doubtful.discard(name)
        with opened(self.open(name)) as file:
            whole = digest_of(file).hex() == name
        if not whole:
            self.remove(name)
        return whole

    def put(self, name: str, data: memoryview) -> None:
        """A whole file, in place of what may be there."""
        self._doubtful.discard(name)
        file = os.open(name, CREATE | os.O_TRUNC, 0o644, dir_fd=self.folder)
        try:
            write_all(file, data)
        except BaseException:
            self.remove(name)
            raise
        finally:
            os.close(file)

    def write_at(self, name: str, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Parts of a file that is being put together, by place; neighbours are written at once."""
        with opened(self.create(name)) as file:
            for place, data in _neighbours(parts):
                _write_at(file, place, data)

    def create(self, name: str) -> int:
        """A file to write to; what is in it stays."""
        return os.open(name, CREATE, 0o644, dir_fd=self.folder)

    def open(self, name: str) -> int:
        return os.open(name, _READ, dir_fd=self.folder)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.folder)

    def size(self) -> int:
        """Bytes of all files."""
        with self._listing() as folder, os.scandir(folder) as found:
            return sum(file.stat(follow_symlinks=False).st_size for file in found)

    @contextmanager
    def _listing(self) -> Iterator[int]:
        """Opened anew: one place in a listing is shared by all who list one descriptor, and on btrfs that shows nothing
        of what came after it was opened."""
        with opened(os.open(".", DIRECTORY, dir_fd=self.folder)) as folder:
            yield folder

    def sync(self, names: list[str] | None) -> None:
        """These are on disk when it returns; None: everything on this file system, for many that is faster."""
        if self._early is not None:
            wait((self._early,))
        if names is None:
            self._flush()
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        if names is not None:
            self._sync_each(names)

    def _sync_each(self, names: list[str]) -> None:
        for name in names:
            with opened(self.open(name)) as file:
                os.fdatasync(file)
        os.fsync(self.folder)

    def sync_early(self, names: Sequence[str] = ()) -> None:
        """The disk may begin with these, or with everything; `sync` has less to do then. Not twice at a time."""
        if self._early is None or self._early.done():
            submit = self._flushing.submit
            self._early = submit(self._begin, names) if names else submit(self._flush)

    def _begin(self, names: Sequence[str]) -> None:
        """Unlike `_flush`, this does not wait for what others write on the same file system."""
        for name in names:
            with suppress(FileNotFoundError), opened(self.open(name)) as file:
                write_back(file)

    def _flush(self) -> None:
        """A failure is told by the kernel once, and by us to whoever must know that all is on disk."""
        if _libc.syncfs(self.folder) != 0:
            self._failure = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def opened(file: int) -> Iterator[int]:
    """Closed at the end."""
    try:
        yield file
    finally:
        os.close(file)


def open_in(folder: int, name: str) -> int:
    """For reading; a link is not followed, a pipe not waited for."""
    return os.open(name, _READ, dir_fd=folder)


def rename_into_nothing(source: str, above: int, target: str, below: int) -> bool:
    """In one step, only where nothing is; False: something is, or the file system cannot. Raises FileNotFoundError."""
    sys.audit("os.rename", source, target, above, below)
    old, new = os.fsencode(source), os.fsencode(target)
    if _libc.renameat2(above, old, below, new, _NOREPLACE) == 0:
        return True
    if ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, "it has been moved", source)
    return False


def write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def _neighbours(
    parts: Iterable[tuple[int, memoryview]],
) -> Iterator[tuple[int, list[memoryview]]]:
    begin, end, run = 0, 0, list[memoryview]()
    for place, data in parts:
        if run and (place != end or len(run) >= _VECTORS):
            yield begin, run
            run = []
        if not run:
            begin = end = place
        run.append(data)
        end += len(data)
    if run:
        yield begin, run


def _write_at(file: int, place: int, run: list[memoryview]) -> None:
    written = os.pwritev(file, run, place)
    for data in run:
        if written < len(data):
            write_all_at(file, place + written, data[written:])
        place += len(data)
        written = max(0, written - len(data))


def write_all_at(file: int, place: int, data: memoryview) -> None:
    """All of it, wherever the file stands."""
    while data:
        written = os.pwrite(file, data, place)
        place, data = place + written, data[written:]


def write_back(file: int) -> None:
    """The disk may begin with it; nobody waits, who must know asks later."""
    _libc.sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), _WRITE)  # 0 bytes: all of it


def digest_of(file: int) -> bytes:
    """Of all that can be read, from the beginning; of a large file on all cores, for somebody waits."""
    size = os.fstat(file).st_size
    if size < _LARGE_BYTES:
        return _hashed(file, blake3(), min(PIECE, size + 1))
    return _hashed(file, blake3(max_threads=blake3.AUTO), _LARGE_PIECE)


def _hashed(file: int, hasher: blake3, size: int) -> bytes:
    piece, place = memoryview(bytearray(size)), 0
    while read := os.preadv(file, [piece], place):
        hasher.update(piece[:read])
        place += read
    return hasher.digest()


def copy_whole(source: int, target: int, digest: bytes) -> bool:
    """Into an empty file; whether that has this digest. A small one is read once, and hashed on its way."""
    small = os.pread(source, _SMALL_BYTES + 1, 0)
    if len(small) <= _SMALL_BYTES and blake3(small).digest() == digest:
        write_all(target, memoryview(small))
        return True
    _share(source, target)
    return digest_of(target) == digest


def _share(source: int, target: int) -> None:
    """Blocks, where that can be; else copied by the kernel."""
    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        copy_range(source, 0, target, 0, os.fstat(source).st_size)


def copy_range(source: int, begin: int, target: int, place: int, size: int) -> None:
    """Bytes of one file into another; ends early where the source does."""
    while size > 0:
        done = _copy_some(source, begin, target, place, size)
        if done == 0:
            return
        begin, place, size = begin + done, place + done, size - done


def _copy_some(source: int, begin: int, target: int, place: int, size: int) -> int:
    try:
        return os.copy_file_range(source, target, size, begin, place)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    return os.pwrite(target, os.pread(source, min(size, PIECE), begin), place)
