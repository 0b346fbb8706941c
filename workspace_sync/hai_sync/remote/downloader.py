"""Downloads contents of a revision or a task into a directory. Each is verified, and named by its digest.

A broken stream leaves a `.part` file, which the next stream resumes. If the server sends another order, other sizes
or other bytes than announced, the data are discarded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from blake3 import blake3

from hai.client.connection.backoff import delays
from hai.client.errors import Conflict, HaiError, TimedOut, Unreachable
from hai.v1.workspace_service_pb2 import FetchFilesRequest, FetchFilesResponse, FilePart
from hai_sync.core.entry import Entry, Tree
from hai_sync.errors import ProtocolViolation, RemoteFileChanged
from hai_sync.remote.contents import decompress
from hai_sync.remote.endpoint import MAX_ATTEMPTS, Remote

_PATHS = 4000  # maximum number of paths in one request
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Download:
    """Which files of which revision are downloaded into which directory."""

    revision: int
    files: Mapping[str, Entry]
    folder: Path
    compressed: bool = True
    task: int = 0  # if set, the files of this task's directory instead of a revision

    def path_of(self, digest: bytes) -> Path:
        """Return the path of a complete content."""
        return self.folder / digest.hex()


def count_remaining(download: Download) -> tuple[int, int]:
    """Return the number and bytes of contents to download, without those that an earlier stream has left."""
    local_sizes: dict[str, int] = {}
    with suppress(FileNotFoundError):
        local_sizes = {item.name: item.stat().st_size for item in os.scandir(download.folder)}
    sizes = {entry.digest.hex(): entry.size for entry in download.files.values()}
    missing = {name: size for name, size in sizes.items() if name not in local_sizes}
    parts = ((local_sizes.get(f"{name}.part", 0), size) for name, size in missing.items())
    return len(missing), sum(missing.values()) - sum(part for part, size in parts if part <= size)


async def fetch_contents(remote: Remote, download: Download, progress: Progress) -> None:
    """Download all missing contents. Raises HaiError or OSError."""
    download.folder.mkdir(parents=True, exist_ok=True)
    retry_delays = delays()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            for paths in _requests(download):
                await _fetch_some(remote, download, paths, progress)
            return
        except (Unreachable, TimedOut):
            if attempt == MAX_ATTEMPTS:
                raise
        await asyncio.sleep(next(retry_delays))


@asynccontextmanager
async def temporary_copies(
    remote: Remote, revision: int, files: Tree, task: int = 0
) -> AsyncIterator[Callable[[str], Path]]:
    """Fetch files into a temporary directory. Yield a function that returns the path of a file, valid until the block
    ends.
    """
    with TemporaryDirectory(prefix="hai-") as folder:
        download = Download(revision, files, Path(folder), task=task)
        await fetch_contents(remote, download, lambda files, size: None)
        yield lambda path: download.path_of(files[path].digest)


def _requests(download: Download) -> list[list[str]]:
    """Return batches of paths to request, one path for each missing content."""
    missing: dict[bytes, str] = {}
    for path, entry in download.files.items():
        if entry.digest not in missing and not download.path_of(entry.digest).exists():
            missing[entry.digest] = path
    paths = list(missing.values())
    return [paths[i : i + _PATHS] for i in range(0, len(paths), _PATHS)]


async def _fetch_some(
    remote: Remote, download: Download, paths: Sequence[str], progress: Progress
) -> None:
    """Fetch some contents with one request. Raises RemoteFileChanged if a program has changed a file."""
    writer = _Writer(download, paths, progress)
    request = FetchFilesRequest(
        name=remote.name,
        user=remote.user,
        revision=download.revision,
        paths=paths,
        offsets=[writer.partial_bytes(path) for path in paths],
        accept_compressed=download.compressed,
        task=download.task,
    )
    try:
        async for response in remote.connection.stream(remote.stub.FetchFiles, request):
            await asyncio.to_thread(writer.write_response, response)
            await remote.rate_limit.wait(len(response.data))
        writer.require_end()
    except Conflict as error:
        if error.reason != RemoteFileChanged.default_reason:
            raise
        raise RemoteFileChanged(writer.next_path, str(error)) from error
    finally:
        writer.close()


class _Writer:
    """Verifies and writes received parts. Files arrive in the order of the request."""

    def __init__(self, download: Download, paths: Sequence[str], progress: Progress) -> None:
        self._download = download
        self._paths = paths
        self._progress = progress
        self._index = 0
        self._file: int | None = None
        self._offset = 0
        self._hash = blake3()

    def partial_bytes(self, path: str) -> int:
        """Return the size of the `.part` file that an earlier stream has left."""
        part = self._part(path)
        size = part.stat().st_size if part.exists() else 0
        if size > self._download.files[path].size:
            part.unlink()
            return 0
        return size

    @property
    def next_path(self) -> str:
        """The file whose next part is expected."""
        return self._paths[min(self._index, len(self._paths) - 1)]

    def write_response(self, response: FetchFilesResponse) -> None:
        """Write the parts of one message."""
        data = decompress(
            response.data, [part.size for part in response.parts], response.compressed
        )
        position = 0
        for part in response.parts:
            self._write_part(part, memoryview(data)[position : position + part.size])
            position += part.size

    def _write_part(self, part: FilePart, data: memoryview) -> None:
        """Verify one part and write it to the `.part` file of its content."""
        if self._index >= len(self._paths) or part.index != self._index:
            raise ProtocolViolation(
                f"the server sent file {part.index} where {self._index} was due"
            )
        path = self._paths[self._index]
        if self._file is None:
            self._open(path)
        entry = self._download.files[path]
        if part.offset != self._offset or part.offset + part.size > entry.size:
            raise self._wrong_content(path, f"bytes {part.offset}+{part.size} of {entry.size}")
        self._write(data)
        self._progress(0, part.size)
        if part.last:
            self._finish(path, entry)

    def _open(self, path: str) -> None:
        """Open the `.part` file of a content, and hash what an earlier stream has left in it."""
        part = self._part(path)
        self._file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._hash = blake3()
        self._offset = 0
        while block := os.read(self._file, 1 << 20):
            self._hash.update(block)
            self._offset += len(block)

    def _write(self, data: memoryview) -> None:
        assert self._file is not None
        self._hash.update(data)
        self._offset += len(data)
        while data:
            data = data[os.write(self._file, data) :]

    def _finish(self, path: str, entry: Entry) -> None:
        """Verify a complete content and give it its final name."""
        if self._offset != entry.size or self._hash.digest() != entry.digest:
            raise self._wrong_content(path, "its content is not what its digest says")
        self.close()
        os.replace(self._part(path), self._download.path_of(entry.digest))
        self._index += 1
        self._progress(1, 0)

    def require_end(self) -> None:
        """Raise Unreachable unless all files are complete."""
        if self._index < len(self._paths):
            raise Unreachable(f"the stream ended before {self._paths[self._index]!r} was complete")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _part(self, path: str) -> Path:
        return self._download.path_of(self._download.files[path].digest).with_suffix(".part")

    def _wrong_content(self, path: str, reason: str) -> HaiError:
        """Delete the `.part` file and return the error about wrong data."""
        self.close()
        self._part(path).unlink(missing_ok=True)
        if task := self._download.task:
            return Conflict(
                f"{path!r} has changed while it was fetched; nothing was changed here",
                hint=f"task {task} still writes it: try again, possibly after the task has ended",
            )
        return ProtocolViolation(
            f"the server sent wrong contents of {path!r}: {reason}; nothing was changed"
        )
