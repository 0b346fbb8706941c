"""One push: changes go out while files are read, the server says what it lacks, and only that follows.

Four things happen at once: groups of files are loaded in threads, messages leave in the order of a queue,
answers are read without ever waiting for anything else (a server that cannot answer would stop taking), and
contents that were asked for are made into messages. What is loaded and not yet done with is bounded.
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
from hai_sync.core.chunks import Piece
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry
from hai_sync.errors import BadPeer
from hai_sync.file_fingerprint import Signature
from hai_sync.remote import messages
from hai_sync.remote.contents import packed
from hai_sync.remote.endpoint import Remote
from hai_sync.remote.upload_reader import (
    Batch,
    Large,
    Part,
    batches,
    chunk_groups,
    load,
    parts,
    read_pieces,
)

JOBS = 3  # groups that are being loaded
_QUEUED = 4  # messages that wait for the wire
_OPEN = 12  # groups whose contents may still be asked for
_PARTS = 8  # of recipes, likewise
Progress = Callable[[int, int], None]
"""Files and bytes that are done since the last call."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be pushed, and by which right."""

    root: Path
    changes: Sequence[Change]
    base_revision: int
    lease_token: str
    author: str
    sources: Mapping[str, str] = field(
        default_factory=dict
    )  # where contents lie that are not at their path
    compress: bool = True
    allow_many_removals: bool = False
    jobs: int = JOBS
    seen: Mapping[str, Signature] = field(default_factory=dict)  # of files as they were scanned


@dataclass(slots=True)
class Sent:
    """What has become of it."""

    revision: WorkspaceRevision
    entries: dict[str, Entry | None]
    signatures: dict[str, Signature]
    wire_bytes: int


async def push(
    remote: Remote,
    order: Order,
    progress: Progress,
    all_sent: Callable[[Sent], None] = lambda sent: None,
) -> Sent:
    """Carry out an order. Raises HaiError, Restless, BadPeer; the server then has changed nothing.

    `all_sent` is called when only the server's last word is missing.
    """
    return await _Push(remote, order, progress, all_sent).run()


class _Push:
    def __init__(
        self, remote: Remote, order: Order, progress: Progress, all_sent: Callable[[Sent], None]
    ) -> None:
        self.remote = remote
        self.order = order
        self.progress = progress
        self.all_sent = all_sent
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED)
        self.open = asyncio.Semaphore(_OPEN)
        self.parts = asyncio.Semaphore(_PARTS)
        self.asking = asyncio.Lock()  # questions leave in the order in which answers are expected
        self.unanswered: deque[Batch | Part] = deque()
        self.wanted: asyncio.Queue[tuple[Batch | Part, set[bytes]] | None] = asyncio.Queue()
        self.large: asyncio.Queue[Large | None] = asyncio.Queue()
        self.answered = 0
        self.collected: set[bytes] = set()
        self.messages = 0
        self.due = 0  # answers and contents that are still to come before the commit
        self.idle = asyncio.Event()
        self.loaded = False
        self.sent = Sent(WorkspaceRevision(), {}, {}, 0)

    async def run(self) -> Sent:
        connection = self.remote.connection
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.produce())
                group.create_task(self.follow())
                group.create_task(self.tell_recipes())
                pushing = connection.stub(messages.Pushing)
                answers = connection.duplex(pushing.push, self.requests())
                async with aclosing(answers):
                    async for answer in answers:
                        self.take(answer)
                if not self.sent.revision.number and self.order.changes:
                    raise BadPeer("the server ended the push without saying what became of it")
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return self.sent

    async def requests(self) -> AsyncIterator[bytes]:
        while (message := await self.queue.get()) is not None:
            self.sent.wire_bytes += len(message)
            await self.remote.pace.turn(len(message))
            yield message

    async def put(self, message: bytes) -> None:
        self.messages += 1
        await self.queue.put(message)

    async def produce(self) -> None:
        order = self.order
        begin = BeginPush(
            name=self.remote.name,
            lease_token=order.lease_token,
            base_revision=order.base_revision,
            author=order.author,
            allow_many_removals=order.allow_many_removals,
        )
        await self.put(messages.begin(begin))
        async for batch in self.load():
            self.sent.entries.update(batch.entries)
            self.sent.signatures.update(batch.signatures)
            await self.ask(batch, messages.changes(batch.entries))
        self.loaded = True
        self.finish()
        await self.idle.wait()
        self.wanted.put_nowait(None)
        self.large.put_nowait(None)
        await self.put(messages.commit(self.messages))
        await self.queue.put(None)
        self.all_sent(self.sent)

    async def load(self) -> AsyncIterator[Batch]:
        """Groups in order, some of them read ahead."""
        order, ahead = self.order, deque[asyncio.Task[Batch]]()
        groups = batches(order.changes)
        try:
            while True:
                while len(ahead) < order.jobs and (group := next(groups, None)) is not None:
                    await self.open.acquire()
                    work = asyncio.to_thread(load, order.root, group, order.sources, order.seen)
                    ahead.append(asyncio.create_task(work))
                if not ahead:
                    return
                yield await ahead.popleft()
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    async def ask(self, what: Batch | Part, message: bytes) -> None:
        async with self.asking:
            self.due += 1
            self.unanswered.append(what)
            await self.put(message)

    def take(self, answer: PushTreeResponse) -> None:
        if answer.HasField("revision"):
            self.sent.revision.CopyFrom(answer.revision)
        elif answer.HasField("missing"):
            self.take_missing(answer.missing)

    def take_missing(self, missing: MissingContents) -> None:
        """A long answer comes in several messages; the last one counts the question as answered."""
        self.collected |= set(missing.digests)
        if missing.answered <= self.answered:
            return
        if not self.unanswered or missing.answered != self.answered + 1:
            raise BadPeer("the server answered what nobody asked")
        self.answered += 1
        self.wanted.put_nowait((self.unanswered.popleft(), self.collected))
        self.collected = set()

    async def follow(self) -> None:
        """Send what was asked for, in the order of the answers."""
        while (asked := await self.wanted.get()) is not None:
            what, digests = asked
            if isinstance(what, Batch):
                await self.contents(what, digests)
                self.open.release()
            else:
                await self.chunks(what, digests)
                self.parts.release()
            self.due -= 1
            self.finish()

    def finish(self) -> None:
        if self.loaded and self.due == 0:
            self.idle.set()

    async def contents(self, batch: Batch, wanted: set[bytes]) -> None:
        small = [d for d in batch.contents if d in wanted]
        for group in messages.groups(small, batch.contents):
            data = [batch.contents[digest] for digest in group]
            await self.send(group, list(map(len, data)), data)
        for digest in wanted & batch.large.keys():
            self.due += 1
            self.large.put_nowait(batch.large[digest])
        large = sum(each.entry.size for each in batch.large.values())
        self.progress(len(batch.entries), batch.bytes - large)
        for digest in batch.large.keys() - wanted:
            self.progress(0, batch.large[digest].entry.size)

    async def tell_recipes(self) -> None:
        """One large file after the other, while what the server lacks of it follows."""
        while (large := await self.large.get()) is not None:
            cutting = parts(self.order.root, large)
            part = await asyncio.to_thread(next, cutting, None)
            while part is not None:
                following = await asyncio.to_thread(next, cutting, None)
                last = following is None
                await self.parts.acquire()
                await self.ask(part, messages.recipe(large.entry.digest, part.pieces, last=last))
                part = following
            self.due -= 1
            self.finish()

    async def chunks(self, part: Part, wanted: set[bytes]) -> None:
        """Send them; the next ones are read meanwhile."""
        sent = 0
        groups = chunk_groups(part.pieces, wanted)
        group = next(groups, None)
        reading = self.read(part.large, group)
        while group is not None and reading is not None:
            data = await reading
            following = next(groups, None)
            reading = self.read(part.large, following)
            await self.send([piece.digest for piece in group], [p.size for p in group], data)
            size = sum(map(len, data))
            sent += size
            self.progress(0, size)
            group = following
        self.progress(0, sum(piece.size for piece in part.pieces) - sent)

    def read(self, large: Large, group: list[Piece] | None) -> asyncio.Task[list[bytes]] | None:
        if group is None:
            return None
        return asyncio.create_task(asyncio.to_thread(read_pieces, self.order.root, large, group))

    async def send(
        self, digests: Sequence[bytes], sizes: Sequence[int], data: Sequence[bytes]
    ) -> None:
        compressed = False
        if self.order.compress:
            small, compressed = await asyncio.to_thread(packed, b"".join(data), True)
            data = [small]
        await self.put(messages.contents(digests, sizes, data, compressed))
