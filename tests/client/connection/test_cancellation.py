"""A cancellation that was not meant for the current task is an error."""

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
    """Waits for a task that somebody else has cancelled."""
    part = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(part.cancel)
    await part


async def guarded(work: asyncio.Future[None] | None = None) -> None:
    with cancelled_only_from_outside("the work"):
        await (cancelled_part() if work is None else work)


async def test_a_part_that_was_cancelled_is_an_error() -> None:
    with pytest.raises(CancelledWithin, match="the work: something that it waited for"):
        await guarded()


async def test_a_task_that_is_cancelled_is_cancelled() -> None:
    task = asyncio.ensure_future(guarded(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_time_limit_is_one() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await guarded(asyncio.get_running_loop().create_future())


async def test_errors_and_results_pass() -> None:
    with cancelled_only_from_outside("the work"):
        assert await asyncio.sleep(0, "done") == "done"
    with pytest.raises(ValueError, match="wrong"), cancelled_only_from_outside("the work"):
        raise ValueError("wrong")


async def test_what_has_ended_a_task() -> None:
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


async def test_a_task_that_was_cancelled_before_its_first_step_was_wished_to_end() -> None:
    task = asyncio.ensure_future(asyncio.sleep(10))
    task.cancel()
    await asyncio.wait([task])
    assert error_of(task) is None


async def test_a_task_group_in_which_a_part_fails_does_not_make_a_cancellation_forgotten() -> None:
    begun = asyncio.Event()

    async def fails() -> None:
        await begun.wait()
        begun.clear()
        raise OSError("gone")

    async def goes_on() -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as parts:
                    parts.create_task(fails())
                    await asyncio.Event().wait()
            except* OSError:
                pass
            raise_forgotten_cancellation()

    task = asyncio.ensure_future(goes_on())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    begun.set()
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
