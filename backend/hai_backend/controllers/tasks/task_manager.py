"""Every unfinished task, in memory exactly as in the store, and the one way to change it.

Order within `apply`, which crash safety rests on: step (pure), write (durable), remember, publish, perform. Nothing is
answered, shown or done before it is durable; what was not done before a crash is derived again by lifecycle.recovery.
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
from hai_backend.controllers.aio.retry import insisted
from hai_backend.controllers.aio.shield import to_the_end
from hai_backend.controllers.scheduling.binder import Occupants
from hai_backend.domain.errors import Conflict, HaiError, NotFound, Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import TaskSpec, letters
from hai_backend.domain.task import Outcome, Task, TaskEvent, TaskState
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import steps
from hai_backend.lifecycle.instructions import Instruction
from hai_backend.lifecycle.limits import DEFAULTS, Limits
from hai_backend.store.base import Store, TaskFilter, TaskQuery

log = structlog.get_logger(__name__)

Perform = Callable[[Task, Instruction], None]
Changed = Callable[[Task | None, Task], None]  # before (None: it is new) and after
Recall = Callable[[Task], Task]  # the task with what is known of it and not written yet
Noticed = Callable[[Task, Task], Sequence[object]]  # before, after: records to write with it

_GATHERED = (*get_args(ev.RankEvent), ev.PredecessorEnded)  # a thousand may end at once
_TRIES = 5  # how often a write is repeated after another replica was faster


async def _to_the_end(work: Coroutine[Any, Any, Task]) -> Task:
    """Whoever is cancelled meanwhile: a write may be durable before memory knows it."""
    return await to_the_end(asyncio.create_task(work), _unheard)


def _unheard(error: BaseException) -> None:
    """A refusal concerns nobody any more, a mistake of ours is for the log."""
    if not isinstance(error, HaiError):
        trace = "".join(traceback.format_exception(error))
        log.error("a change that nobody waits for has failed", trace=trace)


class TaskManager:
    """Callers: services (asks of people), the scheduling loop, the launcher loop, agents and timers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        feed: ChangeFeed,
        *,
        perform: Perform,
        changed: Changed,
        limits: Limits = DEFAULTS,
        recall: Recall = lambda task: task,
        noticed: Noticed = lambda before, task: (),
    ) -> None:
        self.feed = feed
        self._store = store
        self._clock = clock
        self._perform = perform
        self._changed = changed
        self._limits = limits
        self._recall = recall
        self._noticed = noticed
        self.occupants = Occupants()
        self._tasks: dict[int, Task] = {}
        self._per_user: Counter[str] = Counter()
        self._letters: Counter[str] = Counter()  # of the specs of a user's tasks
        self._locks = WeakValueDictionary[int, asyncio.Lock]()  # of those that are asked to change
        self._together = Batch(self._try)

    async def load(self) -> None:
        """Read all unfinished tasks; call once, before anything else."""
        for task in await self._store.unfinished_tasks():
            self._remember(task)
        self.feed.publish(await self._store.version())

    async def knows_any(self) -> bool:
        """Whether there has ever been a task."""
        page = await self._store.find_tasks(TaskQuery(TaskFilter(), page_size=1))
        return bool(page.tasks)

    def unfinished(self) -> Mapping[int, Task]:
        """By id. Do not keep: it changes under you."""
        return self._tasks

    def unfinished_of(self, user: str) -> int:
        """How many unfinished tasks a user has."""
        return self._per_user[user]

    def letters_of(self, user: str) -> int:
        """How long the specs of a user's unfinished tasks are together."""
        return self._letters[user]

    async def get(self, task_id: int) -> Task:
        """Any task. Raises NotFound."""
        task = self._tasks.get(task_id) or await self._store.get_task(task_id)
        if task is None:
            raise NotFound(f"there is no task {task_id}; `hai list` shows yours")
        return task

    async def submit(self, user: str, spec: TaskSpec, request_id: str, note: str = "") -> Task:
        """Put a validated task into the queue, with a note for its timeline.

        Durable on return; the same request_id answers with the same task.
        """
        new = _new(user, spec, self._clock.now())
        count = spec.resource.node_count
        told = "; ".join(filter(None, (f"{count} node{'s' if count != 1 else ''}", redact(note))))
        event = TaskEvent(new.created_at, user, "TaskSubmitted", told)
        return self._made(await self._store.create_task(new, (event,), request_id))

    async def submitted(self, user: str, request_id: str) -> Task | None:
        """The task that this request has made already."""
        task = await self._store.task_of_request(user, request_id)
        return None if task is None else self._made(task)

    def _made(self, task: Task) -> Task:
        """As it is now; of one whose write broke off nobody here may have heard."""
        known = task.id in self._tasks or task.revision > 1
        if not known and task.state is not TaskState.FINISHED:
            self._publish(task)
        return self._tasks.get(task.id, task)

    async def apply(self, task_id: int, event: ev.Event) -> Task:
        """Let something happen to a task and perform what follows from it. Nobody hears credentials in its texts."""
        return await _to_the_end(self._apply(task_id, _redacted(event)))

    async def insist(self, task_id: int, event: ev.Event) -> Task:
        """Like `apply`, for what nobody would say again: while the store takes nothing (a full disk), it waits."""
        return await insisted(lambda: self.apply(task_id, event), "an event", task=task_id)

    async def keep(self, task_id: int) -> Task:
        """Write what is known of a task and not written yet. Nothing happens to it: no line, nobody is woken for it."""
        return await _to_the_end(self._locked(task_id, self._keep))

    async def _apply(self, task_id: int, event: ev.Event) -> Task:
        if not isinstance(event, _GATHERED):
            return await self._locked(task_id, lambda task_id: self._try(task_id, (event,)))
        mine = self._together.join(task_id, event)
        return await self._locked(task_id, lambda task_id: self._together.write(task_id, mine))

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
        task = self._recall(await self.get(task_id))
        done = steps(task, events, self._clock.now(), self._limits)
        saved: Task | None = task
        if done.task is not task:
            noticed = self._noticed(task, done.task)
            saved = await self._store.save_task(done.task, done.events, noticed)
            if saved is None:
                return None
            self._publish(saved)
        assert saved is not None
        for instruction in done.instructions:
            self._perform(saved, instruction)
        return saved

    async def _keep(self, task_id: int) -> Task | None:
        task = await self.get(task_id)
        known = self._recall(task)
        if known is task:
            return task
        saved = await self._store.save_task(replace(known, revision=task.revision + 1), ())
        if saved is not None:
            self._remember(saved)
            self.feed.publish(saved.version)
        return saved

    async def _reload(self, task_id: int) -> None:
        task = await self._store.get_task(task_id)
        if task is not None:
            self._remember(task)

    def _publish(self, task: Task) -> None:
        before = self._tasks.get(task.id)
        self._remember(task)
        self.feed.publish(task.version)
        self._changed(before, task)

    def _remember(self, task: Task) -> None:
        known = task.id in self._tasks
        self.occupants.note(task)
        if task.state is TaskState.FINISHED:
            self._tasks.pop(task.id, None)
            self._per_user[task.user] -= known
            self._letters[task.user] -= known and letters(task.spec)
        else:
            self._tasks[task.id] = task
            self._per_user[task.user] += not known
            self._letters[task.user] += 0 if known else letters(task.spec)

    # What people ask; each answers with the task as it then is.

    async def stop(self, task_id: int, by: str, outcome: Outcome | None) -> Task:
        return await self.apply(task_id, ev.StopAsked(by, outcome))

    async def suspend(self, task_id: int, by: str, *, hold: bool, delay: float) -> Task:
        task = await self.get(task_id)
        if task.waiting and not hold and not delay:
            raise Conflict(
                f"task {task_id} is not running, so there is nothing to suspend; --hold keeps it from starting",
                reason="NOT_RUNNING",
            )
        asked = ev.SuspendAsked(by, f"suspended by {by}", hold=hold, delay=delay)
        return await self.apply(task_id, asked)

    async def suspend_on(self, node: str, reason: str) -> None:
        """Suspend every task that has a rank on this node."""
        for task in self.occupants.on([node]):
            await self.apply(task.id, ev.SuspendAsked("operator", reason))

    async def resume(self, task_id: int, by: str) -> Task:
        return await self.apply(task_id, ev.ResumeAsked(by))

    async def set_priority(self, task_id: int, by: str, priority: Priority) -> Task:
        return await self.apply(task_id, ev.PriorityChanged(by, priority))

    async def set_rank(self, task_id: int, by: str, custom_rank: float) -> Task:
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
    """Here, for all that becomes of a task follows from its events: rows, answers, notices to webhooks."""
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
