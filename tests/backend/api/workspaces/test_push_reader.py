"""The manual decoder of pushes agrees with protobuf, and contents keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from hai.v1.workspace_service_pb2 import CommitPush, PushContents, PushTreeRequest
from hai_backend.api.workspaces.convert import contents_from_proto
from hai_backend.api.workspaces.push_reader import PushMessage, decode, group_contents
from hai_backend.workspaces.push.receive import ContentsMessage


def by_hand(data: bytes, fields: PushContents) -> bytes:
    """Encode contents whose data are the first field. Their sizes must fit into two bytes."""
    parsed = fields.SerializeToString()
    inner = b"\x1a" + number(len(data)) + data + parsed
    return b"\x22" + number(len(inner)) + inner


def number(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


FIELDS = PushContents(digests=[b"d" * 32, b"e" * 32], sizes=[100, 200], compressed=True)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(by_hand(b"x" * 300, FIELDS), id="data first"),
        pytest.param(by_hand(b"", PushContents()), id="nothing"),
        pytest.param(by_hand(b"x", PushContents(data=b"another")), id="data twice"),
        pytest.param(PushTreeRequest(contents=FIELDS).SerializeToString(), id="no data"),
        pytest.param(by_hand(b"x", FIELDS) + b"\x22\x00", id="contents twice"),
    ],
)
def test_contents_are_those_that_protobuf_reads(message: bytes) -> None:
    decoded, parsed = (
        decode(message),
        contents_from_proto(PushTreeRequest.FromString(message).contents),
    )
    assert isinstance(decoded, ContentsMessage)
    assert (bytes(decoded.data), decoded.compressed) == (parsed.data, parsed.compressed)
    assert (list(decoded.digests), list(decoded.sizes)) == (
        list(parsed.digests),
        list(parsed.sizes),
    )


@given(st.binary(max_size=30).map(lambda end: b"\x22" + end))
def test_messages_that_protobuf_refuses_are_refused(message: bytes) -> None:
    try:
        parsed = PushTreeRequest.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode(message)
    else:
        decoded = decode(message)
        assert (
            bytes(decoded.data) == parsed.contents.data
            if isinstance(decoded, ContentsMessage)
            else decoded == parsed
        )


async def test_waiting_contents_are_grouped_in_order() -> None:
    commit = PushTreeRequest(commit=CommitPush(messages=9))
    pieces: list[PushMessage] = [ContentsMessage([], [], bytes([n]), False) for n in range(9)]
    sent = [*pieces[:3], commit, *pieces[3:], commit]
    seen: list[PushMessage] = []
    most = 0
    async for decoded in group_contents(_told(sent)):
        await asyncio.sleep(0)  # let the other messages arrive
        seen += decoded if isinstance(decoded, list) else [decoded]
        most = max(most, len(decoded) if isinstance(decoded, list) else 0)
    assert seen == sent
    assert most > 1


async def test_error_is_raised_after_earlier_messages() -> None:
    async def broken() -> AsyncIterator[PushMessage]:
        yield ContentsMessage([], [], b"x", False)
        raise ConnectionError("gone")

    decoded = group_contents(broken())
    assert await anext(decoded) == [ContentsMessage([], [], b"x", False)]
    with pytest.raises(ConnectionError):
        await anext(decoded)


async def _told(sent: list[PushMessage]) -> AsyncIterator[PushMessage]:
    for decoded in sent:
        yield decoded
