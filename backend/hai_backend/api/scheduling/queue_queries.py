"""Answers ExplainTask, DryRunTask and ListQueue."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Iterable, Mapping

from hai.v1 import task_pb2
from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.paging import split_messages
from hai_backend.api.scheduling.dry_run_response import dry_run_response
from hai_backend.api.scheduling.explain_response import (
    Facts,
    describe_suspensions,
    explain_response,
)
from hai_backend.api.scheduling.forecasts import with_start
from hai_backend.api.scheduling.what_if import Insight
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tasks.convert import redacted_task_to_proto, task_to_proto
from hai_backend.api.tasks.service_deps import TaskDeps
from hai_backend.auth.permissions import Identity
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.task import Task


class QueueQueries:
    """The questions about waiting tasks. Responses contain only what the caller may see of the tasks of others."""

    def __init__(self, deps: TaskDeps, access: TaskAccess) -> None:
        self._deps = deps
        self._access = access

    async def dry_run(self, identity: Identity, task: Task) -> pb.DryRunTaskResponse:
        """Predict what happens to a valid task that is not submitted."""
        prediction = await self._deps.what_if.dry_run(task)
        facts = self._facts(identity, task, prediction.result.wait, prediction.insight)
        return await asyncio.to_thread(dry_run_response, facts, prediction.result)

    async def explain(self, identity: Identity, task: Task) -> pb.ExplainTaskResponse:
        """Explain why a task waits, when it may start, and why it was suspended before."""
        deps, group = self._deps, task.spec.resource.group
        wait = (await deps.scheduling.waits(group)).get(task.id)
        insight = await deps.what_if.insight(task.id, wait.ahead) if wait else Insight()
        history = describe_suspensions(await deps.store.task_events(task.id))
        facts = self._facts(identity, task, wait, insight, history)
        response = await asyncio.to_thread(explain_response, facts)
        if response.HasField("waiting"):
            starts = await deps.forecasts.starts([(task.id, group)])
            response.waiting.predicted_start.CopyFrom(starts[task.id])
        return response

    def _facts(
        self,
        identity: Identity,
        task: Task,
        wait: Wait | None,
        insight: Insight,
        history: tuple[str, ...] = (),
    ) -> Facts:
        """Copy the current state, so that a thread can read it."""
        return Facts(
            task=task,
            wait=wait,
            unfinished=dict(self._deps.task_manager.unfinished()),
            nodes=dict(self._deps.cluster.nodes()),
            quotas=self._deps.directory.quota_rows_of(task.user, self._deps.clock.now()),
            history=history,
            now=self._deps.clock.now(),
            can_see=lambda other: self._access.can_see(identity, other),
            insight=insight,
            lease_seconds=self._deps.timing.lease,
        )

    async def list_queue(self, identity: Identity, group: str) -> pb.ListQueueResponse:
        """List the first waiting tasks, in order, of one group or of all groups. Runs in threads: many may wait."""
        waits = await self._deps.scheduling.waits(group)
        tasks = [*self._deps.task_manager.unfinished().values()]
        first = await asyncio.to_thread(_first_waiting, tasks, group, waits)
        visible = {t.id: t.spec.resource.group for t in first if self._access.can_see(identity, t)}
        starts = await self._deps.forecasts.starts(visible.items())
        return await asyncio.to_thread(_queue_to_proto, first, waits, starts)


def _first_waiting(tasks: Iterable[Task], group: str, waits: Mapping[int, Wait]) -> list[Task]:
    waiting = (t for t in tasks if t.waiting and group in ("", t.spec.resource.group))
    return heapq.nsmallest(limits.QUEUE_TASKS, waiting, key=lambda t: _sort_key(waits.get(t.id), t))


def _queue_to_proto(
    tasks: Iterable[Task], waits: Mapping[int, Wait], starts: Mapping[int, task_pb2.PredictedStart]
) -> pb.ListQueueResponse:
    """Convert the queue. `starts` contains the tasks that the caller may see; the others are redacted."""
    messages = (
        with_start(task_to_proto(t, waits.get(t.id), full=False), starts[t.id])
        if t.id in starts
        else redacted_task_to_proto(t, waits.get(t.id))
        for t in tasks
    )
    return pb.ListQueueResponse(tasks=next(split_messages(messages, limits.PAGE_BYTES)))


def _sort_key(wait: Wait | None, task: Task) -> tuple[str, float, float, int]:
    """Return a key that sorts by group, then by place. Tasks without a place come last."""
    place = wait.place if wait and wait.place else math.inf
    return task.spec.resource.group, place, task.created_at, task.id
