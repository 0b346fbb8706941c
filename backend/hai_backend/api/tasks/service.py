"""TaskService: submits, lists, changes, watches and explains tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import cast
from weakref import WeakValueDictionary

from hai.v1 import task_pb2
from hai.v1 import task_service_pb2 as pb
from hai.v1.task_service_pb2_grpc import TaskServiceServicer
from hai_backend.api.nodes.convert_gpus import gpus_to_proto
from hai_backend.api.request import filters, limits, paging
from hai_backend.api.scheduling.queue_queries import QueueQueries
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks import reordering
from hai_backend.api.tasks.access import TaskAccess, restrict_to_visible
from hai_backend.api.tasks.actions import PriorityRateLimit, check_delay, new_tags, read_outcome
from hai_backend.api.tasks.convert import (
    event_to_proto,
    goodput_to_proto,
    run_to_proto,
    task_to_proto,
)
from hai_backend.api.tasks.service_deps import TaskDeps
from hai_backend.api.watch.responses import TaskEncoder
from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task
from hai_backend.store.base import TaskQuery

_MAX_RANKS = 20_000  # in one response of ListRuns


class TaskService(TaskServiceServicer):
    """See proto/hai/v1/task_service.proto for what each call means."""

    def __init__(self, deps: TaskDeps) -> None:
        self._deps = deps
        self._task_manager = deps.task_manager
        self._access = TaskAccess(deps.task_manager, deps.directory)
        self._queries = QueueQueries(deps, self._access)
        self._priority_rate_limit = PriorityRateLimit(deps.clock)
        # by task: held between reading the labels of a task and writing them
        self._label_locks = WeakValueDictionary[int, asyncio.Lock]()
        self._encoder = TaskEncoder(deps.scheduling.wait)

    async def CreateTask(self, request: pb.CreateTaskRequest, context: Context) -> task_pb2.Task:
        submission, identity = self._deps.submission, current_caller()
        submit = submission.check if request.validate_only else submission.submit
        task = await submit(identity, request)
        message = self._full_message(task)
        message.warnings.extend(await submission.warnings(task))
        return message

    async def DryRunTask(
        self, request: pb.DryRunTaskRequest, context: Context
    ) -> pb.DryRunTaskResponse:
        identity = current_caller()
        task = await self._deps.submission.check(identity, pb.CreateTaskRequest(spec=request.spec))
        return await self._queries.dry_run(identity, task)

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> task_pb2.Task:
        task = await self._access.get_visible(current_caller(), request.id)
        message = self._full_message(task)
        if task.run is not None:
            read_dropped = partial(self._deps.dropped_logs, task.id, task.run.number)
            for rank, dropped in (await asyncio.to_thread(read_dropped)).items():
                message.run.ranks[rank].log_dropped_bytes = dropped.bytes
                message.run.ranks[rank].log_dropped_lines = dropped.lines or 0
            await self._add_gpus(task, message)
        return message

    async def _add_gpus(self, task: Task, message: task_pb2.Task) -> None:
        """Add the GPUs of each rank. Ranks beyond the limit have none."""
        await self._deps.gpus.refresh()
        remaining = limits.TASK_GPUS
        for rank in message.run.ranks:
            gpus = self._deps.gpus.of_rank(task, rank.index)
            if (remaining := remaining - len(gpus)) < 0:
                return
            rank.gpus.extend(gpus_to_proto(gpus))

    async def ListTasks(
        self, request: pb.ListTasksRequest, context: Context
    ) -> pb.ListTasksResponse:
        query, full = self._query(request), request.view == pb.TASK_VIEW_FULL
        if full:
            query = replace(query, page_size=min(query.page_size, limits.FULL_PAGE_SIZE))
        while True:
            page = await self._deps.store.find_tasks(query)
            response = pb.ListTasksResponse(
                tasks=[self._message(task, full=full) for task in page.tasks],
                next_page_token=page.next_page_token,
                total=page.total or 0,
            )
            if query.page_size == 1 or response.ByteSize() <= limits.PAGE_BYTES:
                return response
            query = replace(query, page_size=query.page_size // 2)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        task = await self._access.get_visible(current_caller(), request.id)
        after = max(request.after, paging.read_number(request.page_token))
        max_runs = 1 + _MAX_RANKS // task.spec.resource.node_count
        size = min(paging.page_size(request.page_size), max_runs)
        found = await self._deps.store.task_runs(task.id, after, size + 1)
        keyed = ((str(run.number), run_to_proto(run)) for run in found)
        runs, token = paging.take_page(keyed, size)
        return pb.ListRunsResponse(runs=runs, next_page_token=token)

    async def ListTaskEvents(
        self, request: pb.ListTaskEventsRequest, context: Context
    ) -> pb.ListTaskEventsResponse:
        task = await self._access.get_visible(current_caller(), request.id)
        after = max(request.after, paging.read_number(request.page_token))
        size = paging.page_size(request.page_size)
        found = await self._deps.store.task_events(task.id, after, size + 1)
        keyed = ((str(number), event_to_proto(number, event)) for number, event in found)
        events, token = paging.take_page(keyed, size)
        return pb.ListTaskEventsResponse(events=events, next_page_token=token)

    async def WatchTasks(
        self, request: pb.WatchTasksRequest, context: Context
    ) -> AsyncIterator[pb.WatchTasksResponse]:
        async with aclosing(self.encoded_changes(request)) as responses:
            async for response in responses:
                yield cast(pb.WatchTasksResponse, response)  # wire.accept_encoded takes bytes

    async def encoded_changes(self, request: pb.WatchTasksRequest) -> AsyncGenerator[bytes, None]:
        """Yield the encoded responses of WatchTasks to the current caller."""
        identity = current_caller()
        requested = filters.parse(request.filter, identity.name, self._deps.clock.now())
        visible = restrict_to_visible(requested, identity)
        stream = self._deps.watch_cache.bundles(visible, request.after_version)
        async with aclosing(stream) as bundles:
            async for bundle in bundles:
                for response in self._encoder.responses(bundle):
                    yield response

    async def StopTask(self, request: pb.StopTaskRequest, context: Context) -> task_pb2.Task:
        task = await self._access.get_modifiable(current_caller(), request.id)
        outcome = read_outcome(request.outcome)
        return self._full_message(
            await self._task_manager.stop(task.id, current_caller().name, outcome)
        )

    async def SuspendTask(self, request: pb.SuspendTaskRequest, context: Context) -> task_pb2.Task:
        task, by = (
            await self._access.get_modifiable(current_caller(), request.id),
            current_caller().name,
        )
        delay = check_delay(request.delay_seconds)
        return self._full_message(
            await self._task_manager.suspend(task.id, by, hold=request.hold, delay=delay)
        )

    async def ResumeTask(self, request: pb.ResumeTaskRequest, context: Context) -> task_pb2.Task:
        task = await self._access.get_modifiable(current_caller(), request.id)
        return self._full_message(await self._task_manager.resume(task.id, current_caller().name))

    async def UpdateTaskPriority(
        self, request: pb.UpdateTaskPriorityRequest, context: Context
    ) -> task_pb2.Task:
        identity = current_caller()
        task = await self._access.get_modifiable(identity, request.id)
        level = self._deps.submission.check_level(task, request.priority)
        self._priority_rate_limit.check(identity, task.id)
        changed = await self._task_manager.set_priority(task.id, identity.name, level)
        self._priority_rate_limit.record_change(task.id)
        return self._full_message(changed)

    async def MoveTask(self, request: pb.MoveTaskRequest, context: Context) -> task_pb2.Task:
        task, by = (
            await self._access.get_modifiable(current_caller(), request.id),
            current_caller().name,
        )
        siblings = reordering.find_siblings(task, self._task_manager.unfinished().values())
        *shifted, (_, own_rank) = reordering.new_ranks(task, siblings, request.before)
        for sibling, rank in shifted:
            with suppress(Conflict):  # the sibling has ended in the meantime
                await self._task_manager.set_rank(sibling, by, rank)
        return self._full_message(await self._task_manager.set_rank(task.id, by, own_rank))

    async def TagTask(self, request: pb.TagTaskRequest, context: Context) -> task_pb2.Task:
        async with self._label_lock(request.id):
            task = await self._access.get_modifiable(current_caller(), request.id)
            tags = new_tags(task, request)
            return self._full_message(
                await self._task_manager.set_labels(task.id, current_caller().name, tags=tags)
            )

    async def StarTask(self, request: pb.StarTaskRequest, context: Context) -> task_pb2.Task:
        async with self._label_lock(request.id):
            task = await self._access.get_modifiable(current_caller(), request.id)
            by = current_caller().name
            return self._full_message(
                await self._task_manager.set_labels(task.id, by, starred=request.starred)
            )

    async def ExplainTask(
        self, request: pb.ExplainTaskRequest, context: Context
    ) -> pb.ExplainTaskResponse:
        identity = current_caller()
        task = await self._access.get_visible(identity, request.id)
        return await self._queries.explain(identity, task)

    async def ListQueue(
        self, request: pb.ListQueueRequest, context: Context
    ) -> pb.ListQueueResponse:
        return await self._queries.list_queue(current_caller(), request.group)

    def _label_lock(self, task_id: int) -> asyncio.Lock:
        return self._label_locks.setdefault(task_id, asyncio.Lock())

    def _message(self, task: Task, *, full: bool = False) -> task_pb2.Task:
        return task_to_proto(task, self._deps.scheduling.wait(task.id), full=full)

    def _full_message(self, task: Task) -> task_pb2.Task:
        task = self._deps.with_unsaved(task)
        message = self._message(task, full=True)
        if task.run is not None:
            message.goodput.CopyFrom(goodput_to_proto(self._deps.goodput(task)))
        return message

    def _query(self, request: pb.ListTasksRequest) -> TaskQuery:
        identity = current_caller()
        column, descending = filters.parse_order(request.order_by)
        return TaskQuery(
            filter=restrict_to_visible(
                filters.parse(request.filter, identity.name, self._deps.clock.now()), identity
            ),
            order_by=column,
            descending=descending,
            page_size=paging.page_size(request.page_size, limits.DEFAULT_PAGE_SIZE),
            page_token=request.page_token,
            count=request.count,
        )
