"""Reads the messages of a push, some ahead of those that are on their way to storage.

Contents are most of what travels. protobuf would copy them into its message and out of it again; where they are the
first field, as our client writes them, they stay where they arrived. And each step from the event loop to a thread
and back costs as much as hashing some hundred kilobytes: contents that wait go to storage together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, TypeAlias, cast

import grpc

from hai.v1.workspace_service_pb2 import PushContents, PushTreeRequest
from hai_backend.api.server.handler_wrapper import Handler
from hai_backend.api.workspaces.convert import piece_from_proto
from hai_backend.workspaces.push.receive import Piece

_AHEAD = 4  # messages that wait; one has 16 MB at most
_BYTES = 2  # what protobuf calls a field of so many bytes
_CONTENTS = PushTreeRequest.CONTENTS_FIELD_NUMBER << 3 | _BYTES
_DATA = PushContents.DATA_FIELD_NUMBER << 3 | _BYTES
Said: TypeAlias = PushTreeRequest | Piece


def read_by_hand(push: Handler) -> Handler:
    """The handler of pushes, whose contents come as pieces."""
    answers: Any = push.stream_stream
    return grpc.stream_stream_rpc_method_handler(answers, decode, push.response_serializer)


def decode(message: bytes) -> Said:
    """One message. Raises DecodeError."""
    if message[:1] == bytes([_CONTENTS]):
        size, place = _number(message, 1)
        if place + size == len(message) and message[place : place + 1] == bytes([_DATA]):
            size, place = _number(message, place + 1)
            data = memoryview(message)[place : place + size]
            told = PushContents.FromString(message[place + size :])
            if len(data) == size and not told.data:
                return Piece(told.digests, told.sizes, data, told.compressed)
    said = PushTreeRequest.FromString(message)
    return piece_from_proto(said.contents) if said.HasField("contents") else said


def _number(message: bytes, place: int) -> tuple[int, int]:
    """As protobuf writes it, seven bits a byte, and where it ends; what is none is too large for any message."""
    number = 0
    for shift, byte in enumerate(message[place : place + 5]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, place + shift + 1
    return 1 << 35, place


async def grouped(
    requests: AsyncIterator[Said],
) -> AsyncGenerator[PushTreeRequest | list[Piece], None]:
    """In order: pieces that have arrived one behind the other together, everything else alone."""
    arrived, room, news = deque[Said](), asyncio.Semaphore(_AHEAD), asyncio.Event()

    async def read() -> None:
        async for request in requests:
            await room.acquire()
            arrived.append(request)
            news.set()

    reading = asyncio.create_task(read())
    reading.add_done_callback(lambda _: news.set())
    try:
        while arrived or not reading.done():
            await news.wait()
            news.clear()
            while arrived:
                pieces = list(_pieces(arrived))
                yield pieces or cast(PushTreeRequest, arrived.popleft())
                for _ in pieces or (1,):
                    room.release()
        await reading
    finally:
        reading.cancel()
        await asyncio.wait({reading})


def _pieces(arrived: deque[Said]) -> Iterator[Piece]:
    """Taken from the front."""
    while arrived and isinstance(piece := arrived[0], Piece):
        arrived.popleft()
        yield piece
