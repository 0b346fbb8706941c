"""The task and log services of the fake server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hai.client.errors import Conflict, Invalid, Violation
from hai.client.fake.filter import build_matcher
from hai.client.fake.world import FakeService, World, copy, finish, is_satisfied, suspend_run
from hai.client.taskfile.validation import violations
from hai.client.tasks.diagnosis import diagnose
from hai.client.tasks.silent_agents import is_silent
from hai.client.text.formatting import enum_name
from hai.v1 import task_service_pb2 as rpc
from hai.v1.log_service_pb2 import TailLogsRequest, TailLogsResponse
from hai.v1.task_pb2 import (
    TASK_OUTCOME_CANCELED,
    TASK_OUTCOME_STOPPED,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    TASK_STATE_WAITING_INIT,
    Task,
    TaskOutcome,
    Waiting,
)
from hai.v1.task_spec_pb2 import TaskSpec

_ORDERS = ("id", "create_time", "priority", "name", "state")


class FakeTaskService(FakeService):
    async def CreateTask(self, request: rpc.CreateTaskRequest) -> Task:
        world = self._world
        if request.request_id in world.requests:
            return copy(world.task(world.requests[request.request_id]))
        _check(request.spec)
        task = self._new(request.spec)
        if request.validate_only:
            task.id = 0
            return task
        self._check_name_is_free(task)
        world.tasks[task.id] = task
        world.requests[request.request_id] = task.id
        answer = copy(world.changed(task, "TaskSubmitted"))
        answer.warnings.extend(world.warnings)
        return answer

    async def DryRunTask(self, request: rpc.DryRunTaskRequest) -> rpc.DryRunTaskResponse:
        """Answer that the task would wait, because the fake server starts no task."""
        _check(request.spec)
        task = self._new(request.spec)
        task.id = 0
        self._check_name_is_free(task)
        message = f"would wait: {task.waiting.message}"
        return rpc.DryRunTaskResponse(
            task=task, outcome="WAITS", message=message, waiting=task.waiting
        )

    def _new(self, spec: TaskSpec) -> Task:
        group, _, zone = (spec.resource.group or "default").partition("#")
        awaited = _unfinished_predecessors(self._world, spec)
        message = f"Waits for task {', '.join(map(str, awaited))} to end."
        return Task(
            id=max(self._world.tasks, default=0) + 1,
            user=self._world.user,
            name=spec.name,
            task_type=spec.task_type or "training",
            group=group,
            zone=zone,
            node_count=spec.resource.node_count if spec.resource.HasField("node_count") else 1,
            state=TASK_STATE_WAITING_INIT,
            priority=spec.priority if spec.HasField("priority") else -1,
            tags=spec.options.tags,
            whole_life_state=spec.options.whole_life_state,
            awaited=awaited,
            waiting=Waiting(reason="AFTER", message=message)
            if awaited
            else Waiting(reason="NOT_ENOUGH_NODES", message="0 nodes are free"),
            create_time=self._world.time(),
            spec=spec,
        )

    def _check_name_is_free(self, task: Task) -> None:
        for other in self._world.tasks.values():
            same = (other.user, other.name) == (task.user, task.name)
            if same and other.state != TASK_STATE_FINISHED:
                raise Conflict(
                    f"the name {task.name!r} is taken by your unfinished task {other.id}"
                )

    async def GetTask(self, request: rpc.GetTaskRequest) -> Task:
        return copy(self._world.task(request.id))

    async def ListTasks(self, request: rpc.ListTasksRequest) -> rpc.ListTasksResponse:
        test = build_matcher(request.filter, self._world.user)
        found = _sort_tasks([t for t in self._world.tasks.values() if test(t)], request.order_by)
        start = int(request.page_token or 0)
        end = start + (request.page_size or 50)
        return rpc.ListTasksResponse(
            tasks=[_apply_view(task, request.view) for task in found[start:end]],
            next_page_token=str(end) if end < len(found) else "",
            total=len(found) if request.count else 0,
        )

    async def ListRuns(self, request: rpc.ListRunsRequest) -> rpc.ListRunsResponse:
        self._world.task(request.id)
        runs = self._world.runs.get(request.id, ())
        return rpc.ListRunsResponse(runs=[run for run in runs if run.number > request.after])

    async def ListTaskEvents(
        self, request: rpc.ListTaskEventsRequest
    ) -> rpc.ListTaskEventsResponse:
        self._world.task(request.id)
        events = self._world.events.get(request.id, ())
        return rpc.ListTaskEventsResponse(events=[e for e in events if e.sequence > request.after])

    async def WatchTasks(
        self, request: rpc.WatchTasksRequest
    ) -> AsyncIterator[rpc.WatchTasksResponse]:
        test = build_matcher(request.filter, self._world.user)
        last_version, unfinished_only = request.after_version, request.after_version == 0
        while True:
            changed = [
                _apply_view(task, rpc.TASK_VIEW_BASIC)
                for task in sorted(self._world.tasks.values(), key=lambda t: t.version)
                if task.version > last_version
                and test(task)
                and not (unfinished_only and task.state == TASK_STATE_FINISHED)
            ]
            if changed or unfinished_only:
                last_version = self._world.version
                yield rpc.WatchTasksResponse(tasks=changed, version=last_version)
            unfinished_only = False
            if last_version == self._world.version or not changed:
                await self._world.next_change()

    async def StopTask(self, request: rpc.StopTaskRequest) -> Task:
        task = self._world.task(request.id)
        if task.state == TASK_STATE_FINISHED:
            return copy(task)
        ended = TASK_OUTCOME_STOPPED if task.run_count else TASK_OUTCOME_CANCELED
        return finish(self._world, task, request.outcome or ended, f"stopped by {self._world.user}")

    async def SuspendTask(self, request: rpc.SuspendTaskRequest) -> Task:
        task = self._require_unfinished(request.id)
        task.held = request.hold
        if task.state == TASK_STATE_RUNNING:
            return suspend_run(self._world, task, f"asked by {self._world.user}")
        return self._world.changed(task, "SuspendAsked")

    async def ResumeTask(self, request: rpc.ResumeTaskRequest) -> Task:
        task = self._require_unfinished(request.id)
        task.held = False
        return self._world.changed(task, "TaskResumed")

    async def UpdateTaskPriority(self, request: rpc.UpdateTaskPriorityRequest) -> Task:
        task = self._require_unfinished(request.id)
        task.priority = request.priority
        return self._world.changed(task, "PriorityChanged", f"now {request.priority}")

    async def MoveTask(self, request: rpc.MoveTaskRequest) -> Task:
        task = self._require_unfinished(request.id)
        ranks = [t.custom_rank for t in self._world.tasks.values() if t.user == task.user]
        before = self._world.task(request.before).custom_rank if request.before else min(ranks)
        task.custom_rank = before - 1
        return self._world.changed(task, "TaskMoved")

    async def TagTask(self, request: rpc.TagTaskRequest) -> Task:
        task = self._world.task(request.id)
        tags = [tag for tag in task.tags if tag not in request.remove]
        tags += [tag for tag in request.add if tag not in tags]
        del task.tags[:]
        task.tags.extend(tags)
        return self._world.changed(task, "TaskTagged")

    async def StarTask(self, request: rpc.StarTaskRequest) -> Task:
        task = self._world.task(request.id)
        task.starred = request.starred
        return self._world.changed(task, "TaskStarred")

    async def ExplainTask(self, request: rpc.ExplainTaskRequest) -> rpc.ExplainTaskResponse:
        task = self._world.task(request.id)
        if failed := diagnose(task):
            return rpc.ExplainTaskResponse(constraints=failed.found, suggestions=failed.to_try)
        return rpc.ExplainTaskResponse(
            waiting=_with_prediction(task).waiting, **_explain_silent_agents(task)
        )

    async def ListQueue(self, request: rpc.ListQueueRequest) -> rpc.ListQueueResponse:
        idle = (TASK_STATE_RUNNING, TASK_STATE_FINISHED)
        waiting = [t for t in self._world.tasks.values() if t.state not in idle]
        chosen = [t for t in waiting if request.group in ("", t.group)]
        return rpc.ListQueueResponse(
            tasks=map(
                _with_prediction, sorted(chosen, key=lambda t: (-t.priority, t.custom_rank, t.id))
            )
        )

    def _require_unfinished(self, id: int) -> Task:
        task = self._world.task(id)
        if task.state == TASK_STATE_FINISHED:
            message = (
                f"task {id} ({task.name}) is finished ({enum_name(TaskOutcome, task.outcome)})"
            )
            raise Conflict(f"{message}; submit it again with `hai describe ID | hai run -`")
        return task


def _unfinished_predecessors(world: World, spec: TaskSpec) -> list[int]:
    """Return the ids of predecessors that have not ended. Raises Invalid if one cannot succeed."""
    violations_found: list[Violation] = []
    for i, after in enumerate(spec.options.after):
        predecessor = world.tasks.get(after.task)
        if predecessor is None:
            violations_found.append(
                Violation(f"options.after[{i}].task", f"there is no task {after.task}")
            )
        elif predecessor.state == TASK_STATE_FINISHED and not is_satisfied(after, predecessor):
            message = f"task {after.task} ended {enum_name(TaskOutcome, predecessor.outcome)}"
            violations_found.append(Violation(f"options.after[{i}].task", message))
    if violations_found:
        raise Invalid("the task breaks rules", tuple(violations_found))
    numbers = (after.task for after in spec.options.after)
    return [n for n in numbers if world.tasks[n].state != TASK_STATE_FINISHED]


_PAGE_LINES = 1000


class FakeLogService(FakeService):
    """A cursor is the number of lines before it."""

    async def TailLogs(self, request: TailLogsRequest) -> AsyncIterator[TailLogsResponse]:
        task = self._world.task(request.id)
        if request.back:
            yield self._before(request)
            return
        passed_lines = int(request.cursor or 0)
        first = not request.cursor
        while True:
            lines = self._world.lines.get(request.id, [])
            new_lines = [
                line for line in lines[passed_lines:] if _matches(line.rank, line.run, request)
            ]
            if first and request.tail_lines:
                new_lines = new_lines[-request.tail_lines :]
            first, passed_lines = False, len(lines)
            if new_lines:
                yield TailLogsResponse(lines=new_lines, cursor=str(passed_lines))
            if passed_lines < len(self._world.lines.get(request.id, [])):
                continue  # lines were printed meanwhile
            if not request.follow or task.state == TASK_STATE_FINISHED:
                return
            await self._world.next_change()

    def _before(self, request: TailLogsRequest) -> TailLogsResponse:
        lines = self._world.lines.get(request.id, [])
        end = int(request.cursor) if request.cursor else len(lines)
        matching = [i for i in range(end) if _matches(lines[i].rank, lines[i].run, request)]
        page = matching[-_PAGE_LINES:]
        begin = str(page[0]) if page else ""
        return TailLogsResponse(lines=[lines[i] for i in page], cursor=str(end), begin=begin)


def _matches(rank: int, run: int, request: TailLogsRequest) -> bool:
    return (not request.ranks or rank in request.ranks) and request.run in (0, run)


def _check(spec: TaskSpec) -> None:
    if wrong := tuple(violations(spec)):
        raise Invalid("; ".join(map(str, wrong)), wrong)


def _apply_view(task: Task, view: rpc.TaskView.ValueType) -> Task:
    result = copy(task)
    result.ClearField("goodput")
    if view != rpc.TASK_VIEW_FULL:
        result.ClearField("spec")
    return result


def _with_prediction(task: Task) -> Task:
    """Return the task with the start that a test has predicted, else with the reason of a server without history."""
    result = copy(task)
    if result.waiting.reason and not result.waiting.HasField("predicted_start"):
        reason = "history is thin: 0 tasks have ended by now, a prediction takes 20"
        result.waiting.predicted_start.reason = reason
    return result


def _explain_silent_agents(task: Task) -> dict[str, Any]:
    """Return a short form of what a server explains about silent agents."""
    silent = [rank for rank in task.run.ranks if is_silent(rank)]
    return {
        "constraints": [
            f"the agent of rank {rank.index} on {rank.node} is silent" for rank in silent
        ],
        "suggestions": [f"end the task: hai stop {task.id}"] if silent else [],
        "silent_ranks": [
            rpc.SilentRank(rank=r.index, node=r.node, since_time=r.silent_since_time)
            for r in silent
        ],
    }


def _sort_tasks(tasks: list[Task], order_by: str) -> list[Task]:
    key, _, direction = (order_by or "id desc").partition(" ")
    if key not in _ORDERS:
        raise Invalid(f"order_by: {key!r} is not one of {', '.join(_ORDERS)}")
    name = "id" if key == "create_time" else key
    return sorted(tasks, key=lambda t: getattr(t, name), reverse=direction == "desc")
