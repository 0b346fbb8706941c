"""What waits between the reader of an agent's stream and whoever handles its messages."""

from __future__ import annotations

import asyncio

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.agents.inbox import LIMIT_BYTES, Inbox, LogAppended, Received
from hai_backend.domain.errors import Unavailable
from tests.support.virtual_time import run_virtually

YIELDED = pb.AttachRequest(yielded=pb.Yielded())
STATE = pb.AttachRequest(whole_life_state=pb.WholeLifeStateChanged(value=7))
LARGE = pb.AttachRequest(
    start_failed=pb.StartFailed(reason="x" * (LIMIT_BYTES // 2)),
)


async def rest(inbox: Inbox) -> list[Received]:
    """Everything that waits, up to the end."""
    found = []
    while (received := await inbox.next()) is not None:
        found.append(received)
    return found


def test_messages_keep_their_order_and_sizes_in_a_row_become_one() -> None:
    async def story() -> list[Received]:
        inbox = Inbox()
        await inbox.put(YIELDED)
        await inbox.put_log(10, 10)
        await inbox.put_log(30, 20)
        await inbox.put(STATE)
        await inbox.put_log(40, 10)
        inbox.close()
        return await rest(inbox)

    assert run_virtually(story()) == [YIELDED, LogAppended(30), STATE, LogAppended(40)]


async def fills(inbox: Inbox, message: pb.AttachRequest | int) -> int:
    """How many of them go in until the writer has to wait."""
    for count in range(1, 100_000):
        if isinstance(message, int):
            putting = asyncio.ensure_future(inbox.put_log(count * message, message))
        else:
            putting = asyncio.ensure_future(inbox.put(message))
        done, _ = await asyncio.wait({putting}, timeout=1)
        if not done:
            await inbox.next()
            await putting
            return count
    raise AssertionError("it takes everything")


@pytest.mark.parametrize(
    ("message", "count"),
    [
        pytest.param(LARGE, 2, id="large messages"),
        pytest.param(1024 * 1024, 17, id="log, which is on disk already"),
    ],
)
def test_the_writer_waits_when_it_is_full(message: pb.AttachRequest | int, count: int) -> None:
    async def story() -> int:
        return await fills(Inbox(), message)

    assert run_virtually(story()) == count


def test_a_reader_that_waits_gets_the_next_message() -> None:
    async def story() -> list[Received]:
        inbox = Inbox()
        reading = asyncio.ensure_future(inbox.next())
        await asyncio.sleep(0)
        await inbox.put(YIELDED)
        inbox.close()
        return [await reading, *await rest(inbox)]  # type: ignore[list-item]

    assert run_virtually(story()) == [YIELDED]


def test_an_error_comes_before_what_waits_and_frees_the_writer() -> None:
    async def story() -> None:
        inbox = Inbox()
        await inbox.put(LARGE)
        putting = asyncio.ensure_future(inbox.put(LARGE))
        await asyncio.sleep(1)
        assert not putting.done()
        inbox.close(Unavailable("the disk is full"))
        inbox.close()
        await asyncio.wait_for(putting, 1)
        await inbox.put(YIELDED)
        with pytest.raises(Unavailable, match="the disk is full"):
            await inbox.next()

    run_virtually(story())
