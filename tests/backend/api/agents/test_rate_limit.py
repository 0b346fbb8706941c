"""How fast ranks are listened to, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from hai_backend.api.agents.rate_limit import RateLimit
from hai_backend.launch.base import RankKey
from tests.support.virtual_time import run_virtually

WILD, CALM = RankKey(1, 1, 0), RankKey(2, 1, 0)


async def lasts(pace: RateLimit, key: RankKey, turns: int, messages: float = 1.0) -> float:
    """Seconds for so many turns, one after the other."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for _ in range(turns):
        await pace.turn(key, messages)
    return clock() - began


@pytest.mark.parametrize(
    ("turns", "messages", "seconds"),
    [
        pytest.param(100, 1.0, 0.0, id="what may come at once"),
        pytest.param(200, 1.0, 10.0, id="then so many a second"),
        pytest.param(20, 10.0, 10.0, id="what counts as several"),
    ],
)
def test_a_rank_is_heard_so_fast(turns: int, messages: float, seconds: float) -> None:
    assert run_virtually(lasts(RateLimit(10, 100), WILD, turns, messages)) == pytest.approx(seconds)


def test_streams_of_one_rank_share_its_turns_and_others_do_not_wait() -> None:
    async def together() -> list[float]:
        pace = RateLimit(10, 100)
        return await asyncio.gather(
            lasts(pace, WILD, 150), lasts(pace, WILD, 150), lasts(pace, CALM, 100)
        )

    *wild, calm = run_virtually(together())
    assert max(wild) == pytest.approx(20.0, abs=0.2)
    assert calm == 0.0


def test_who_was_quiet_may_say_as_much_again() -> None:
    async def twice() -> float:
        pace = RateLimit(10, 100)
        await lasts(pace, WILD, 100)
        await asyncio.sleep(10)
        return await lasts(pace, WILD, 100)

    assert run_virtually(twice()) == 0.0
