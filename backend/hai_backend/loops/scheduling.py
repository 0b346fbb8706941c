"""The scheduling loop: bell, snapshot, schedule, apply. A pass never throws and never blocks the API for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from hai_backend.domain.errors import HaiError, Unavailable
from hai_backend.domain.plan import Decision, Plan, Start, Stop, Suspend, Wait
from hai_backend.domain.snapshot import QuotaRow, Snapshot, Standing
from hai_backend.loops.bell import Bell
from hai_backend.loops.clock import Clock
from hai_backend.loops.cluster import Cluster
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.placing import Book
from hai_backend.loops.snapshots import SchedTasks, sched_task
from hai_backend.sched import Policy, schedule
from hai_backend.tasks import events as ev

log = structlog.get_logger(__name__)

_REST = 8.0  # after a pass, rest for so many times its duration: a large backlog takes a ninth of a core
_UNSTORED = 2.0  # seconds until the store is tried again


class People(Protocol):
    """What the loop needs to know of users."""

    def quota_rows(self, now: float) -> tuple[QuotaRow, ...]: ...
    def inactive_users(self) -> frozenset[str]: ...


class Scheduling:
    """`waits` is the answer of the last pass for every task that it left in the queue."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        people: People,
        clock: Clock,
        policy: Policy,
        *,
        resync: float = 30.0,
        passed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.bell = Bell()
        self._ledger = ledger
        self._cluster = cluster
        self._people = people
        self._clock = clock
        self._policy = policy
        self._resync = resync
        self._passed = passed
        self._sched_tasks = SchedTasks()
        self._waits: Mapping[int, Wait] = {}

    def waits(self) -> Mapping[int, Wait]:
        return self._waits

    def saved(self, task_id: int, run: int, when: float) -> None:
        """A program has saved a checkpoint."""
        self._sched_tasks.saved(task_id, run, when)

    async def run(self) -> None:
        """For ever. Begin only when the launcher has said which nodes and ranks exist."""
        sleep = 0.0
        while True:
            await self.bell.wait(sleep)
            started = time.perf_counter()
            try:
                sleep = await self.once()
            except Exception:
                log.exception("a scheduling pass failed; the next one follows")
                sleep = self._resync
            seconds = time.perf_counter() - started
            self._passed(seconds)
            await asyncio.sleep(min(seconds * _REST, 1.0))

    async def once(self) -> float:
        """One pass. Answers with the seconds until time alone will change something."""
        snapshot = self.snapshot()
        plan = await asyncio.to_thread(schedule, snapshot, self._policy)
        self._waits = {d.task: d for d in plan.decisions if isinstance(d, Wait)}
        await self._apply(plan)
        return self._until(plan)

    def snapshot(self) -> Snapshot:
        """The cluster as the ledger knows it now."""
        now = self._clock.now()
        return Snapshot(
            now=now,
            nodes=tuple(self._cluster.nodes().values()),
            tasks=self._sched_tasks.of(self._ledger.unfinished().values()),
            groups=dict(self._cluster.groups()),
            quotas=self._people.quota_rows(now),
            inactive_users=self._people.inactive_users(),
        )

    def _until(self, plan: Plan) -> float:
        if plan.wake_at is None:
            return self._resync
        return min(self._resync, max(0.01, plan.wake_at - self._clock.now()))

    async def _apply(self, plan: Plan) -> None:
        """Decisions of different tasks commit together; each is checked again first."""
        actions = [d for d in plan.decisions if not isinstance(d, Wait)]
        async with self._cluster.steady:
            book = self._book(actions)
            events = [(d.task, event) for d in actions if (event := self._event(d, book))]
            await asyncio.gather(*(self._apply_one(task, event) for task, event in events))

    def _book(self, actions: Sequence[Decision]) -> Book:
        wanted = {name for d in actions if isinstance(d, Start) for name in d.nodes}
        book = Book(wanted, self._cluster.nodes(), self._cluster.groups())
        if wanted:
            book.hold(self._ledger.unfinished().values())
        return book

    def _event(self, decision: Decision, book: Book) -> ev.Event | None:
        """None: it does not fit any more. Users and nodes may have changed while the pass was computed."""
        task = self._ledger.unfinished().get(decision.task)
        if task is None:
            return None
        match decision:
            case Start(nodes=nodes, priority=priority, reason=reason):
                gpus = book.start(task, nodes) if task.waiting and not task.held else None
                return None if gpus is None else ev.RunPlaced(nodes, priority, reason, gpus)
            case Suspend(for_task=for_task, reason=reason):
                runs = sched_task(task).standing is Standing.RUNNING
                return ev.SuspendAsked("scheduler", reason, for_task=for_task) if runs else None
            case Stop(reason=reason):
                return ev.StopAsked("scheduler", None, reason)
            case Wait():
                raise AssertionError("a Wait changes nothing")

    async def _apply_one(self, task_id: int, event: ev.Event) -> None:
        try:
            await self._ledger.apply(task_id, event)
        except Unavailable as error:  # the next pass would be refused too: not at once
            log.warning("a decision could not be stored", task=task_id, why=str(error))
            asyncio.get_running_loop().call_later(_UNSTORED, self.bell.ring)
        except HaiError as error:
            log.warning("a decision was refused", task=task_id, why=str(error))
            self.bell.ring()
