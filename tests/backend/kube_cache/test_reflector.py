"""A reflector keeps its cache correct when its source fails, is silent or ends streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from random import Random
from typing import Any

import pytest

from hai_backend.kube_cache.cache import Change, ObjectCache
from hai_backend.kube_cache.reflector import Pace, Reflector
from hai_backend.kube_cache.source import Body, Broken, Expired, Page
from tests.support.virtual_time import run_virtually

Step = tuple[str, Body] | BaseException | float
PACE = Pace(relist_seconds=300.0, stream_seconds=240.0, quiet_seconds=100.0)


def body(uid: str, version: int) -> Body:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


class Script:
    """A source that returns the given lists in order and repeats the last one. Later streams than given are silent."""

    def __init__(
        self, lists: Sequence[Page | Exception], streams: Sequence[Sequence[Step]]
    ) -> None:
        self._lists, self._streams = [*lists], [*streams]
        self.asked: list[tuple[float, str]] = []

    async def pages(self) -> AsyncIterator[Page]:
        self._note("list")
        page = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        if isinstance(page, Exception):
            raise page
        yield page

    async def changes(self, version: str, seconds: float) -> AsyncGenerator[tuple[str, Body], None]:
        self._note(f"watch {version}")
        for step in self._streams.pop(0) if self._streams else [10_000.0]:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    def _note(self, what: str) -> None:
        self.asked.append((asyncio.get_running_loop().time() - 1_000.0, what))


def followed(script: Script, seconds: float) -> list[Change[Any]]:
    """Return the changes that a reflector reports within this time."""
    told: list[Change[Any]] = []

    async def story() -> None:
        picture: ObjectCache[Any] = ObjectCache(lambda found: found["metadata"]["resourceVersion"])
        reflector = Reflector("things", script, picture, told.extend, pace=PACE, random=Random(1))
        running = asyncio.ensure_future(reflector.run())
        await asyncio.wait({running}, timeout=seconds)
        if running.done():
            running.result()
        running.cancel()

    run_virtually(story())
    return told


def words(script: Script) -> list[str]:
    return [what for _, what in script.asked]


def test_a_stream_that_ends_is_resumed_where_it_was() -> None:
    streams = [[("ADDED", body("b", 7)), 5.0], [("BOOKMARK", body("", 9)), 5.0], [50.0]]
    script = Script([Page([body("a", 3)], "5")], streams)
    told = followed(script, 30.0)
    assert [change.uid for change in told] == ["a", "b"]
    assert words(script) == ["list", "watch 5", "watch 7", "watch 9"]


AGAIN = [
    pytest.param(Expired("too old"), id="expired"),
    pytest.param(Broken("an error"), id="an error"),
    pytest.param(KeyError("a bug"), id="a bug"),
    pytest.param(asyncio.CancelledError(), id="cancelled, but nobody cancelled the watch"),
]


@pytest.mark.parametrize("error", AGAIN)
def test_after_an_error_all_is_listed(error: BaseException) -> None:
    script = Script([Page([body("a", 3)], "5"), Page([], "8")], [[error]])
    assert followed(script, 30.0) == [Change("a", None, "3"), Change("a", "3", None)]
    assert words(script) == ["list", "watch 5", "list", "watch 8"]


def test_a_silent_stream_is_given_up_and_now_and_then_all_is_listed() -> None:
    script = Script([Page([], "5")], [])
    followed(script, 320.0)
    assert script.asked == [
        (0.0, "list"),
        (0.0, "watch 5"),
        (100.0, "watch 5"),
        (200.0, "watch 5"),
        (300.0, "list"),
        (300.0, "watch 5"),
    ]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Script([Page([], "5")], [[] for _ in range(1_000)]), id="ends"),
        pytest.param(lambda: Script([Broken("away")], []), id="lists fail"),
        pytest.param(
            lambda: Script([Page([], "5")], [[Broken("away")] for _ in range(1_000)]),
            id="streams fail",
        ),
    ],
)
def test_a_source_that_fails_at_once_is_not_asked_in_a_circle(make: Callable[[], Script]) -> None:
    script = make()
    followed(script, 120.0)
    assert 10 < len(script.asked) < 80


def test_what_is_wrong_from_the_first_list_on_is_raised() -> None:
    with pytest.raises(PermissionError):
        followed(Script([PermissionError("no right to list")], []), 10.0)
