"""Tests that a cancellation that was not meant for the current task becomes an error."""

from __future__ import annotations

import asyncio

import pytest

from hai.client.connection.cancellation import (
    CancelledWithin,
    cancelled_only_from_outside,
    error_of,
    raise_forgotten_cancellation,
)


async def cancelled_part() -> None:
    """Await a task that was cancelled by other code."""
    part = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(part.cancel)
    await part


async def guarded(work: asyncio.Future[None] | None = None) -> None:
    with cancelled_only_from_outside("the work"):
        await (cancelled_part() if work is None else work)


async def test_a_cancelled_awaitable_becomes_an_error() -> None:
    with pytest.raises(CancelledWithin, match="the work: something that it waited for"):
        await guarded()


async def test_a_cancelled_task_stays_cancelled() -> None:
    task = asyncio.ensure_future(guarded(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_timeout_stays_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await guarded(asyncio.get_running_loop().create_future())


async def test_errors_and_results_are_passed_on() -> None:
    with cancelled_only_from_outside("the work"):
        assert await asyncio.sleep(0, "done") == "done"
    with pytest.raises(ValueError, match="wrong"), cancelled_only_from_outside("the work"):
        raise ValueError("wrong")


async def test_error_of_a_finished_task() -> None:
    async def fails() -> None:
        raise ValueError("wrong")

    wished = asyncio.ensure_future(asyncio.Event().wait())
    tasks = [wished, *map(asyncio.ensure_future, (cancelled_part(), fails(), asyncio.sleep(0)))]
    asyncio.get_running_loop().call_soon(wished.cancel)
    await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [True, True, False, False]
    assert list(map(repr, map(error_of, tasks))) == [
        "None",
        f"CancelledWithin('{tasks[1].get_name()}: something that it waited for was cancelled')",
        "ValueError('wrong')",
        "None",
    ]


async def test_a_cancellation_before_the_first_step_is_no_error() -> None:
    task = asyncio.ensure_future(asyncio.sleep(10))
    task.cancel()
    await asyncio.wait([task])
    assert error_of(task) is None


async def test_a_failure_in_a_task_group_does_not_hide_a_cancellation() -> None:
    begun = asyncio.Event()

    async def fails() -> None:
        await begun.wait()
        begun.clear()
        raise OSError("gone")

    async def continues() -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as parts:
                    parts.create_task(fails())
                    await asyncio.Event().wait()
            except* OSError:
                pass
            raise_forgotten_cancellation()

    task = asyncio.ensure_future(continues())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    begun.set()
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
