"""Holds all unfinished tasks in memory, with the same values as in the store. All changes of tasks go through it.

Crash safety depends on the order within `apply`: compute the step, store it, update memory, publish the change, carry
out instructions. No change has any effect before it is stored. After a crash, lifecycle.recovery derives the
instructions that were not carried out.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args
from weakref import WeakValueDictionary

import structlog

from hai.redaction import redact
from hai_backend.controllers.aio.batch import Batch
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.aio.shield import shielded
from hai_backend.controllers.scheduling.binder import Occupants
from hai_backend.domain.errors import Conflict, HaiError, NotFound, Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import TaskSpec, count_characters
from hai_backend.domain.task import Outcome, Task, TaskEvent, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import steps
from hai_backend.lifecycle.instructions import Instruction
from hai_backend.lifecycle.limits import DEFAULTS, Limits
from hai_backend.store.base import Store, TaskFilter, TaskQuery

log = structlog.get_logger(__name__)

Perform = Callable[[Task, Instruction], None]
# arguments: the task before (None if it is new) and after the change
Changed = Callable[[Task | None, Task], None]
WithUnsaved = Callable[[Task], Task]  # returns the task with reports that are not stored yet
# returns the records to store with a change, from the task before and after it
Notices = Callable[[Task, Task], Sequence[object]]

_BATCHED = (*get_args(ev.RankEvent), ev.PredecessorEnded)  # up to a thousand may arrive at once
_TRIES = 5  # attempts to write a task, because another server may change it meanwhile


async def _finish(work: Coroutine[Any, Any, Task]) -> Task:
    """Complete a change even if its caller is cancelled, because it may already be stored but not in memory."""
    return await shielded(asyncio.create_task(work), _log_error)


def _log_error(error: BaseException) -> None:
    """Log an unexpected error of a change whose caller was cancelled. A refusal is ignored."""
    if not isinstance(error, HaiError):
        trace = "".join(traceback.format_exception(error))
        log.error("a change has failed after its caller was cancelled", trace=trace)


class TaskManager:
    """Reads and changes tasks for API services, the scheduling loop, the launch reconciler, agents and timers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        feed: ChangeFeed,
        *,
        perform: Perform,
        changed: Changed,
        limits: Limits = DEFAULTS,
        with_unsaved: WithUnsaved = lambda task: task,
        notices: Notices = lambda before, task: (),
    ) -> None:
        self.feed = feed
        self._store = store
        self._clock = clock
        self._perform = perform
        self._changed = changed
        self._limits = limits
        self._with_unsaved = with_unsaved
        self._notices_of = notices
        self.occupants = Occupants()
        self._tasks: dict[int, Task] = {}
        self._per_user: Counter[str] = Counter()
        # by user: number of characters in the specs of unfinished tasks
        self._spec_lengths: Counter[str] = Counter()
        # by task: the lock of a task that is being changed
        self._locks = WeakValueDictionary[int, asyncio.Lock]()
        self._batch = Batch(self._try)

    async def load(self) -> None:
        """Read all unfinished tasks. Must be called once, before all other methods."""
        for task in await self._store.unfinished_tasks():
            self._put(task)
        self.feed.publish(await self._store.version())

    async def has_tasks(self) -> bool:
        """Return whether the store contains any task."""
        page = await self._store.find_tasks(TaskQuery(TaskFilter(), page_size=1))
        return bool(page.tasks)

    def unfinished(self) -> Mapping[int, Task]:
        """Return all unfinished tasks by id. The mapping changes with the tasks."""
        return self._tasks

    def unfinished_of(self, user: str) -> int:
        """Return the number of a user's unfinished tasks."""
        return self._per_user[user]

    def spec_length_of(self, user: str) -> int:
        """Return the total length of the specs of a user's unfinished tasks, in characters."""
        return self._spec_lengths[user]

    async def get(self, task_id: int) -> Task:
        """Return a task, finished or not. Raises NotFound."""
        task = self._tasks.get(task_id) or await self._store.get_task(task_id)
        if task is None:
            raise NotFound(f"there is no task {task_id}; `hai list` shows yours")
        return task

    async def submit(self, user: str, spec: TaskSpec, request_id: str, note: str = "") -> Task:
        """Store a validated task in the queue, with a note for its timeline.

        A repeated call with the same `request_id` returns the task of the first call.
        """
        new = _new(user, spec, self._clock.now())
        count = spec.resource.node_count
        description = "; ".join(
            filter(None, (f"{count} node{'s' if count != 1 else ''}", redact(note)))
        )
        event = TaskEvent(new.created_at, user, "TaskSubmitted", description)
        return self._registered(await self._store.create_task(new, (event,), request_id))

    async def submitted(self, user: str, request_id: str) -> Task | None:
        """Return the task that this request has created before, or None."""
        task = await self._store.get_task_by_request(user, request_id)
        return None if task is None else self._registered(task)

    def _registered(self, task: Task) -> Task:
        """Return the current task. Publish it if it is not in memory, because the call that stored it was cancelled."""
        known = task.id in self._tasks or task.revision > 1
        if not known and task.state is not TaskState.FINISHED:
            self._publish(task)
        return self._tasks.get(task.id, task)

    async def apply(self, task_id: int, event: ev.Event) -> Task:
        """Apply an event to a task, and carry out the instructions. Credentials in texts of the event are redacted."""
        return await _finish(self._apply(task_id, _redacted(event)))

    async def apply_when_stored(self, task_id: int, event: ev.Event) -> Task:
        """Call `apply`, and repeat it while the store is unavailable. For events that no caller would send again."""
        return await retry_until_stored(
            lambda: self.apply(task_id, event), "an event", task=task_id
        )

    async def flush(self, task_id: int) -> Task:
        """Store the reports of a task that are not stored yet. This adds no event and wakes no scheduling pass."""
        return await _finish(self._locked(task_id, self._flush))

    async def _apply(self, task_id: int, event: ev.Event) -> Task:
        if not isinstance(event, _BATCHED):
            return await self._locked(task_id, lambda task_id: self._try(task_id, (event,)))
        pending = self._batch.join(task_id, event)
        return await self._locked(task_id, lambda task_id: self._batch.write(task_id, pending))

    async def _locked(
        self, task_id: int, attempt: Callable[[int], Coroutine[Any, Any, Task | None]]
    ) -> Task:
        async with self._locks.setdefault(task_id, asyncio.Lock()):
            for _ in range(_TRIES):
                saved = await attempt(task_id)
                if saved is not None:
                    return saved
                await self._reload(task_id)
        raise Unavailable(f"task {task_id} changes too often just now; try again")

    async def _try(self, task_id: int, events: Sequence[ev.Event]) -> Task | None:
        """Make one attempt to apply events. Return None if another server has changed the task."""
        task = self._with_unsaved(await self.get(task_id))
        step = steps(task, events, self._clock.now(), self._limits)
        saved: Task | None = task
        if step.task is not task:
            notices = self._notices_of(task, step.task)
            saved = await self._store.save_task(step.task, step.events, notices)
            if saved is None:
                return None
            self._publish(saved)
        assert saved is not None
        for instruction in step.instructions:
            self._perform(saved, instruction)
        return saved

    async def _flush(self, task_id: int) -> Task | None:
        task = await self.get(task_id)
        known = self._with_unsaved(task)
        if known is task:
            return task
        saved = await self._store.save_task(replace(known, revision=task.revision + 1), ())
        if saved is not None:
            self._put(saved)
            self.feed.publish(saved.version)
        return saved

    async def _reload(self, task_id: int) -> None:
        task = await self._store.get_task(task_id)
        if task is not None:
            self._put(task)

    def _publish(self, task: Task) -> None:
        before = self._tasks.get(task.id)
        self._put(task)
        self.feed.publish(task.version)
        self._changed(before, task)

    def _put(self, task: Task) -> None:
        known = task.id in self._tasks
        self.occupants.update(task)
        if task.state is TaskState.FINISHED:
            self._tasks.pop(task.id, None)
            self._per_user[task.user] -= known
            self._spec_lengths[task.user] -= known and count_characters(task.spec)
        else:
            self._tasks[task.id] = task
            self._per_user[task.user] += not known
            self._spec_lengths[task.user] += 0 if known else count_characters(task.spec)

    # Requests of users. Each method returns the changed task.

    async def stop(self, task_id: int, by: str, outcome: Outcome | None) -> Task:
        """Stop a task. If `outcome` is None, it is STOPPED, or CANCELED if the task never ran."""
        return await self.apply(task_id, ev.StopAsked(by, outcome))

    async def suspend(self, task_id: int, by: str, *, hold: bool, delay: float) -> Task:
        """Suspend a task. With `hold`, it waits until it is resumed; otherwise it waits for `delay` seconds.

        Raises Conflict if the task is not running, unless `hold` or `delay` is given.
        """
        task = await self.get(task_id)
        if task.waiting and not hold and not delay:
            raise Conflict(
                f"task {task_id} is not running, so there is nothing to suspend; --hold keeps it from starting",
                reason="NOT_RUNNING",
            )
        event = ev.SuspendAsked(by, f"suspended by {by}", hold=hold, delay=delay)
        return await self.apply(task_id, event)

    async def suspend_on(self, node: str, reason: str) -> None:
        """Suspend every task that has a rank on this node."""
        for task in self.occupants.on([node]):
            await self.apply(task.id, ev.SuspendAsked("operator", reason))

    async def resume(self, task_id: int, by: str) -> Task:
        return await self.apply(task_id, ev.ResumeAsked(by))

    async def set_priority(self, task_id: int, by: str, priority: Priority) -> Task:
        return await self.apply(task_id, ev.PriorityChanged(by, priority))

    async def set_rank(self, task_id: int, by: str, custom_rank: float) -> Task:
        """Change the position of a task among the tasks of its user."""
        return await self.apply(task_id, ev.Moved(by, custom_rank))

    async def set_labels(
        self,
        task_id: int,
        by: str,
        *,
        tags: tuple[str, ...] | None = None,
        starred: bool | None = None,
    ) -> Task:
        task = await self.get(task_id)
        tags = task.tags if tags is None else tags
        starred = task.starred if starred is None else starred
        return await self.apply(task_id, ev.Labelled(by, tags, starred))


def _redacted(event: ev.Event) -> ev.Event:
    """Redact credentials in the texts of an event, from which all rows, responses and notices are derived."""
    texts = {f.name: text for f in fields(event) if isinstance(text := getattr(event, f.name), str)}
    changed: dict[str, Any] = {n: clean for n, t in texts.items() if (clean := redact(t)) != t}
    return replace(event, **changed) if changed else event


def _new(user: str, spec: TaskSpec, now: float) -> Task:
    return Task(
        id=0,
        user=user,
        spec=spec,
        state=TaskState.WAITING_INIT,
        priority=spec.priority,
        created_at=now,
        tags=spec.options.tags,
        whole_life_state=spec.options.whole_life_state,
        awaited=tuple(after.task for after in spec.options.after),
    )
