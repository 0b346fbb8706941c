"""Brings contents of a revision or a task into a directory, each under the name of its digest, verified.

What a broken stream leaves is a `.part` that the next one goes on with. A server that sends another
order, other sizes or other bytes than it promised is not believed: what it sent is thrown away.
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
from hai_sync.errors import BadPeer, Lost
from hai_sync.remote.contents import unpacked
from hai_sync.remote.endpoint import TRIES, Remote

_PATHS = 4000  # of one request
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Download:
    """What is wanted, from which revision, and where it shall lie."""

    revision: int
    files: Mapping[str, Entry]
    folder: Path
    compressed: bool = True
    task: int = 0  # from its own directory, not from a revision

    def place(self, digest: bytes) -> Path:
        """Where a content lies once it is whole."""
        return self.folder / digest.hex()


def due(download: Download) -> tuple[int, int]:
    """Contents that have still to come, and their bytes: each once, without what an earlier stream has left."""
    here: dict[str, int] = {}
    with suppress(FileNotFoundError):
        here = {item.name: item.stat().st_size for item in os.scandir(download.folder)}
    sizes = {entry.digest.hex(): entry.size for entry in download.files.values()}
    lacking = {name: size for name, size in sizes.items() if name not in here}
    parts = ((here.get(f"{name}.part", 0), size) for name, size in lacking.items())
    return len(lacking), sum(lacking.values()) - sum(part for part, size in parts if part <= size)


async def fetch(remote: Remote, download: Download, progress: Progress) -> None:
    """Get all that is not there yet. Raises HaiError, BadPeer, OSError."""
    download.folder.mkdir(parents=True, exist_ok=True)
    waits = delays()
    for attempt in range(1, TRIES + 1):
        try:
            for paths in _requests(download):
                await _fetch_some(remote, download, paths, progress)
            return
        except (Unreachable, TimedOut):
            if attempt == TRIES:
                raise
        await asyncio.sleep(next(waits))


@asynccontextmanager
async def borrowed(
    remote: Remote, revision: int, files: Tree, task: int = 0
) -> AsyncIterator[Callable[[str], Path]]:
    """Fetches files into a temporary directory; yields where each one is until the block ends."""
    with TemporaryDirectory(prefix="hai-") as folder:
        download = Download(revision, files, Path(folder), task=task)
        await fetch(remote, download, lambda files, size: None)
        yield lambda path: download.place(files[path].digest)


def _requests(download: Download) -> list[list[str]]:
    """Paths that are still lacking, one for each content."""
    lacking: dict[bytes, str] = {}
    for path, entry in download.files.items():
        if entry.digest not in lacking and not download.place(entry.digest).exists():
            lacking[entry.digest] = path
    paths = list(lacking.values())
    return [paths[i : i + _PATHS] for i in range(0, len(paths), _PATHS)]


async def _fetch_some(
    remote: Remote, download: Download, paths: Sequence[str], progress: Progress
) -> None:
    writer = _Writer(download, paths, progress)
    request = FetchFilesRequest(
        name=remote.name,
        user=remote.user,
        revision=download.revision,
        paths=paths,
        offsets=[writer.have(path) for path in paths],
        accept_compressed=download.compressed,
        task=download.task,
    )
    try:
        async for answer in remote.connection.stream(remote.stub.FetchFiles, request):
            await asyncio.to_thread(writer.take, answer)
            await remote.pace.turn(len(answer.data))
        writer.require_end()
    except Conflict as error:
        if error.reason != Lost.default_reason:
            raise
        raise Lost(writer.due, str(error)) from error
    finally:
        writer.close()


class _Writer:
    """Checks and writes what arrives; files come in the order asked."""

    def __init__(self, download: Download, paths: Sequence[str], progress: Progress) -> None:
        self._download = download
        self._paths = paths
        self._progress = progress
        self._index = 0
        self._file: int | None = None
        self._offset = 0
        self._hash = blake3()

    def have(self, path: str) -> int:
        """Bytes that an earlier stream has left."""
        part = self._part(path)
        size = part.stat().st_size if part.exists() else 0
        if size > self._download.files[path].size:
            part.unlink()
            return 0
        return size

    @property
    def due(self) -> str:
        """The file that comes next, or whose rest does."""
        return self._paths[min(self._index, len(self._paths) - 1)]

    def take(self, answer: FetchFilesResponse) -> None:
        """One message."""
        data = unpacked(answer.data, [part.size for part in answer.parts], answer.compressed)
        place = 0
        for part in answer.parts:
            self._take_part(part, memoryview(data)[place : place + part.size])
            place += part.size

    def _take_part(self, part: FilePart, data: memoryview) -> None:
        if self._index >= len(self._paths) or part.index != self._index:
            raise BadPeer(f"the server sent file {part.index} where {self._index} was due")
        path = self._paths[self._index]
        if self._file is None:
            self._open(path)
        entry = self._download.files[path]
        if part.offset != self._offset or part.offset + part.size > entry.size:
            raise self._bad(path, f"bytes {part.offset}+{part.size} of {entry.size}")
        self._write(data)
        self._progress(0, part.size)
        if part.last:
            self._finish(path, entry)

    def _open(self, path: str) -> None:
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
        if self._offset != entry.size or self._hash.digest() != entry.digest:
            raise self._bad(path, "its content is not what its digest says")
        self.close()
        os.replace(self._part(path), self._download.place(entry.digest))
        self._index += 1
        self._progress(1, 0)

    def require_end(self) -> None:
        """Raises unless everything has come."""
        if self._index < len(self._paths):
            raise Unreachable(f"the stream ended before {self._paths[self._index]!r} was whole")

    def close(self) -> None:
        """No file is open after this."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _part(self, path: str) -> Path:
        return self._download.place(self._download.files[path].digest).with_suffix(".part")

    def _bad(self, path: str, why: str) -> HaiError:
        self.close()
        self._part(path).unlink(missing_ok=True)
        if task := self._download.task:
            return Conflict(
                f"{path!r} has changed while it was fetched; nothing was changed here",
                hint=f"task {task} still writes it: try again, or when it has ended",
            )
        return BadPeer(f"the server sent wrong contents of {path!r}: {why}; nothing was changed")
