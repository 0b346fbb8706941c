"""LogService: reads and follows the output of programs from a cursor, over all ranks and runs of a task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from hai.v1 import log_service_pb2 as pb
from hai.v1.log_service_pb2_grpc import LogServiceServicer
from hai_backend.api.protocols import Logs, TaskManager
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import from_timestamp, to_timestamp
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.domain.task import TaskState
from hai_backend.logs.lines import LogLine


class LogService(LogServiceServicer):
    """See proto/hai/v1/log_service.proto for what each call means."""

    def __init__(
        self,
        logs: Logs,
        task_manager: TaskManager,
        access: TaskAccess,
        following_begins: Callable[[int], None],
    ) -> None:
        self._logs = logs
        self._task_manager = task_manager
        self._access = access
        self._following_begins = following_begins

    async def TailLogs(
        self, request: pb.TailLogsRequest, context: Context
    ) -> AsyncIterator[pb.TailLogsResponse]:
        _check(request)
        await self._access.get_visible(current_caller(), request.id)
        if request.back:
            yield await asyncio.to_thread(self._read_backwards, request)
            return
        cursor, is_first, bar_version = request.cursor, True, 0
        with self._appends(request) as appended:
            while True:
                has_ended = await self._has_ended(request.id)  # before the last lines are read
                appended.clear()
                began = time.monotonic()
                lines, cursor = await asyncio.to_thread(self._read, request, cursor)
                read_seconds = time.monotonic() - began
                bars, bar_version = self._changed_bars(request, bar_version)
                if lines or bars or is_first:
                    yield pb.TailLogsResponse(
                        lines=map(_line_to_proto, lines + bars), cursor=cursor
                    )
                    is_first = False
                if not lines and (has_ended or not request.follow):
                    return
                if not lines:
                    await self._wait_for_lines(request.id, appended)
                elif request.follow:
                    # A log of many ranks is read less often, so that its followers cost others little.
                    pause = min(limits.LOG_PAUSES * read_seconds, limits.LOG_SECONDS_MAX)
                    await asyncio.sleep(max(limits.LOG_SECONDS, pause))

    @contextmanager
    def _appends(self, request: pb.TailLogsRequest) -> Iterator[asyncio.Event]:
        """An event that is set when something is appended. Only callers that follow the log wait for it."""
        if not request.follow:
            yield asyncio.Event()
            return
        is_first = not self._logs.is_followed(request.id)
        with self._logs.appends(request.id) as appended:
            if is_first:
                self._following_begins(request.id)
            yield appended

    def _read(self, request: pb.TailLogsRequest, cursor: str) -> tuple[list[LogLine], str]:
        return self._logs.read(
            request.id,
            ranks=tuple(request.ranks),
            run=request.run,
            tail_lines=request.tail_lines,
            since=from_timestamp(request.since) if request.HasField("since") else None,
            cursor=cursor,
            max_bytes=limits.BUNDLE_BYTES,
        )

    def _changed_bars(self, request: pb.TailLogsRequest, version: int) -> tuple[list[LogLine], int]:
        """Return the progress bars that were drawn after a version. Only callers that follow the log get them."""
        if not request.follow:
            return [], version
        return self._logs.bars(
            request.id, ranks=tuple(request.ranks), run=request.run, after=version
        )

    def _read_backwards(self, request: pb.TailLogsRequest) -> pb.TailLogsResponse:
        lines, begin, end = self._logs.read_back(
            request.id,
            ranks=tuple(request.ranks),
            run=request.run,
            cursor=request.cursor,
            max_bytes=limits.LOG_PAGE_BYTES,
        )
        return pb.TailLogsResponse(lines=map(_line_to_proto, lines), cursor=end, begin=begin)

    async def _has_ended(self, task_id: int) -> bool:
        if task_id in self._task_manager.unfinished():
            return False
        return (await self._task_manager.get(task_id)).state is TaskState.FINISHED

    async def _wait_for_lines(self, task_id: int, appended: asyncio.Event) -> None:
        """Wait until something is appended or the task ends."""
        lines = asyncio.ensure_future(appended.wait())
        ended = asyncio.ensure_future(self._wait_for_end(task_id))
        try:
            await asyncio.wait((lines, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            lines.cancel()
            ended.cancel()
            await asyncio.gather(lines, ended, return_exceptions=True)

    async def _wait_for_end(self, task_id: int) -> None:
        feed = self._task_manager.feed
        version = feed.version
        while task_id in self._task_manager.unfinished():
            version = await feed.beyond(version)


def _check(request: pb.TailLogsRequest) -> None:
    violations = FieldViolations()
    for i, rank in enumerate(request.ranks):
        violations.check_range(f"ranks[{i}]", rank, 0, limits.NODES)
    violations.check_range("run", request.run, 0, 2**31 - 1)
    violations.check_range("tail_lines", request.tail_lines, 0, 2**31 - 1)
    if request.back and (request.tail_lines or request.follow or request.HasField("since")):
        violations.add("back", "cannot be combined with tail_lines, since or follow")
    violations.raise_if_any()


def _line_to_proto(line: LogLine) -> pb.LogLine:
    return pb.LogLine(
        run=line.run,
        rank=line.rank,
        time=to_timestamp(line.time),
        text=line.text,
        redraw=line.redraw,
    )
