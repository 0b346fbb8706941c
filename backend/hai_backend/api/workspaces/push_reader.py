"""Reads the messages of a push ahead of those that are being stored.

Most of the data are contents. protobuf would copy contents into its message and out again. If they are the first field
of a message, as our client writes them, they are used without a copy. A switch from the event loop to a thread and back
costs as much as to hash some hundred kilobytes, so waiting contents are stored together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, TypeAlias, cast

import grpc

from hai.v1.workspace_service_pb2 import PushContents, PushTreeRequest
from hai_backend.api.server.call_context import Handler
from hai_backend.api.workspaces.convert import contents_from_proto
from hai_backend.workspaces.push.receive import ContentsMessage

_MAX_QUEUED = 4  # waiting messages; one has at most 16 MB
_LENGTH_DELIMITED = 2  # protobuf's wire type of a field with a length
_CONTENTS = PushTreeRequest.CONTENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_DATA = PushContents.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
PushMessage: TypeAlias = PushTreeRequest | ContentsMessage


def parse_manually(push: Handler) -> Handler:
    """Return the handler of pushes with a deserializer that does not copy contents."""
    method: Any = push.stream_stream
    return grpc.stream_stream_rpc_method_handler(method, decode, push.response_serializer)


def decode(message: bytes) -> PushMessage:
    """Decode one message. Raises DecodeError."""
    if message[:1] == bytes([_CONTENTS]):
        size, offset = _varint(message, 1)
        if offset + size == len(message) and message[offset : offset + 1] == bytes([_DATA]):
            size, offset = _varint(message, offset + 1)
            data = memoryview(message)[offset : offset + size]
            contents = PushContents.FromString(message[offset + size :])
            if len(data) == size and not contents.data:
                return ContentsMessage(contents.digests, contents.sizes, data, contents.compressed)
    request = PushTreeRequest.FromString(message)
    return contents_from_proto(request.contents) if request.HasField("contents") else request


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    """Decode a varint. Return its value and end. An invalid varint has a value that is too large for any message."""
    number = 0
    for shift, byte in enumerate(message[offset : offset + 5]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, offset + shift + 1
    return 1 << 35, offset


async def group_contents(
    requests: AsyncIterator[PushMessage],
) -> AsyncGenerator[PushTreeRequest | list[ContentsMessage], None]:
    """Yield messages in order. Adjacent contents that have arrived are yielded together, other messages alone."""
    queue, slots, changed = deque[PushMessage](), asyncio.Semaphore(_MAX_QUEUED), asyncio.Event()

    async def read() -> None:
        async for request in requests:
            await slots.acquire()
            queue.append(request)
            changed.set()

    reader = asyncio.create_task(read())
    reader.add_done_callback(lambda _: changed.set())
    try:
        while queue or not reader.done():
            await changed.wait()
            changed.clear()
            while queue:
                contents = list(_pop_contents(queue))
                yield contents or cast(PushTreeRequest, queue.popleft())
                for _ in contents or (1,):
                    slots.release()
        await reader
    finally:
        reader.cancel()
        await asyncio.wait({reader})


def _pop_contents(queue: deque[PushMessage]) -> Iterator[ContentsMessage]:
    """Take contents from the front of the queue."""
    while queue and isinstance(contents := queue[0], ContentsMessage):
        queue.popleft()
        yield contents
