"""Why a task waits, what would come of one that is not submitted, and who stands in the queue."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Iterable, Mapping

from hai.v1 import task_pb2
from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.paging import split_messages
from hai_backend.api.scheduling.dry_run_response import rehearsed
from hai_backend.api.scheduling.explain_response import Facts, explain, suspensions
from hai_backend.api.scheduling.forecasts import with_start
from hai_backend.api.scheduling.what_if import Insight
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tasks.convert import redacted, task_to_proto
from hai_backend.api.tasks.service_deps import TaskDeps
from hai_backend.auth.permissions import Identity
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.task import Task


class Explanations:
    """Answers show of other users' tasks only what their callers may see."""

    def __init__(self, deps: TaskDeps, access: TaskAccess) -> None:
        self._deps = deps
        self._access = access

    async def rehearse(self, identity: Identity, task: Task) -> pb.DryRunTaskResponse:
        """What would come of a task that has been checked and not submitted."""
        found = await self._deps.what_if.rehearse(task)
        facts = self._facts(identity, task, found.dry_run.wait, found.insight)
        return await asyncio.to_thread(rehearsed, facts, found.dry_run)

    async def explain(self, identity: Identity, task: Task) -> pb.ExplainTaskResponse:
        """Why a task waits, when it is expected to start, and why it was suspended before."""
        deps, group = self._deps, task.spec.resource.group
        wait = (await deps.scheduling.waits(group)).get(task.id)
        insight = await deps.what_if.insight(task.id, wait.ahead) if wait else Insight()
        history = suspensions(await deps.store.task_events(task.id))
        facts = self._facts(identity, task, wait, insight, history)
        answer = await asyncio.to_thread(explain, facts)
        if answer.HasField("waiting"):
            starts = await deps.forecasts.starts([(task.id, group)])
            answer.waiting.predicted_start.CopyFrom(starts[task.id])
        return answer

    def _facts(
        self,
        identity: Identity,
        task: Task,
        wait: Wait | None,
        insight: Insight,
        history: tuple[str, ...] = (),
    ) -> Facts:
        """To be looked at in a thread: all tasks and nodes, as they are now."""
        return Facts(
            task=task,
            wait=wait,
            unfinished=dict(self._deps.task_manager.unfinished()),
            nodes=dict(self._deps.cluster.nodes()),
            quotas=self._deps.directory.quota_rows_of(task.user, self._deps.clock.now()),
            history=history,
            now=self._deps.clock.now(),
            sees=lambda other: self._access.sees(identity, other),
            insight=insight,
            lease=self._deps.timing.lease,
        )

    async def queue(self, identity: Identity, group: str) -> pb.ListQueueResponse:
        """Who waits, in order, as far as one answer may be long; `group`: only of that one."""
        waits = await self._deps.scheduling.waits(group)
        tasks = [*self._deps.task_manager.unfinished().values()]
        first = await asyncio.to_thread(_first, tasks, group, waits)
        seen = {t.id: t.spec.resource.group for t in first if self._access.sees(identity, t)}
        starts = await self._deps.forecasts.starts(seen.items())
        return await asyncio.to_thread(_queue, first, waits, starts)


def _first(tasks: Iterable[Task], group: str, waits: Mapping[int, Wait]) -> list[Task]:
    """The head of the queue. In a thread, as its message: many may wait."""
    waiting = (t for t in tasks if t.waiting and group in ("", t.spec.resource.group))
    return heapq.nsmallest(limits.QUEUE_TASKS, waiting, key=lambda t: _order(waits.get(t.id), t))


def _queue(
    tasks: Iterable[Task], waits: Mapping[int, Wait], starts: Mapping[int, task_pb2.PredictedStart]
) -> pb.ListQueueResponse:
    """`starts`: of those that the caller may see."""
    messages = (
        with_start(task_to_proto(t, waits.get(t.id), full=False), starts[t.id])
        if t.id in starts
        else redacted(t, waits.get(t.id))
        for t in tasks
    )
    return pb.ListQueueResponse(tasks=next(split_messages(messages, limits.PAGE_BYTES)))


def _order(wait: Wait | None, task: Task) -> tuple[str, float, float, int]:
    """By group, then by place; tasks without one come last."""
    place = wait.place if wait and wait.place else math.inf
    return task.spec.resource.group, place, task.created_at, task.id
