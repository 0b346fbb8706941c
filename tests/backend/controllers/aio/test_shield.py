"""Changes are completed even if their caller is cancelled. Their errors are reported."""

from __future__ import annotations

import asyncio

import pytest

from hai.client.connection.cancellation import CancelledWithin
from hai_backend.controllers.aio.shield import shielded


async def test_a_change_goes_on_without_its_caller() -> None:
    unheard: list[BaseException] = []
    go = asyncio.Event()
    change = asyncio.ensure_future(go.wait())
    caller = asyncio.ensure_future(shielded(change, unheard.append))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    go.set()
    assert await change
    assert unheard == []


@pytest.mark.parametrize("left", [False, True], ids=["the caller waits", "the caller has left"])
async def test_a_change_that_is_cancelled_itself_is_told(left: bool) -> None:
    """A CancelledError would end the loop that waits for it, as if somebody had cancelled that loop."""
    unheard: list[BaseException] = []
    part = asyncio.ensure_future(asyncio.Event().wait())

    async def work() -> None:
        await part

    change = asyncio.ensure_future(work())
    caller = asyncio.ensure_future(shielded(change, unheard.append))
    await asyncio.sleep(0)
    if left:
        caller.cancel()
        await asyncio.wait([caller])
    part.cancel()
    await asyncio.wait([caller, change])
    await asyncio.sleep(0)
    if left:
        assert [type(error) for error in unheard] == [CancelledWithin]
    else:
        assert isinstance(caller.exception(), CancelledWithin)
        assert unheard == []
