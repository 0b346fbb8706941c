"""Requests of a push, as bytes.

Contents are most of what travels. protobuf would copy them into a message, and the message into its bytes; here the
field of the data is followed by the bytes of a message without them, which on the wire is the same.
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
from hai_sync.core.chunks import Piece
from hai_sync.core.entry import Entry
from hai_sync.remote.contents import BATCH_BYTES
from hai_sync.remote.wire import to_message

_BYTES = 2  # what protobuf calls a field of so many bytes
_DATA = bytes([PushContents.DATA_FIELD_NUMBER << 3 | _BYTES])
_CONTENTS = bytes([PushTreeRequest.CONTENTS_FIELD_NUMBER << 3 | _BYTES])


class Pushing:
    """The one call, for requests that are bytes already."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.push: grpc.aio.StreamStreamMultiCallable[bytes, PushTreeResponse] = (
            channel.stream_stream(
                "/hai.v1.WorkspaceService/PushTree",
                request_serializer=None,
                response_deserializer=PushTreeResponse.FromString,
            )
        )


def begin(told: BeginPush) -> bytes:
    """The first one."""
    return PushTreeRequest(begin=told).SerializeToString()


def changes(entries: Sequence[tuple[str, Entry | None]]) -> bytes:
    """What shall be where."""
    told = [to_message(path, entry) for path, entry in entries]
    return PushTreeRequest(changes=PushChanges(entries=told)).SerializeToString()


def recipe(digest: bytes, pieces: Sequence[Piece], *, last: bool) -> bytes:
    """Of which chunks a file is made, from where the last message of it has ended."""
    chunks = [Chunk(digest=piece.digest, size=piece.size) for piece in pieces]
    told = FileRecipe(digest=digest, chunks=chunks, last=last)
    return PushTreeRequest(recipe=told).SerializeToString()


def contents(
    digests: Sequence[bytes], sizes: Sequence[int], data: Sequence[bytes], compressed: bool
) -> bytes:
    """Some contents, whose data are one behind the other. They come first: so the server need not look for them."""
    told = PushContents(digests=digests, sizes=sizes, compressed=compressed).SerializeToString()
    size = sum(map(len, data))
    head = _DATA + varint(size)
    whole = len(head) + size + len(told)
    return b"".join((_CONTENTS, varint(whole), head, *data, told))


def commit(messages: int) -> bytes:
    """The last one."""
    return PushTreeRequest(commit=CommitPush(messages=messages)).SerializeToString()


def groups(digests: Sequence[bytes], contents: Mapping[bytes, bytes]) -> list[list[bytes]]:
    """Those of one message together."""
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
    """A number as protobuf writes it: seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
