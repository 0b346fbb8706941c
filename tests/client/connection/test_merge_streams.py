"""Several streams as one: nothing is lost, nobody is asked ahead, all end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from hai.client.connection.merge_streams import merged


class Stream:
    """Says numbers, and knows how many it was asked for and whether it was closed."""

    def __init__(self, *numbers: int, endless: bool = True, failure: Exception | None = None):
        self._numbers = numbers
        self._endless = endless
        self._failure = failure
        self.asked = 0
        self.closed = False

    async def say(self) -> AsyncGenerator[int, None]:
        try:
            for number in self._numbers:
                self.asked += 1
                yield number
            if self._failure:
                raise self._failure
            if self._endless:
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_each_stream_keeps_its_order_and_none_is_asked_ahead() -> None:
    odd, even = Stream(1, 3, 5), Stream(2, 4)
    seen: list[int] = []
    async with aclosing(merged(odd.say(), even.say())) as answers:
        first = await anext(answers)
        assert odd.asked + even.asked <= 2
        seen.append(first)
        while len(seen) < 5:
            seen.append(await anext(answers))
    assert [n for n in seen if n % 2] == [1, 3, 5]
    assert [n for n in seen if not n % 2] == [2, 4]
    assert (odd.closed, even.closed) == (True, True)


async def test_the_first_end_is_the_end_of_all() -> None:
    ends, waits = Stream(1, endless=False), Stream()
    assert [n async for n in merged(ends.say(), waits.say())] == [1]
    assert waits.closed


async def test_a_failure_is_that_of_the_whole() -> None:
    fails, waits = Stream(failure=ValueError("bad")), Stream(1)
    with pytest.raises(ValueError, match="bad"):
        async for _ in merged(fails.say(), waits.say()):
            pass
    assert waits.closed


async def test_a_reader_that_is_canceled_leaves_nothing_behind() -> None:
    quiet = Stream()
    reading = asyncio.ensure_future(anext(merged(quiet.say(), quiet.say())))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert quiet.closed
