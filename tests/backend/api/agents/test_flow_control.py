"""The inbox and the rate limit of agents, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai_backend.api.agents.flow_control import (
    LIMIT_BYTES,
    Inbox,
    LogAppended,
    RateLimit,
    Received,
)
from hai_backend.domain.errors import Unavailable
from hai_backend.launch.base import RankKey
from tests.support.virtual_time import run_virtually

YIELDED = pb.AttachRequest(yielded=pb.Yielded())
STATE = pb.AttachRequest(whole_life_state=pb.WholeLifeStateChanged(value=7))
LARGE = pb.AttachRequest(
    start_failed=pb.StartFailed(reason="x" * (LIMIT_BYTES // 2)),
)

BUSY, QUIET = RankKey(1, 1, 0), RankKey(2, 1, 0)


async def read_all(inbox: Inbox) -> list[Received]:
    messages = []
    while (received := await inbox.next()) is not None:
        messages.append(received)
    return messages


def test_messages_keep_their_order_and_adjacent_log_sizes_become_one() -> None:
    async def story() -> list[Received]:
        inbox = Inbox()
        await inbox.put(YIELDED)
        await inbox.put_log(10, 10)
        await inbox.put_log(30, 20)
        await inbox.put(STATE)
        await inbox.put_log(40, 10)
        inbox.close()
        return await read_all(inbox)

    assert run_virtually(story()) == [YIELDED, LogAppended(30), STATE, LogAppended(40)]


async def count_until_full(inbox: Inbox, message: pb.AttachRequest | int) -> int:
    """Return how many messages fit until the writer has to wait."""
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
    raise AssertionError("the inbox is never full")


@pytest.mark.parametrize(
    ("message", "count"),
    [
        pytest.param(LARGE, 2, id="large messages"),
        pytest.param(1024 * 1024, 17, id="log, which is on disk"),
    ],
)
def test_writer_waits_while_the_inbox_is_full(message: pb.AttachRequest | int, count: int) -> None:
    async def story() -> int:
        return await count_until_full(Inbox(), message)

    assert run_virtually(story()) == count


def test_waiting_reader_gets_the_next_message() -> None:
    async def story() -> list[Received]:
        inbox = Inbox()
        reading = asyncio.ensure_future(inbox.next())
        await asyncio.sleep(0)
        await inbox.put(YIELDED)
        inbox.close()
        return [await reading, *await read_all(inbox)]  # type: ignore[list-item]

    assert run_virtually(story()) == [YIELDED]


def test_error_replaces_waiting_messages_and_releases_the_writer() -> None:
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


async def measure_turns(
    rate_limit: RateLimit, key: RankKey, turns: int, messages: float = 1.0
) -> float:
    """Return the seconds that so many successive turns take."""
    clock = asyncio.get_running_loop().time
    began_at = clock()
    for _ in range(turns):
        await rate_limit.wait_turn(key, messages)
    return clock() - began_at


@pytest.mark.parametrize(
    ("turns", "messages", "seconds"),
    [
        pytest.param(100, 1.0, 0.0, id="burst"),
        pytest.param(200, 1.0, 10.0, id="steady rate after the burst"),
        pytest.param(20, 10.0, 10.0, id="turn of several messages"),
    ],
)
def test_rank_is_slowed_down_to_the_rate(turns: int, messages: float, seconds: float) -> None:
    assert run_virtually(measure_turns(RateLimit(10, 100), BUSY, turns, messages)) == pytest.approx(
        seconds
    )


def test_streams_of_one_rank_share_its_rate_and_other_ranks_do_not_wait() -> None:
    async def together() -> list[float]:
        rate_limit = RateLimit(10, 100)
        return await asyncio.gather(
            measure_turns(rate_limit, BUSY, 150),
            measure_turns(rate_limit, BUSY, 150),
            measure_turns(rate_limit, QUIET, 100),
        )

    *busy, quiet = run_virtually(together())
    assert max(busy) == pytest.approx(20.0, abs=0.2)
    assert quiet == 0.0


def test_quiet_rank_may_send_a_burst_again() -> None:
    async def twice() -> float:
        rate_limit = RateLimit(10, 100)
        await measure_turns(rate_limit, BUSY, 100)
        await asyncio.sleep(10)
        return await measure_turns(rate_limit, BUSY, 100)

    assert run_virtually(twice()) == 0.0
