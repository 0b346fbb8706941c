"""The scheduling loop: waits for a wake-up, collects changes, makes a pass and applies its plan.

Each pass updates the scheduler's cache (scheduler.cache) with the changes since the last pass. It runs in a thread, so
that it does not block the API. During a pass, `wait` answers from the last pass. If a pass fails, the next one builds a
new cache.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.aio.wakeup import Wakeup
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.scheduling.binder import Binder
from hai_backend.controllers.scheduling.decision_log import Recorder, Unrecorded
from hai_backend.controllers.scheduling.plan_check import PlanCheck
from hai_backend.controllers.scheduling.snapshot import Changes, sched_task
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import HaiError, Unavailable
from hai_backend.domain.node import Node
from hai_backend.domain.progress import PROTECTED_AFTER
from hai_backend.domain.scheduling.plan import Decision, Plan, Start, Stop, Suspend, Wait
from hai_backend.domain.scheduling.snapshot import (
    Ending,
    QuotaRow,
    SchedulingState,
    ShareRow,
    Snapshot,
)
from hai_backend.domain.task import Task
from hai_backend.lifecycle import events as ev
from hai_backend.runtime import no_garbage_collection
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.recorded_input import PassInput, apply

log = structlog.get_logger(__name__)

# After a pass, the loop pauses for this multiple of the pass's duration. A large backlog then uses a ninth of a core.
_PAUSE_FACTOR = 8.0
_UNSTORED = 2.0  # seconds until the next pass if the store was unavailable


class People(Protocol):
    """The facts about users that the loop needs."""

    def quota_rows(self, now: float) -> tuple[QuotaRow, ...]: ...
    def inactive_users(self) -> frozenset[str]: ...
    def share_rows(self) -> tuple[ShareRow, ...]: ...


class SchedulingLoop:
    """Runs scheduling passes. `changed` must be called for each changed task."""

    def __init__(
        self,
        task_manager: TaskManager,
        cluster: Cluster,
        people: People,
        clock: Clock,
        policy: Policy,
        *,
        resync: float = 30.0,
        observe_pass: Callable[[float], None] = lambda seconds: None,
        recorder: Recorder | None = None,
        plan_check: PlanCheck | None = None,
    ) -> None:
        self.wakeup = Wakeup()
        self._task_manager = task_manager
        self._cluster = cluster
        self._people = people
        self._clock = clock
        self._policy = policy
        self._resync = resync
        self._observe_pass = observe_pass
        self._recorder = recorder or Unrecorded()
        self._plan_check = plan_check
        self._cache: SchedulerCache | None = None
        self._changes = Changes()
        self._learned: list[Ending] = []
        self._nodes_version = -1
        self._passing = asyncio.Lock()
        self._waits: dict[int, Wait | None] = {}

    def changed(self, task: Task) -> None:
        """Record a new or changed task for the next pass."""
        self._changes.update(task)
        self._waits.pop(task.id, None)

    def saved(self, task_id: int, run: int, when: float) -> None:
        """Record for the next pass that a run saved a checkpoint at `when`. This may end the protection of the run."""
        if (task := self._task_manager.unfinished().get(task_id)) is not None:
            self._changes.saved(task, run, when)
            if task.progress.unsaved_suspensions >= PROTECTED_AFTER:
                self.wakeup.notify()

    def learn(self, endings: Iterable[Ending]) -> None:
        """Record the run times of tasks that finished before this server started."""
        self._learned += endings

    def wait(self, task_id: int) -> Wait | None:
        """Return why the last pass left a task in the queue, without its position in the queue.

        Return None if the pass did not leave it in the queue, or if there was no pass since the task changed.
        """
        if self._cache is not None and not self._passing.locked():
            self._waits[task_id] = self._cache.wait(task_id)
        return self._waits.get(task_id)

    async def waits(self, group: str = "") -> dict[int, Wait]:
        """Return for each queued task why it waits, with its position and the tasks ahead of it.

        An empty `group` means all node groups.
        """
        async with self._passing:
            return await asyncio.to_thread(self._all_waits, group)

    def _all_waits(self, group: str) -> dict[int, Wait]:
        return {wait.task: wait for wait in self._cache.waits(group)} if self._cache else {}

    async def run(self) -> None:
        """Run until cancelled. The launcher must have listed nodes and ranks before."""
        sleep = 0.0
        while True:
            await self.wakeup.wait(sleep)
            started = time.perf_counter()
            try:
                sleep = await self.once()
            except Exception:
                log.exception("a scheduling pass failed; the next one uses a new cache")
                self._reset()
                sleep = self._resync
            seconds = time.perf_counter() - started
            self._observe_pass(seconds)
            await asyncio.sleep(min(seconds * _PAUSE_FACTOR, 1.0))

    def _reset(self) -> None:
        """Discard the cache, but keep the run times that it has learned."""
        if self._cache is not None:
            self._learned = [*self._cache.snapshot().endings, *self._learned]
        self._cache = None

    async def once(self) -> float:
        """Make one pass. Return after how many seconds the next pass is due even if nothing changes."""
        now = self._clock.now()
        async with self._passing:
            first = self._cache is None
            cache, changes = self._current_cache(), self._input(now)
            make_pass = self._first_pass if first else self._pass
            self._cache, plan = await asyncio.to_thread(make_pass, cache, changes)
            self._waits.clear()
        await self._apply(plan)
        await self._check(plan)
        return self._until(plan)

    async def _check(self, plan: Plan) -> None:
        """Check the invariants of this pass, if a check is due. An error of the check itself is logged."""
        check, cache = self._plan_check, self._cache
        if check is None or cache is None or not check.due(plan):
            return
        try:
            async with self._passing:
                await asyncio.to_thread(check.check, cache, plan)
        except Exception:
            log.exception("the check of a scheduling pass failed")

    def _current_cache(self) -> SchedulerCache:
        """Return the cache. If there is none, create one and mark all tasks as changed."""
        if self._cache is None:
            self._cache = SchedulerCache(self._policy)
            self._nodes_version = -1
            for task in self._task_manager.unfinished().values():
                self.changed(task)
        return self._cache

    def _input(self, now: float) -> Callable[[], PassInput]:
        """Collect the rules, and the changes since the last pass.

        Return a function that converts them to the input of a pass. The caller runs it in a thread.
        """
        people, changes = self._people, self._changes.take()
        groups = dict(self._cluster.groups())
        rules = Rules(groups, people.quota_rows(now), people.inactive_users(), people.share_rows())
        learned, self._learned = self._learned, []
        nodes = self._new_nodes()
        return lambda: PassInput(
            now, rules, nodes, (*learned, *changes.endings), changes.tasks, changes.ended
        )

    def _new_nodes(self) -> tuple[Node, ...] | None:
        if self._nodes_version == self._cluster.feed.version:
            return None
        self._nodes_version = self._cluster.feed.version
        return tuple(self._cluster.nodes().values())

    def _first_pass(
        self, cache: SchedulerCache, changes: Callable[[], PassInput]
    ) -> tuple[SchedulerCache, Plan]:
        with no_garbage_collection():
            return self._pass(cache, changes)

    def _pass(
        self, cache: SchedulerCache, changes: Callable[[], PassInput]
    ) -> tuple[SchedulerCache, Plan]:
        """Make a pass. Runs in a thread. A recorder may replace the cache by an equal one."""
        cache, new = self._recorder.before(cache), changes()
        plan = apply(cache, new)
        self._recorder.after(new, plan)
        return cache, plan

    async def snapshot(self) -> Snapshot:
        """Return the input of the last pass. It is empty before the first pass."""
        async with self._passing:
            cache = self._cache or SchedulerCache(self._policy)
            return await asyncio.to_thread(cache.snapshot)

    def _until(self, plan: Plan) -> float:
        if plan.wake_at is None:
            return self._resync
        return min(self._resync, max(0.01, plan.wake_at - self._clock.now()))

    async def _apply(self, plan: Plan) -> None:
        """Check each decision again, and apply the decisions concurrently."""
        async with self._cluster.placement_lock:
            binder = self._make_binder(plan.decisions)
            events = [(d.task, event) for d in plan.decisions if (event := self._event(d, binder))]
            await asyncio.gather(*(self._apply_one(task, event) for task, event in events))

    def _make_binder(self, decisions: Sequence[Decision]) -> Binder:
        requested = {name for d in decisions if isinstance(d, Start) for name in d.nodes}
        binder = Binder(requested, self._cluster.nodes(), self._cluster.groups())
        binder.add_existing(self._task_manager.occupants.on(requested))
        return binder

    def _event(self, decision: Decision, binder: Binder) -> ev.Event | None:
        """Return the event of a decision, or None if the decision is outdated.

        Users and nodes may have changed during the pass.
        """
        task = self._task_manager.unfinished().get(decision.task)
        if task is None:
            return None
        match decision:
            case Start(nodes=nodes, priority=priority, reason=reason):
                gpus = binder.allocate(task, nodes) if task.needs_nodes else None
                return None if gpus is None else ev.RunPlaced(nodes, priority, reason, gpus)
            case Suspend(for_task=other, reason=reason, higher=higher):
                runs = sched_task(task).standing is SchedulingState.RUNNING
                event = ev.SuspendAsked("scheduler", reason, for_task=other, higher=higher)
                return event if runs else None
            case Stop(reason=reason):
                return ev.StopAsked("scheduler", None, reason)
            case Wait():
                raise AssertionError("a Wait changes nothing")

    async def _apply_one(self, task_id: int, event: ev.Event) -> None:
        try:
            await self._task_manager.apply(task_id, event)
        except Unavailable as error:  # a pass at once would fail as well
            log.warning("a decision could not be stored", task=task_id, why=str(error))
            asyncio.get_running_loop().call_later(_UNSTORED, self.wakeup.notify)
        except HaiError as error:
            log.warning("a decision was refused", task=task_id, why=str(error))
            self.wakeup.notify()
