"""One question for all who want the same answer."""

from __future__ import annotations

import asyncio

import pytest

from hai_backend.domain.errors import Unavailable
from hai_backend.store.single_flight import SingleFlight


class Slow:
    """A question that is answered when the test says so."""

    def __init__(self) -> None:
        self.put = 0
        self.answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.put += 1
        await self.answer.wait()
        if self.error is not None:
            raise self.error


async def test_who_comes_while_it_is_asked_gets_the_answer_of_the_next() -> None:
    slow = Slow()
    shared = SingleFlight(slow)
    first = asyncio.ensure_future(shared.ask())
    while not slow.put:  # noqa: ASYNC110
        await asyncio.sleep(0)
    late = [asyncio.ensure_future(shared.ask()) for _ in range(5)]
    await asyncio.sleep(0)
    assert slow.put == 1
    slow.answer.set()
    await asyncio.gather(first, *late)
    assert slow.put == 2
    await shared.ask()
    assert slow.put == 3


async def test_an_error_is_everybodys_who_asked() -> None:
    slow = Slow()
    slow.error = ValueError("no")
    slow.answer.set()
    shared = SingleFlight(slow)
    answers = await asyncio.gather(*(shared.ask() for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["no"] * 3
    with pytest.raises(ValueError, match="no"):
        await shared.ask()


async def test_who_asked_and_left_spoils_nothing() -> None:
    slow = Slow()
    shared = SingleFlight(slow)
    gone, stays = asyncio.ensure_future(shared.ask()), asyncio.ensure_future(shared.ask())
    await asyncio.sleep(0)
    gone.cancel()
    slow.answer.set()
    await stays


async def test_closing_leaves_nothing_under_way() -> None:
    slow = Slow()
    shared = SingleFlight(slow)
    asked = asyncio.ensure_future(shared.ask())
    await asyncio.sleep(0)
    await shared.close()
    for late in (asked, shared.ask()):
        with pytest.raises(Unavailable, match="closed"):
            await late


async def test_who_is_cancelled_is_cancelled() -> None:
    shared = SingleFlight(Slow())
    asked = asyncio.ensure_future(shared.ask())
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    await shared.close()
