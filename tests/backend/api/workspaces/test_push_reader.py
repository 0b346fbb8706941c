"""Messages of a push that are read by hand say what protobuf says; pieces come in the order in which they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from hai.v1.workspace_service_pb2 import CommitPush, PushContents, PushTreeRequest
from hai_backend.api.workspaces.convert import piece_from_proto
from hai_backend.api.workspaces.push_reader import Said, decode, grouped
from hai_backend.workspaces.push.receive import Piece


def by_hand(data: bytes, rest: PushContents) -> bytes:
    """Contents whose data come first. Short enough for sizes of two bytes."""
    told = rest.SerializeToString()
    inner = b"\x1a" + number(len(data)) + data + told
    return b"\x22" + number(len(inner)) + inner


def number(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


REST = PushContents(digests=[b"d" * 32, b"e" * 32], sizes=[100, 200], compressed=True)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(by_hand(b"x" * 300, REST), id="data first"),
        pytest.param(by_hand(b"", PushContents()), id="nothing"),
        pytest.param(by_hand(b"x", PushContents(data=b"another")), id="data twice"),
        pytest.param(PushTreeRequest(contents=REST).SerializeToString(), id="no data"),
        pytest.param(by_hand(b"x", REST) + b"\x22\x00", id="contents twice"),
    ],
)
def test_contents_are_those_that_protobuf_reads(message: bytes) -> None:
    said, told = decode(message), piece_from_proto(PushTreeRequest.FromString(message).contents)
    assert isinstance(said, Piece)
    assert (bytes(said.data), said.compressed) == (told.data, told.compressed)
    assert (list(said.digests), list(said.sizes)) == (list(told.digests), list(told.sizes))


@given(st.binary(max_size=30).map(lambda end: b"\x22" + end))
def test_what_protobuf_refuses_is_refused(message: bytes) -> None:
    try:
        told = PushTreeRequest.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode(message)
    else:
        said = decode(message)
        assert bytes(said.data) == told.contents.data if isinstance(said, Piece) else said == told


async def test_pieces_that_wait_come_together_and_in_order() -> None:
    commit = PushTreeRequest(commit=CommitPush(messages=9))
    pieces: list[Said] = [Piece([], [], bytes([n]), False) for n in range(9)]
    sent = [*pieces[:3], commit, *pieces[3:], commit]
    seen: list[Said] = []
    most = 0
    async for said in grouped(_told(sent)):
        await asyncio.sleep(0)  # the others arrive meanwhile
        seen += said if isinstance(said, list) else [said]
        most = max(most, len(said) if isinstance(said, list) else 0)
    assert seen == sent
    assert most > 1


async def test_an_error_comes_after_what_arrived_before_it() -> None:
    async def broken() -> AsyncIterator[Said]:
        yield Piece([], [], b"x", False)
        raise ConnectionError("gone")

    said = grouped(broken())
    assert await anext(said) == [Piece([], [], b"x", False)]
    with pytest.raises(ConnectionError):
        await anext(said)


async def _told(sent: list[Said]) -> AsyncIterator[Said]:
    for said in sent:
        yield said
