"""Pushes changes: sends entries while files are read, then the contents that the server reports as missing.

Four activities run at once. Threads read groups of files; messages are sent in the order of a queue; responses are
read without waiting for anything else, because a server that cannot respond would stop reading; and requested
contents are made into messages. The number of groups in memory is limited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from hai.v1.workspace_pb2 import WorkspaceRevision
from hai.v1.workspace_service_pb2 import BeginPush, MissingContents, PushTreeResponse
from hai_sync.core.chunks import ChunkRef
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry
from hai_sync.errors import ProtocolViolation
from hai_sync.file_fingerprint import Fingerprint
from hai_sync.remote import messages
from hai_sync.remote.contents import compress
from hai_sync.remote.endpoint import Remote
from hai_sync.remote.upload_reader import (
    Batch,
    LargeFile,
    RecipePart,
    chunk_groups,
    group_changes,
    read_batch,
    read_chunks,
    recipe_parts,
)

JOBS = 3  # number of groups that are read at the same time
_MAX_QUEUED = 4  # number of messages that wait to be sent
_MAX_OPEN_BATCHES = 12  # number of groups whose contents may still be requested
_MAX_OPEN_PARTS = 8  # number of parts of recipes whose chunks may still be requested
Progress = Callable[[int, int], None]
"""Receives the files and bytes that were completed since the last call."""


@dataclass(frozen=True, slots=True)
class PushRequest:
    """The changes to push, and the lease that allows it."""

    root: Path
    changes: Sequence[Change]
    base_revision: int
    lease_token: str
    author: str
    # where to read contents that are not at the path of their entry
    sources: Mapping[str, str] = field(default_factory=dict)
    compressed: bool = True
    allow_many_removals: bool = False
    jobs: int = JOBS
    # fingerprints of files, as of the scan
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)


@dataclass(slots=True)
class PushResult:
    """The new revision, and what was sent for it."""

    revision: WorkspaceRevision
    entries: dict[str, Entry | None]
    fingerprints: dict[str, Fingerprint]
    wire_bytes: int


async def push(
    remote: Remote,
    request: PushRequest,
    progress: Progress,
    on_all_sent: Callable[[PushResult], None] = lambda sent: None,
) -> PushResult:
    """Push changes. Raises HaiError or FileChanged; the server has then changed nothing.

    `on_all_sent` is called when only the last response of the server is missing.
    """
    return await _Push(remote, request, progress, on_all_sent).run()


class _Push:
    """One push. The module docstring describes its activities, which share the queues of this class."""

    def __init__(
        self,
        remote: Remote,
        request: PushRequest,
        progress: Progress,
        on_all_sent: Callable[[PushResult], None],
    ) -> None:
        self.remote = remote
        self.request = request
        self.progress = progress
        self.on_all_sent = on_all_sent
        # messages to send; None ends the stream
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self.open_batches = asyncio.Semaphore(_MAX_OPEN_BATCHES)
        self.recipe_slots = asyncio.Semaphore(_MAX_OPEN_PARTS)
        self.query_lock = asyncio.Lock()  # keeps queries in the order of their responses
        # queries without a response, in order
        self.pending: deque[Batch | RecipePart] = deque()
        # answered queries with the digests that the server lacks; None ends `send_requested`
        self.requested: asyncio.Queue[tuple[Batch | RecipePart, set[bytes]] | None] = (
            asyncio.Queue()
        )
        # requested large files; None ends `send_recipes`
        self.large: asyncio.Queue[LargeFile | None] = asyncio.Queue()
        self.answered = 0  # number of answered queries
        self.received: set[bytes] = set()  # digests of the current response
        self.messages = 0  # number of sent messages
        self.outstanding = 0  # number of responses and contents that must precede the commit
        self.idle = asyncio.Event()  # set when the commit may be sent
        self.all_read = False  # whether all batches were read
        self.result = PushResult(WorkspaceRevision(), {}, {}, 0)

    async def run(self) -> PushResult:
        """Run all activities until the server ends the call. Return the result."""
        connection = self.remote.connection
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.send_changes())
                group.create_task(self.send_requested())
                group.create_task(self.send_recipes())
                pushing = connection.stub(messages.PushStub)
                responses = connection.duplex(pushing.push, self.requests())
                async with aclosing(responses):
                    async for response in responses:
                        self.handle(response)
                if not self.result.revision.number and self.request.changes:
                    raise ProtocolViolation("the server ended the push without a result")
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return self.result

    async def requests(self) -> AsyncIterator[bytes]:
        """Yield the queued messages within the rate limit. This is the request stream of the call."""
        while (message := await self.queue.get()) is not None:
            self.result.wire_bytes += len(message)
            await self.remote.rate_limit.wait(len(message))
            yield message

    async def put(self, message: bytes) -> None:
        """Queue a message. The server is told the number of messages at the end."""
        self.messages += 1
        await self.queue.put(message)

    async def send_changes(self) -> None:
        """Send all changes. When all contents have been sent too, send the commit."""
        request = self.request
        begin = BeginPush(
            name=self.remote.name,
            lease_token=request.lease_token,
            base_revision=request.base_revision,
            author=request.author,
            allow_many_removals=request.allow_many_removals,
        )
        await self.put(messages.begin(begin))
        async for batch in self.read_batches():
            self.result.entries.update(batch.entries)
            self.result.fingerprints.update(batch.fingerprints)
            await self.query(batch, messages.changes(batch.entries))
        self.all_read = True
        self.finish()
        await self.idle.wait()
        self.requested.put_nowait(None)
        self.large.put_nowait(None)
        await self.put(messages.commit(self.messages))
        await self.queue.put(None)
        self.on_all_sent(self.result)

    async def read_batches(self) -> AsyncIterator[Batch]:
        """Yield groups in order. Some of them are read ahead."""
        request, reads = self.request, deque[asyncio.Task[Batch]]()
        groups = group_changes(request.changes)
        try:
            while True:
                while len(reads) < request.jobs and (group := next(groups, None)) is not None:
                    await self.open_batches.acquire()
                    work = asyncio.to_thread(
                        read_batch, request.root, group, request.sources, request.fingerprints
                    )
                    reads.append(asyncio.create_task(work))
                if not reads:
                    return
                yield await reads.popleft()
        finally:
            for task in reads:
                task.cancel()
            await asyncio.gather(*reads, return_exceptions=True)

    async def query(self, item: Batch | RecipePart, message: bytes) -> None:
        """Send a message to which the server responds with the digests that it lacks."""
        async with self.query_lock:
            self.outstanding += 1
            self.pending.append(item)
            await self.put(message)

    def handle(self, response: PushTreeResponse) -> None:
        if response.HasField("revision"):
            self.result.revision.CopyFrom(response.revision)
        elif response.HasField("missing"):
            self.handle_missing(response.missing)

    def handle_missing(self, missing: MissingContents) -> None:
        """Collect missing digests. The last message of a response increases `answered`."""
        self.received |= set(missing.digests)
        if missing.answered <= self.answered:
            return
        if not self.pending or missing.answered != self.answered + 1:
            raise ProtocolViolation("the server answered a query that was not sent")
        self.answered += 1
        self.requested.put_nowait((self.pending.popleft(), self.received))
        self.received = set()

    async def send_requested(self) -> None:
        """Send requested contents, in the order of the responses."""
        while (next_item := await self.requested.get()) is not None:
            item, digests = next_item
            if isinstance(item, Batch):
                await self.contents(item, digests)
                self.open_batches.release()
            else:
                await self.chunks(item, digests)
                self.recipe_slots.release()
            self.outstanding -= 1
            self.finish()

    def finish(self) -> None:
        """Allow the commit if everything was read and nothing is outstanding."""
        if self.all_read and self.outstanding == 0:
            self.idle.set()

    async def contents(self, batch: Batch, requested: set[bytes]) -> None:
        """Send the requested small contents of a batch, and queue the requested large files."""
        small = [d for d in batch.contents if d in requested]
        for group in messages.groups(small, batch.contents):
            data = [batch.contents[digest] for digest in group]
            await self.send(group, list(map(len, data)), data)
        for digest in requested & batch.large.keys():
            self.outstanding += 1
            self.large.put_nowait(batch.large[digest])
        large = sum(each.entry.size for each in batch.large.values())
        self.progress(len(batch.entries), batch.bytes - large)
        for digest in batch.large.keys() - requested:
            self.progress(0, batch.large[digest].entry.size)

    async def send_recipes(self) -> None:
        """Send the recipes of large files, one after the other. Meanwhile `send_requested` sends the missing chunks."""
        while (large := await self.large.get()) is not None:
            cutting = recipe_parts(self.request.root, large)
            part = await asyncio.to_thread(next, cutting, None)
            while part is not None:
                following = await asyncio.to_thread(next, cutting, None)
                last = following is None
                await self.recipe_slots.acquire()
                await self.query(part, messages.recipe(large.entry.digest, part.chunks, last=last))
                part = following
            self.outstanding -= 1
            self.finish()

    async def chunks(self, part: RecipePart, requested: set[bytes]) -> None:
        """Send the requested chunks of a part. Meanwhile the next group is read."""
        sent = 0
        groups = chunk_groups(part.chunks, requested)
        group = next(groups, None)
        reading = self.read(part.large, group)
        while group is not None and reading is not None:
            data = await reading
            following = next(groups, None)
            reading = self.read(part.large, following)
            await self.send([chunk.digest for chunk in group], [p.size for p in group], data)
            size = sum(map(len, data))
            sent += size
            self.progress(0, size)
            group = following
        self.progress(0, sum(chunk.size for chunk in part.chunks) - sent)

    def read(
        self, large: LargeFile, group: list[ChunkRef] | None
    ) -> asyncio.Task[list[bytes]] | None:
        """Start reading a group of chunks in a thread."""
        if group is None:
            return None
        return asyncio.create_task(asyncio.to_thread(read_chunks, self.request.root, large, group))

    async def send(
        self, digests: Sequence[bytes], sizes: Sequence[int], data: Sequence[bytes]
    ) -> None:
        """Send contents in one message, compressed if that saves bytes."""
        compressed = False
        if self.request.compressed:
            small, compressed = await asyncio.to_thread(compress, b"".join(data), True)
            data = [small]
        await self.put(messages.contents(digests, sizes, data, compressed))
