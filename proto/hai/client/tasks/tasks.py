"""Calls about tasks: submit, list, control, watch."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.streams import OnLost, resume_stream
from hai.client.connection.transport import Transport
from hai.client.errors import ServerError, TimedOut, UsageError
from hai.client.resources.requests import pages
from hai.client.tasks.references import Kind, Resolver
from hai.v1.task_pb2 import (
    RUN_STATE_RUNNING,
    TASK_OUTCOME_UNSPECIFIED,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    Run,
    Task,
    TaskEvent,
    TaskOutcome,
    TaskState,
)
from hai.v1.task_service_pb2 import (
    TASK_VIEW_UNSPECIFIED,
    CreateTaskRequest,
    DryRunTaskRequest,
    DryRunTaskResponse,
    ExplainTaskRequest,
    ExplainTaskResponse,
    GetTaskRequest,
    ListQueueRequest,
    ListRunsRequest,
    ListRunsResponse,
    ListTaskEventsRequest,
    ListTaskEventsResponse,
    ListTasksRequest,
    ListTasksResponse,
    MoveTaskRequest,
    ResumeTaskRequest,
    StarTaskRequest,
    StopTaskRequest,
    SuspendTaskRequest,
    TagTaskRequest,
    TaskView,
    UpdateTaskPriorityRequest,
    WatchTasksRequest,
    WatchTasksResponse,
)
from hai.v1.task_service_pb2_grpc import TaskServiceStub
from hai.v1.task_spec_pb2 import TaskSpec

if TYPE_CHECKING:
    from hai.v1.task_service_pb2_grpc import TaskServiceAsyncStub


class Tasks:
    """Calls about tasks of the caller, and of others if the caller may see them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._resolver = Resolver(self.all)
        self._supports_after = False  # whether the server is known to support options.after

    @cached_property
    def _stub(self) -> TaskServiceAsyncStub:
        return self._transport.stub(TaskServiceStub)

    async def create(
        self, spec: TaskSpec, *, request_id: str | None = None, validate_only: bool = False
    ) -> Task:
        """Submit a task and return it once it is stored. With `validate_only` nothing is created, and the id is 0."""
        if spec.options.after and not validate_only and not self._supports_after:
            await self.create(spec, validate_only=True)
        request = CreateTaskRequest(
            spec=spec, request_id=request_id or str(uuid.uuid4()), validate_only=validate_only
        )
        task = await self._transport.unary(self._stub.CreateTask, request, retry=True)
        self._check_supports_after(spec, task)
        return task

    async def dry_run(self, spec: TaskSpec) -> DryRunTaskResponse:
        """Return what the next scheduling pass would do with a task. Nothing is stored. Raises as `create` does."""
        request = DryRunTaskRequest(spec=spec)
        answer = await self._transport.unary(self._stub.DryRunTask, request, retry=True)
        self._check_supports_after(spec, answer.task)
        return answer

    def _check_supports_after(self, spec: TaskSpec, understood: Task) -> None:
        """Raise ServerError if an old server ignores `after` and would start the task at once."""
        if spec.options.after and not understood.spec.options.after:
            raise ServerError(
                "the server knows no options.after: it is older than this client",
                reason="UNIMPLEMENTED",
                hint="have the server upgraded, or submit the task when those that go first have ended",
            )
        self._supports_after = self._supports_after or bool(spec.options.after)

    async def get(self, id: int) -> Task:
        """Return one task with its spec."""
        return await self._transport.unary(self._stub.GetTask, GetTaskRequest(id=id), retry=True)

    async def resolve(self, ref: str, kind: Kind = "auto") -> int:
        """Return the id of the task that an id, a yaml file or a name refers to."""
        return await self._resolver.resolve(ref, kind)

    async def list(
        self,
        *,
        filter: str = "",
        order_by: str = "",
        page_size: int = 50,
        page_token: str = "",
        view: TaskView.ValueType = TASK_VIEW_UNSPECIFIED,
        count: bool = False,
    ) -> ListTasksResponse:
        """Return one page of tasks."""
        request = ListTasksRequest(
            filter=filter,
            order_by=order_by,
            page_size=page_size,
            page_token=page_token,
            view=view,
            count=count,
        )
        return await self._transport.unary(self._stub.ListTasks, request, retry=True)

    async def all(
        self,
        *,
        filter: str = "",
        order_by: str = "",
        view: TaskView.ValueType = TASK_VIEW_UNSPECIFIED,
        page_size: int = 500,
    ) -> AsyncGenerator[Task, None]:
        """Yield every task that matches, fetched page by page."""

        def fetch_page(token: str) -> Awaitable[ListTasksResponse]:
            return self.list(
                filter=filter, order_by=order_by, view=view, page_size=page_size, page_token=token
            )

        async for page in pages(fetch_page):
            for task in page.tasks:
                yield task

    async def runs(self, id: int, after: int = 0) -> Sequence[Run]:
        """Return the runs of a task after a run number, oldest first."""

        def fetch_page(token: str) -> Awaitable[ListRunsResponse]:
            request = ListRunsRequest(id=id, after=after, page_token=token)
            return self._transport.unary(self._stub.ListRuns, request, retry=True)

        return [run async for page in pages(fetch_page) for run in page.runs]

    async def events(self, id: int, after: int = 0) -> Sequence[TaskEvent]:
        """Return the events of a task after a sequence number, oldest first."""

        def fetch_page(token: str) -> Awaitable[ListTaskEventsResponse]:
            request = ListTaskEventsRequest(id=id, after=after, page_token=token)
            return self._transport.unary(self._stub.ListTaskEvents, request, retry=True)

        return [event async for page in pages(fetch_page) for event in page.events]

    def watch(
        self,
        filter: str = "",
        after_version: int = 0,
        *,
        patience: float | None = None,
        lost: OnLost | None = None,
    ) -> AsyncGenerator[WatchTasksResponse, None]:
        """Yield changes after a version. After an outage the watch continues from the last version.

        Raises Unreachable after `patience` seconds without a server; None means no limit. `lost` is called when the
        server does not answer.
        """

        def reopen(version: int) -> AsyncGenerator[WatchTasksResponse, None]:
            request = WatchTasksRequest(filter=filter, after_version=version)
            return self._transport.stream(self._stub.WatchTasks, request)

        return resume_stream(
            reopen,
            after_version,
            lambda r: r.version,
            patience=patience,
            endless=True,
            on_lost=lost,
        )

    async def stop(
        self, id: int, outcome: TaskOutcome.ValueType = TASK_OUTCOME_UNSPECIFIED
    ) -> Task:
        """Stop a task. Stopping it twice is not an error."""
        request = StopTaskRequest(id=id, outcome=outcome)
        return await self._transport.unary(self._stub.StopTask, request, retry=True)

    async def suspend(self, id: int, hold: bool = False, delay_seconds: float = 0.0) -> Task:
        """Request that the program saves and yields. The call is never repeated: a retry could affect the next run."""
        request = SuspendTaskRequest(id=id, hold=hold, delay_seconds=delay_seconds)
        return await self._transport.unary(self._stub.SuspendTask, request)

    async def resume(self, id: int) -> Task:
        """Allow a task on hold to start again."""
        return await self._transport.unary(self._stub.ResumeTask, ResumeTaskRequest(id=id))

    async def set_priority(self, id: int, priority: int) -> Task:
        """Change the priority. -1 is AUTO."""
        request = UpdateTaskPriorityRequest(id=id, priority=priority)
        return await self._transport.unary(self._stub.UpdateTaskPriority, request, retry=True)

    async def move(self, id: int, before: int = 0) -> Task:
        """Move a task before another task of the same user. 0 means before all of them."""
        request = MoveTaskRequest(id=id, before=before)
        return await self._transport.unary(self._stub.MoveTask, request)

    async def tag(self, id: int, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Task:
        """Add and remove labels."""
        request = TagTaskRequest(id=id, add=add, remove=remove)
        return await self._transport.unary(self._stub.TagTask, request, retry=True)

    async def star(self, id: int, starred: bool = True) -> Task:
        """Mark a task with a star, or remove the star."""
        request = StarTaskRequest(id=id, starred=starred)
        return await self._transport.unary(self._stub.StarTask, request, retry=True)

    async def explain(self, id: int) -> ExplainTaskResponse:
        """Return why a task waits, which tasks are ahead of it, and what would help."""
        request = ExplainTaskRequest(id=id)
        return await self._transport.unary(self._stub.ExplainTask, request, retry=True)

    async def queue(self, group: str = "") -> Sequence[Task]:
        """Return the waiting tasks of a node group, or of all groups, in the order of the queue."""
        request = ListQueueRequest(group=group)
        return (await self._transport.unary(self._stub.ListQueue, request, retry=True)).tasks

    async def wait(
        self,
        id: int,
        until: str = "finished",
        timeout: float | None = None,
        lost: OnLost | None = None,
    ) -> Task:
        """Wait until a task reaches a state or finishes. Raises TimedOut after `timeout` seconds.

        `lost` is called when the server does not answer.
        """
        return (await self.wait_all([id], until, timeout, lost))[0]

    async def wait_all(
        self,
        ids: Sequence[int],
        until: str = "finished",
        timeout: float | None = None,
        lost: OnLost | None = None,
    ) -> Sequence[Task]:
        """Wait for several tasks, one after the other. The time limit applies to all of them together."""
        state = task_state(until)
        tasks_by_id: dict[int, Task] = {}
        try:
            async with asyncio.timeout(timeout):
                for id in ids:
                    tasks_by_id[id] = await self._wait_until(id, state, lost)
        except TimeoutError as error:
            id = next(id for id in ids if id not in tasks_by_id)
            raise TimedOut(
                f"task {id} was not {until} after {timeout:g} s",
                hint=f"`hai status {id}` shows where it stands; wait longer with a larger timeout",
            ) from error
        return [tasks_by_id[id] for id in ids]

    async def _wait_until(self, id: int, state: TaskState.ValueType, lost: OnLost | None) -> Task:
        """Watch one task until it has reached a state."""
        task = await self.get(id)
        if has_reached(task, state):
            return task
        async with aclosing(self.watch(f"id:{id}", task.version, lost=lost)) as answers:
            async for answer in answers:
                for task in answer.tasks:
                    if has_reached(task, state):
                        return task
        raise AssertionError("a watch never ends by itself")


_PREFIX = "TASK_STATE_"


def task_state(name: str) -> TaskState.ValueType:
    """Return the state with a name such as finished, RUNNING or waiting-init. Raises UsageError."""
    requested = _PREFIX + name.upper().replace("-", "_").removeprefix(_PREFIX)
    states = {key: value for key, value in TaskState.items() if value}
    if requested not in states:
        choices = ", ".join(key.removeprefix(_PREFIX).lower() for key in states)
        raise UsageError(f"no task state is called {name!r}", hint=f"use one of {choices}")
    return states[requested]


def has_reached(task: Task, state: TaskState.ValueType) -> bool:
    """Return whether a task is in a state or can never reach it. A task counts as RUNNING when its programs run."""
    if task.state == state == TASK_STATE_RUNNING:
        return task.run.state == RUN_STATE_RUNNING
    return task.state in (state, TASK_STATE_FINISHED)
