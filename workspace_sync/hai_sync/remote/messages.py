"""Serialized requests of a push.

Contents are most of the traffic. protobuf would copy them twice: into a message, and into its bytes. Here the field of
the data is written directly, followed by a message without them, which is the same on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc.aio

from hai.v1.workspace_pb2 import Chunk
from hai.v1.workspace_service_pb2 import (
    BeginPush,
    CommitPush,
    FileRecipe,
    PushChanges,
    PushContents,
    PushTreeRequest,
    PushTreeResponse,
)
from hai_sync.core.chunks import ChunkRef
from hai_sync.core.entry import Entry
from hai_sync.remote.contents import BATCH_BYTES
from hai_sync.remote.wire import to_message

_BYTES = 2  # wire type of protobuf: length-delimited
_DATA = bytes([PushContents.DATA_FIELD_NUMBER << 3 | _BYTES])
_CONTENTS = bytes([PushTreeRequest.CONTENTS_FIELD_NUMBER << 3 | _BYTES])


class PushStub:
    """Stub of PushTree for requests that are serialized already."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.push: grpc.aio.StreamStreamMultiCallable[bytes, PushTreeResponse] = (
            channel.stream_stream(
                "/hai.v1.WorkspaceService/PushTree",
                request_serializer=None,
                response_deserializer=PushTreeResponse.FromString,
            )
        )


def begin(message: BeginPush) -> bytes:
    """Return the first request."""
    return PushTreeRequest(begin=message).SerializeToString()


def changes(entries: Sequence[tuple[str, Entry | None]]) -> bytes:
    """Return a request with entries to write. None instead of an entry means a removal."""
    message = [to_message(path, entry) for path, entry in entries]
    return PushTreeRequest(changes=PushChanges(entries=message)).SerializeToString()


def recipe(digest: bytes, chunks: Sequence[ChunkRef], *, last: bool) -> bytes:
    """Return a request with the next chunks of a file."""
    recipe_chunks = [Chunk(digest=chunk.digest, size=chunk.size) for chunk in chunks]
    message = FileRecipe(digest=digest, chunks=recipe_chunks, last=last)
    return PushTreeRequest(recipe=message).SerializeToString()


def contents(
    digests: Sequence[bytes], sizes: Sequence[int], data: Sequence[bytes], compressed: bool
) -> bytes:
    """Return a request with contents. The field of the concatenated data comes first, so that it is found at once."""
    message = PushContents(digests=digests, sizes=sizes, compressed=compressed).SerializeToString()
    size = sum(map(len, data))
    head = _DATA + varint(size)
    total = len(head) + size + len(message)
    return b"".join((_CONTENTS, varint(total), head, *data, message))


def commit(messages: int) -> bytes:
    """Return the last request."""
    return PushTreeRequest(commit=CommitPush(messages=messages)).SerializeToString()


def groups(digests: Sequence[bytes], contents: Mapping[bytes, bytes]) -> list[list[bytes]]:
    """Return groups of contents that fit into one message."""
    found: list[list[bytes]] = []
    size = BATCH_BYTES
    for digest in digests:
        if size >= BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(digest)
        size += len(contents[digest])
    return found


def varint(number: int) -> bytes:
    """Return a number in the encoding of protobuf: seven bits per byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
