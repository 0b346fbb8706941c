"""Tests of watches and logs across a restart of the server: no answer is lost or repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from grpc import StatusCode

from hai.client import errors
from hai.client.client import Client
from hai.client.connection.streams import merge_streams
from hai.v1.log_service_pb2 import LogLine, TailLogsResponse
from hai.v1.task_pb2 import (
    RUN_STATE_BUILDING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUSPENDING,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    Run,
    RunState,
    Task,
)
from hai.v1.task_service_pb2 import WatchTasksResponse


async def versions(request: Any, context: Any) -> AsyncIterator[WatchTasksResponse]:
    """Answer with three changes after the requested version, then wait forever."""
    for version in range(request.after_version + 1, request.after_version + 4):
        yield WatchTasksResponse(version=version)
    await asyncio.Event().wait()


async def test_a_watch_continues_after_a_restart_of_the_server(scripted) -> None:
    scripted.streams["WatchTasks"] = versions
    received: list[int] = []
    async with Client(scripted.profile) as client:
        async for answer in client.tasks.watch("state:running"):
            received.append(answer.version)
            if len(received) in (3, 6):
                await scripted.stop()
                await scripted.start()
            if len(received) == 9:
                break
    assert received == list(range(1, 10))
    asked = [(r.after_version, r.filter) for _, r in scripted.calls]
    assert asked == [(0, "state:running"), (3, "state:running"), (6, "state:running")]


async def test_a_watch_continues_when_the_server_ends_it(scripted) -> None:
    async def one(request: Any, context: Any) -> AsyncIterator[WatchTasksResponse]:
        yield WatchTasksResponse(version=request.after_version + 1)

    scripted.streams["WatchTasks"] = one
    async with Client(scripted.profile) as client:
        watch = client.tasks.watch(after_version=5)
        assert [(await anext(watch)).version for _ in range(3)] == [6, 7, 8]


async def test_a_watch_fails_when_its_patience_is_exceeded(scripted) -> None:
    scripted.streams["WatchTasks"] = versions
    async with Client(scripted.profile) as client:
        watch = client.tasks.watch(patience=0.3)
        await anext(watch)
        await scripted.stop()
        with pytest.raises(errors.Unreachable, match=scripted.profile.server):
            async for _ in watch:
                pass


async def test_each_outage_is_reported_once(scripted, monkeypatch) -> None:
    monkeypatch.setattr("hai.client.connection.streams.NOTIFY_AFTER_SECONDS", 0.2)
    scripted.streams["WatchTasks"] = versions
    reported: list[str] = []
    async with Client(scripted.profile) as client:
        watch = client.tasks.watch(patience=1.0, lost=lambda error: reported.append(error.message))
        await anext(watch)
        await scripted.stop()
        with pytest.raises(errors.Unreachable):
            async for _ in watch:
                pass
    assert len(reported) == 1
    assert scripted.profile.server in reported[0]


async def test_a_refused_watch_raises_the_error(scripted, refuse) -> None:
    refusal = refuse(StatusCode.INVALID_ARGUMENT, "bad filter", "INVALID", (("filter", "bad"),))

    async def refused(request: Any, context: Any) -> AsyncIterator[WatchTasksResponse]:
        await refusal(request, context)
        yield WatchTasksResponse()

    scripted.streams["WatchTasks"] = refused
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Invalid):
            await anext(client.tasks.watch("nonsense"))
    assert len(scripted.calls) == 1


async def lines(request: Any, context: Any) -> AsyncIterator[TailLogsResponse]:
    """Answer with lines 0 to 5 from the cursor on, two at a time, and end after the last one."""
    for number in range(int(request.cursor or 0), 6, 2):
        texts = [LogLine(text=str(n)) for n in (number, number + 1)]
        yield TailLogsResponse(lines=texts, cursor=str(number + 2))


@pytest.mark.parametrize("follow", [False, True], ids=["once", "follow"])
async def test_logs_continue_at_the_last_cursor(scripted, follow: bool) -> None:
    broken = asyncio.Event()

    async def breaking(request: Any, context: Any) -> AsyncIterator[TailLogsResponse]:
        async for answer in lines(request, context):
            yield answer
            if answer.cursor == "4" and not broken.is_set():
                broken.set()
                await context.abort(StatusCode.UNAVAILABLE, "going down")

    scripted.streams["TailLogs"] = breaking
    async with Client(scripted.profile) as client:
        tail = client.logs.tail(7, ranks=[1], follow=follow, tail_lines=9, patience=5)
        texts = [line.text async for answer in tail for line in answer.lines]
    assert texts == ["0", "1", "2", "3", "4", "5"]
    assert [(r.cursor, list(r.ranks), r.tail_lines) for _, r in scripted.calls] == [
        ("", [1], 9),
        ("4", [1], 9),
    ]


async def test_logs_without_follow_fail_at_once_without_a_server(scripted) -> None:
    await scripted.stop()
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.Unreachable):
            await anext(client.logs.tail(7))


async def test_closing_a_stream_ends_it_on_the_server(scripted) -> None:
    left = asyncio.Event()

    async def watched(request: Any, context: Any) -> AsyncIterator[WatchTasksResponse]:
        try:
            yield WatchTasksResponse(version=1)
            await asyncio.Event().wait()
        finally:
            left.set()

    scripted.streams["WatchTasks"] = watched
    async with Client(scripted.profile) as client:
        watch = client.tasks.watch()
        await anext(watch)
        await watch.aclose()
        await asyncio.wait_for(left.wait(), 5)


async def test_wait_returns_when_the_task_reaches_the_state(scripted) -> None:
    async def running(request: Any, context: Any) -> Task:
        return Task(id=7, state=TASK_STATE_RUNNING, run=Run(state=RUN_STATE_RUNNING), version=40)

    async def ending(request: Any, context: Any) -> AsyncIterator[WatchTasksResponse]:
        yield WatchTasksResponse(tasks=[Task(id=7, state=TASK_STATE_RUNNING)], version=41)
        yield WatchTasksResponse(tasks=[Task(id=7, state=TASK_STATE_FINISHED)], version=42)

    scripted.unary["GetTask"] = running
    scripted.streams["WatchTasks"] = ending
    async with Client(scripted.profile) as client:
        assert (await client.tasks.wait(7)).state == TASK_STATE_FINISHED
        assert (await client.tasks.wait(7, "running")).state == TASK_STATE_RUNNING
    watched = scripted.calls[1][1]
    assert (watched.filter, watched.after_version) == ("id:7", 40)


async def test_waiting_for_running_waits_for_the_programs(scripted) -> None:
    def task(state: RunState.ValueType) -> Task:
        return Task(id=7, state=TASK_STATE_RUNNING, run=Run(state=state))

    async def building(request: Any, context: Any) -> Task:
        return task(RUN_STATE_BUILDING)

    async def changes(request: Any, context: Any) -> AsyncIterator[WatchTasksResponse]:
        for state in (RUN_STATE_BUILDING, RUN_STATE_RUNNING, RUN_STATE_SUSPENDING):
            yield WatchTasksResponse(tasks=[task(state)])

    scripted.unary["GetTask"], scripted.streams["WatchTasks"] = building, changes
    async with Client(scripted.profile) as client:
        assert (await client.tasks.wait(7, "running")).run.state == RUN_STATE_RUNNING


async def test_wait_times_out(scripted) -> None:
    async def running(request: Any, context: Any) -> Task:
        return Task(id=7, state=TASK_STATE_RUNNING)

    scripted.unary["GetTask"] = running
    scripted.streams["WatchTasks"] = versions
    async with Client(scripted.profile) as client:
        with pytest.raises(errors.TimedOut, match="task 7"):
            await client.tasks.wait(7, timeout=0.2)
        with pytest.raises(errors.UsageError, match="dancing"):
            await client.tasks.wait(7, "dancing")


async def test_a_wait_for_several_tasks_names_the_unfinished_one(scripted) -> None:
    async def even_ones_have_ended(request: Any, context: Any) -> Task:
        state = TASK_STATE_RUNNING if request.id % 2 else TASK_STATE_FINISHED
        return Task(id=request.id, state=state)

    scripted.unary["GetTask"] = even_ones_have_ended
    scripted.streams["WatchTasks"] = versions
    async with Client(scripted.profile) as client:
        assert [task.id for task in await client.tasks.wait_all([6, 8])] == [6, 8]
        with pytest.raises(errors.TimedOut, match="task 7 was not finished"):
            await client.tasks.wait_all([6, 7, 8], timeout=0.2)


class Stream:
    """Yields numbers, and counts how many were read and whether it was closed."""

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


async def test_merged_streams_keep_their_order_and_read_one_ahead() -> None:
    odd, even = Stream(1, 3, 5), Stream(2, 4)
    received: list[int] = []
    async with aclosing(merge_streams(odd.say(), even.say())) as answers:
        first = await anext(answers)
        assert odd.asked + even.asked <= 2
        received.append(first)
        while len(received) < 5:
            received.append(await anext(answers))
    assert [n for n in received if n % 2] == [1, 3, 5]
    assert [n for n in received if not n % 2] == [2, 4]
    assert (odd.closed, even.closed) == (True, True)


async def test_merged_streams_end_with_the_first_end() -> None:
    ends, waits = Stream(1, endless=False), Stream()
    assert [n async for n in merge_streams(ends.say(), waits.say())] == [1]
    assert waits.closed


async def test_a_failure_of_one_stream_fails_the_merged_stream() -> None:
    fails, waits = Stream(failure=ValueError("bad")), Stream(1)
    with pytest.raises(ValueError, match="bad"):
        async for _ in merge_streams(fails.say(), waits.say()):
            pass
    assert waits.closed


async def test_a_cancelled_reader_closes_all_streams() -> None:
    quiet = Stream()
    reading = asyncio.ensure_future(anext(merge_streams(quiet.say(), quiet.say())))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert quiet.closed
