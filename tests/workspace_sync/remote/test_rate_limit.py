"""Tests of the rate limit of transfers."""

from __future__ import annotations

import asyncio

import pytest

from hai_sync.remote.endpoint import RateLimit


@pytest.mark.parametrize(
    ("rate", "sizes", "seconds"),
    [
        pytest.param(0, [1 << 30] * 9, 0.0, id="no limit"),
        pytest.param(1000, [1 << 30], 0.0, id="what comes first never waits"),
        pytest.param(1000, [20, 30, 1 << 30], 0.05, id="what follows waits for all before it"),
    ],
)
async def test_messages_wait_for_earlier_ones(rate: int, sizes: list[int], seconds: float) -> None:
    pace, loop = RateLimit(rate), asyncio.get_running_loop()
    began = loop.time()
    for size in sizes:
        await pace.wait(size)
    took = loop.time() - began
    assert took >= seconds * 0.95
    assert took < seconds + 5
