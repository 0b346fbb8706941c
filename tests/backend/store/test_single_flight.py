"""Concurrent callers share one execution of an operation."""

from __future__ import annotations

import asyncio

import pytest

from hai_backend.domain.errors import Unavailable
from hai_backend.store.single_flight import SingleFlight


class BlockedOperation:
    """An operation that ends when the test sets `may_end`."""

    def __init__(self) -> None:
        self.executions = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.executions += 1
        await self.may_end.wait()
        if self.error is not None:
            raise self.error


async def test_callers_during_an_execution_share_the_next_one() -> None:
    operation = BlockedOperation()
    shared = SingleFlight(operation)
    first = asyncio.ensure_future(shared.run())
    while not operation.executions:  # noqa: ASYNC110
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(shared.run()) for _ in range(5)]
    await asyncio.sleep(0)
    assert operation.executions == 1
    operation.may_end.set()
    await asyncio.gather(first, *others)
    assert operation.executions == 2
    await shared.run()
    assert operation.executions == 3


async def test_every_caller_gets_the_error() -> None:
    operation = BlockedOperation()
    operation.error = ValueError("no")
    operation.may_end.set()
    shared = SingleFlight(operation)
    errors = await asyncio.gather(*(shared.run() for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in errors] == ["no"] * 3
    with pytest.raises(ValueError, match="no"):
        await shared.run()


async def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    operation = BlockedOperation()
    shared = SingleFlight(operation)
    cancelled, other = (asyncio.ensure_future(shared.run()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    operation.may_end.set()
    await other
    assert cancelled.cancelled()


async def test_close_ends_all_executions() -> None:
    shared = SingleFlight(BlockedOperation())
    caller = asyncio.ensure_future(shared.run())
    await asyncio.sleep(0)
    await shared.close()
    for call in (caller, shared.run()):
        with pytest.raises(Unavailable, match="closed"):
            await call
