"""`with_pauses` reports pauses of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from hai.client.errors import Unreachable
from hai_jupyter.live.log_streams import with_pauses
from tests.support.virtual_time import run_virtually


class Answers:
    """A stream with an answer after each of the pauses (in seconds), and then an end or an error."""

    def __init__(self, *after: float, error: Exception | None = None) -> None:
        self._after = after
        self._error = error
        self.closed = False

    async def all(self) -> AsyncGenerator[float, None]:
        try:
            for seconds in self._after:
                await asyncio.sleep(seconds)
                yield seconds
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


async def heard(answers: Answers, most: int = 100) -> list[float | None]:
    found: list[float | None] = []
    async with aclosing(with_pauses(answers.all(), 15)) as all_of_them:
        async for answer in all_of_them:
            found.append(answer)
            if len(found) == most:
                break
    return found


@pytest.mark.parametrize(
    ("after", "found"),
    [
        pytest.param((), [], id="nothing"),
        pytest.param((1, 2, 3), [1, 2, 3], id="no pause"),
        pytest.param((1, 40, 2), [1, None, None, 40, 2], id="a pause"),
    ],
)
def test_a_pause_is_told_and_nothing_is_lost(
    after: tuple[float, ...], found: list[float | None]
) -> None:
    assert run_virtually(heard(Answers(*after))) == found


def test_who_leaves_in_a_pause_ends_what_is_followed() -> None:
    answers = Answers(1, 1_000)
    assert run_virtually(heard(answers, most=3)) == [1, None, None]
    assert answers.closed


def test_an_error_is_passed_on() -> None:
    answers = Answers(1, error=Unreachable("gone"))
    with pytest.raises(Unreachable):
        run_virtually(heard(answers))
    assert answers.closed
