"""TaskService: submit, look, ask, follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from hai.v1 import task_pb2
from hai.v1 import task_service_pb2 as pb
from hai.v1.task_service_pb2_grpc import TaskServiceServicer
from hai_backend.api.request import filters, limits, paging
from hai_backend.api.request.paging import split_messages
from hai_backend.api.scheduling.queue_queries import Explanations
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks import reordering
from hai_backend.api.tasks.access import TaskAccess, within_sight
from hai_backend.api.tasks.actions import PriorityPace, checked_delay, checked_outcome, new_tags
from hai_backend.api.tasks.convert import (
    event_to_proto,
    goodput_to_proto,
    run_to_proto,
    task_to_proto,
)
from hai_backend.api.tasks.service_deps import TaskDeps
from hai_backend.api.tasks.watch import Bundle, TaskWatch
from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task
from hai_backend.store.base import TaskQuery

_RANKS = 20_000  # read for one answer


class TaskService(TaskServiceServicer):
    """See proto/hai/v1/task_service.proto for what each call means."""

    def __init__(self, deps: TaskDeps) -> None:
        self._deps = deps
        self._task_manager = deps.task_manager
        self._access = TaskAccess(deps.task_manager, deps.directory)
        self._explaining = Explanations(deps, self._access)
        self._pace = PriorityPace(deps.clock)
        self._labelling = asyncio.Lock()

    async def CreateTask(self, request: pb.CreateTaskRequest, context: Context) -> task_pb2.Task:
        submit = (
            self._deps.submission.check if request.validate_only else self._deps.submission.submit
        )
        return self._answer(await submit(current_caller(), request))

    async def DryRunTask(
        self, request: pb.DryRunTaskRequest, context: Context
    ) -> pb.DryRunTaskResponse:
        identity = current_caller()
        task = await self._deps.submission.check(identity, pb.CreateTaskRequest(spec=request.spec))
        return await self._explaining.rehearse(identity, task)

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> task_pb2.Task:
        task = await self._access.visible(current_caller(), request.id)
        message = self._answer(task)
        if task.run is not None:
            look_up = partial(self._deps.dropped_logs, task.id, task.run.number)
            for rank, dropped in (await asyncio.to_thread(look_up)).items():
                message.run.ranks[rank].log_dropped_bytes = dropped.bytes
                message.run.ranks[rank].log_dropped_lines = dropped.lines or 0
        return message

    async def ListTasks(
        self, request: pb.ListTasksRequest, context: Context
    ) -> pb.ListTasksResponse:
        query, full = self._query(request), request.view == pb.TASK_VIEW_FULL
        if full:
            query = replace(query, page_size=min(query.page_size, limits.FULL_PAGE_SIZE))
        while True:
            page = await self._deps.store.find_tasks(query)
            answer = pb.ListTasksResponse(
                tasks=[self._message(task, full=full) for task in page.tasks],
                next_page_token=page.next_page_token,
                total=page.total or 0,
            )
            if query.page_size == 1 or answer.ByteSize() <= limits.PAGE_BYTES:
                return answer
            query = replace(query, page_size=query.page_size // 2)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        task = await self._access.visible(current_caller(), request.id)
        begin = max(request.after, paging.read_number(request.page_token))
        most = min(paging.page_size(request.page_size), 1 + _RANKS // task.spec.resource.node_count)
        found = await self._deps.store.task_runs(task.id, begin, most + 1)
        keyed = ((str(run.number), run_to_proto(run)) for run in found)
        runs, token = paging.take_page(keyed, most)
        return pb.ListRunsResponse(runs=runs, next_page_token=token)

    async def ListTaskEvents(
        self, request: pb.ListTaskEventsRequest, context: Context
    ) -> pb.ListTaskEventsResponse:
        task = await self._access.visible(current_caller(), request.id)
        begin = max(request.after, paging.read_number(request.page_token))
        most = paging.page_size(request.page_size)
        found = await self._deps.store.task_events(task.id, begin, most + 1)
        keyed = ((str(number), event_to_proto(number, event)) for number, event in found)
        events, token = paging.take_page(keyed, most)
        return pb.ListTaskEventsResponse(events=events, next_page_token=token)

    async def WatchTasks(
        self, request: pb.WatchTasksRequest, context: Context
    ) -> AsyncIterator[pb.WatchTasksResponse]:
        identity, deps = current_caller(), self._deps
        wanted = filters.parse(request.filter, identity.name, deps.clock.now())
        watch = TaskWatch(
            deps.store,
            self._task_manager.feed,
            within_sight(wanted, identity),
            deps.directory.groups_of,
        )
        sent = request.after_version
        async for bundle in watch.bundles(request.after_version):
            for answer in self._answers(bundle, sent):
                yield answer
            sent = bundle.version

    async def StopTask(self, request: pb.StopTaskRequest, context: Context) -> task_pb2.Task:
        task = await self._access.steerable(current_caller(), request.id)
        outcome = checked_outcome(request.outcome)
        return self._answer(await self._task_manager.stop(task.id, current_caller().name, outcome))

    async def SuspendTask(self, request: pb.SuspendTaskRequest, context: Context) -> task_pb2.Task:
        task, by = await self._access.steerable(current_caller(), request.id), current_caller().name
        delay = checked_delay(request.delay_seconds)
        return self._answer(
            await self._task_manager.suspend(task.id, by, hold=request.hold, delay=delay)
        )

    async def ResumeTask(self, request: pb.ResumeTaskRequest, context: Context) -> task_pb2.Task:
        task = await self._access.steerable(current_caller(), request.id)
        return self._answer(await self._task_manager.resume(task.id, current_caller().name))

    async def UpdateTaskPriority(
        self, request: pb.UpdateTaskPriorityRequest, context: Context
    ) -> task_pb2.Task:
        identity = current_caller()
        task = await self._access.steerable(identity, request.id)
        level = self._deps.submission.level(task, request.priority)
        self._pace.check(identity, task.id)
        changed = await self._task_manager.set_priority(task.id, identity.name, level)
        self._pace.changed(task.id)
        return self._answer(changed)

    async def MoveTask(self, request: pb.MoveTaskRequest, context: Context) -> task_pb2.Task:
        task, by = await self._access.steerable(current_caller(), request.id), current_caller().name
        siblings = reordering.siblings(task, self._task_manager.unfinished().values())
        *others, (_, own) = reordering.new_ranks(task, siblings, request.before)
        for other, rank in others:
            with suppress(Conflict):  # it has ended meanwhile, and is in nobody's way
                await self._task_manager.set_rank(other, by, rank)
        return self._answer(await self._task_manager.set_rank(task.id, by, own))

    async def TagTask(self, request: pb.TagTaskRequest, context: Context) -> task_pb2.Task:
        async with self._labelling:  # read, change, write
            task = await self._access.steerable(current_caller(), request.id)
            tags = new_tags(task, request)
            return self._answer(
                await self._task_manager.set_labels(task.id, current_caller().name, tags=tags)
            )

    async def StarTask(self, request: pb.StarTaskRequest, context: Context) -> task_pb2.Task:
        async with self._labelling:
            task = await self._access.steerable(current_caller(), request.id)
            by = current_caller().name
            return self._answer(
                await self._task_manager.set_labels(task.id, by, starred=request.starred)
            )

    async def ExplainTask(
        self, request: pb.ExplainTaskRequest, context: Context
    ) -> pb.ExplainTaskResponse:
        identity = current_caller()
        task = await self._access.visible(identity, request.id)
        return await self._explaining.explain(identity, task)

    async def ListQueue(
        self, request: pb.ListQueueRequest, context: Context
    ) -> pb.ListQueueResponse:
        return await self._explaining.queue(current_caller(), request.group)

    def _message(self, task: Task, *, full: bool = False) -> task_pb2.Task:
        return task_to_proto(task, self._deps.scheduling.wait(task.id), full=full)

    def _answer(self, task: Task) -> task_pb2.Task:
        message = self._message(task, full=True)
        if task.run is not None:
            message.goodput.CopyFrom(goodput_to_proto(self._deps.goodput(task)))
        return message

    def _answers(self, bundle: Bundle, sent: int) -> Iterator[pb.WatchTasksResponse]:
        """One bundle in answers of bearable size; only the last says that all of it was sent."""
        *parts, last = split_messages(map(self._message, bundle.tasks))
        for part in parts:
            yield pb.WatchTasksResponse(
                tasks=part, version=part[-1].version if bundle.ordered else sent
            )
        yield pb.WatchTasksResponse(tasks=last, version=bundle.version)

    def _query(self, request: pb.ListTasksRequest) -> TaskQuery:
        identity = current_caller()
        column, descending = filters.parse_order(request.order_by)
        return TaskQuery(
            filter=within_sight(
                filters.parse(request.filter, identity.name, self._deps.clock.now()), identity
            ),
            order_by=column,
            descending=descending,
            page_size=paging.page_size(request.page_size, limits.DEFAULT_PAGE_SIZE),
            page_token=request.page_token,
            count=request.count,
        )
