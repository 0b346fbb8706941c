"""An agent without a server ends before another one may have its rank."""

from __future__ import annotations

import asyncio

import pytest

from hai_backend.agent.lease import Fenced, Lease
from hai_backend.testing.virtual import run_virtually


@pytest.mark.parametrize(("fence_after", "ends"), [(10.0, 8.0), (600.0, 540.0)])
def test_it_runs_out_a_little_before_the_server_counts(fence_after: float, ends: float) -> None:
    async def story() -> float:
        lease, began = Lease(fence_after), asyncio.get_running_loop().time()
        with pytest.raises(Fenced):
            async with lease.watch():
                await asyncio.sleep(10_000)
        return asyncio.get_running_loop().time() - began

    assert run_virtually(story()) == pytest.approx(ends)


def test_it_is_held_while_a_server_answers_and_counts_from_when_the_stream_broke() -> None:
    async def stream(lease: Lease) -> None:
        async with lease.watch():
            lease.hold()
            await asyncio.sleep(5_000)
            lease.release()
            lease.release()  # the next tries do not reach one either
            await asyncio.sleep(5_000)

    async def story() -> float:
        began = asyncio.get_running_loop().time()
        with pytest.raises(Fenced):
            await stream(Lease(100.0))
        return asyncio.get_running_loop().time() - began

    assert run_virtually(story()) == pytest.approx(5_080.0)


def test_without_a_fence_it_never_runs_out() -> None:
    async def story() -> None:
        async with Lease(0.0).watch():
            await asyncio.sleep(1e6)

    run_virtually(story())


def test_a_timeout_within_is_not_a_fence() -> None:
    async def story() -> None:
        with pytest.raises(TimeoutError):
            async with Lease(10.0).watch(), asyncio.timeout(1.0):
                await asyncio.sleep(5.0)

    run_virtually(story())
