"""The lag of the event loop is measured, and what holds it is named."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from hai_backend.controllers.aio.loop_watch import LoopWatch


@pytest.fixture
def lags() -> list[float]:
    return []


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
async def watch(lags: list[float], pauses: list[float]) -> AsyncIterator[LoopWatch]:
    watch = LoopWatch(lags.append, pauses.append)
    watch.start()
    yield watch
    watch.stop()
    assert watch._on_collection not in gc.callbacks


def hold_the_loop(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def until_measured(values: list[float], count: int) -> None:
    async with asyncio.timeout(10):
        while len(values) < count:  # noqa: ASYNC110 - real time is measured
            await asyncio.sleep(0.01)


async def test_what_holds_the_loop_is_named(watch: LoopWatch, lags: list[float]) -> None:
    await until_measured(lags, 1)
    with capture_logs() as logs:
        for _ in range(2):  # the second one soon after the first is not logged
            hold_the_loop(0.5)
            await until_measured(lags, len(lags) + 2)
    (line,) = [line for line in logs if line["event"] == "the event loop was held"]
    assert line["by"].startswith("hold_the_loop (test_loop_watch.py:")
    assert line["seconds"] >= 0.3
    assert max(lags) >= 0.3


async def test_a_free_loop_logs_nothing(watch: LoopWatch, lags: list[float]) -> None:
    with capture_logs() as logs:
        await until_measured(lags, 3)
    assert [line["event"] for line in logs if line["seconds"] < 0.1] == []


async def test_pauses_for_garbage_collection_are_measured(
    watch: LoopWatch, lags: list[float], pauses: list[float]
) -> None:
    gc.collect()
    await until_measured(lags, len(lags) + 2)
    assert pauses
    assert all(0 < pause < 10 for pause in pauses)
