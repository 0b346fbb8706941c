"""A simple client of workspaces for tests and benchmarks. It keeps all data in memory and runs one push at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

from blake3 import blake3

from hai.client.client import Client
from hai.v1 import workspace_pb2 as pb
from hai.v1 import workspace_service_pb2 as calls

MTIME_NS = 1_600_000_000_000_000_000
_BATCH = 1000
_MESSAGE_BYTES = 1 << 20


def file(path: str, data: bytes, *, executable: bool = False) -> pb.WorkspaceEntry:
    """Return the entry of a regular file."""
    return pb.WorkspaceEntry(
        path=path,
        kind=pb.ENTRY_KIND_FILE,
        executable=executable,
        size=len(data),
        mtime_ns=MTIME_NS,
        digest=blake3(data).digest(),
    )


def directory(path: str) -> pb.WorkspaceEntry:
    """Return the entry of a directory."""
    return pb.WorkspaceEntry(path=path, kind=pb.ENTRY_KIND_DIRECTORY)


def link(path: str, target: str) -> pb.WorkspaceEntry:
    """Return the entry of a symbolic link."""
    return pb.WorkspaceEntry(path=path, kind=pb.ENTRY_KIND_SYMLINK, target=target)


def removal(path: str) -> pb.WorkspaceEntry:
    """Return the entry that removes a path."""
    return pb.WorkspaceEntry(path=path)


def begin(name: str, token: str, base: int, **more: bool) -> calls.PushTreeRequest:
    """Return the first message of a push."""
    requests = calls.BeginPush(
        name=name, lease_token=token, base_revision=base, author="a test", **more
    )
    return calls.PushTreeRequest(begin=requests)


def changes(entries: Iterable[pb.WorkspaceEntry]) -> calls.PushTreeRequest:
    """Return a message with the entries that the push changes."""
    return calls.PushTreeRequest(changes=calls.PushChanges(entries=entries))


def contents(*data: bytes) -> calls.PushTreeRequest:
    """Return a message with uncompressed file contents."""
    requests = calls.PushContents(
        digests=[blake3(each).digest() for each in data],
        sizes=[len(each) for each in data],
        data=b"".join(data),
    )
    return calls.PushTreeRequest(contents=requests)


def commit(messages: int) -> calls.PushTreeRequest:
    """Return the last message of a push. `messages` is how many messages were sent before it."""
    return calls.PushTreeRequest(commit=calls.CommitPush(messages=messages))


class Pusher:
    """Pushes to one workspace. It holds the lease for writing."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.token = ""
        self.base = 0
        self.sent_bytes = 0

    async def create(self) -> Pusher:
        """Create the workspace, and take the lease."""
        await self.client.workspaces.create(self.name)
        return await self.lease()

    async def lease(self) -> Pusher:
        """Take the lease, even from another client."""
        lease = await self.client.workspaces.lease(self.name, "a test", force=True)
        self.token, self.base = lease.token, lease.revision
        return self

    async def push(
        self,
        files: Mapping[str, bytes],
        more: Iterable[pb.WorkspaceEntry] = (),
        **begin_with: bool,
    ) -> pb.WorkspaceRevision:
        """Push files and other entries. Return the new revision."""
        entries = [*(file(path, data) for path, data in files.items()), *more]
        contents_by_digest = {blake3(data).digest(): data for data in files.values()}
        return await self.send(entries, contents_by_digest, **begin_with)

    async def send(
        self,
        entries: list[pb.WorkspaceEntry],
        contents_by_digest: Mapping[bytes, bytes],
        **begin_with: bool,
    ) -> pb.WorkspaceRevision:
        """Push these entries. `contents_by_digest` has the contents that the server may request."""
        batches = [entries[i : i + _BATCH] for i in range(0, len(entries), _BATCH)]
        first = begin(self.name, self.token, self.base, **begin_with)
        requests = [first, *map(changes, batches)]
        queue: asyncio.Queue[calls.PushTreeRequest | None] = asyncio.Queue()
        for message in requests:
            queue.put_nowait(message)
        count = len(requests)
        made: pb.WorkspaceRevision | None = None
        if not batches:
            queue.put_nowait(commit(count))
        async for answer in self.client.workspaces.push(_messages(queue)):
            kind = answer.WhichOneof("message")
            if kind == "revision":
                queue.put_nowait(None)
                self.base = answer.revision.number
                made = answer.revision
            if kind == "missing":
                for message in _bundles([contents_by_digest[d] for d in answer.missing.digests]):
                    queue.put_nowait(message)
                    self.sent_bytes += len(message.contents.data)
                    count += 1
                if answer.missing.answered == len(batches):
                    queue.put_nowait(commit(count))
        assert made is not None, "the push was not answered"
        return made

    async def say(self, *messages: calls.PushTreeRequest) -> list[calls.PushTreeResponse]:
        """Send exactly these messages, and return all responses."""

        async def requests() -> AsyncIterator[calls.PushTreeRequest]:
            for message in messages:
                yield message

        return [answer async for answer in self.client.workspaces.push(requests())]

    async def tree(self, revision: int = 0, since: int = 0) -> dict[str, pb.WorkspaceEntry]:
        """Return the entries of a revision by path."""
        answers = self.client.workspaces.tree(self.name, revision, since=since)
        return {entry.path: entry async for answer in answers for entry in answer.entries}

    async def fetch(self, revision: int, *paths: str, task: int = 0) -> list[bytes]:
        """Return the contents of files in the order of `paths`."""
        found = [b"" for _ in paths]
        answers = self.client.workspaces.fetch(
            self.name, revision, paths, compressed=False, task=task
        )
        async for answer in answers:
            offset = 0
            for part in answer.parts:
                found[part.index] += answer.data[offset : offset + part.size]
                offset += part.size
        return found


async def _messages(
    queue: asyncio.Queue[calls.PushTreeRequest | None],
) -> AsyncIterator[calls.PushTreeRequest]:
    while (message := await queue.get()) is not None:
        yield message


def _bundles(data: list[bytes]) -> Iterator[calls.PushTreeRequest]:
    """Yield messages with these contents, of at most 1 MiB each unless one content is larger."""
    bundle: list[bytes] = []
    size = 0
    for each in data:
        if bundle and size + len(each) > _MESSAGE_BYTES:
            yield contents(*bundle)
            bundle, size = [], 0
        bundle.append(each)
        size += len(each)
    if bundle:
        yield contents(*bundle)
