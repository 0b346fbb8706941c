"""What is known of one node group between passes: who waits, who runs where, and when time alone will change that.

Runs and waiting tasks come and go one by one, and nodes open and close; whatever else changes (sizes, quota rows, the
policy) makes the board build the group anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import SchedTask, Standing
from hai_backend.scheduler.capacity import allocation
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import Requests
from hai_backend.scheduler.capacity.slots import Grip, Holder, Need, Slot
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.victim_index import VictimIndex
from hai_backend.scheduler.queue.history import History, bin_of
from hai_backend.scheduler.queue.queue import Queue, Waiting, natural_key
from hai_backend.scheduler.queue.rating import claim, merit_at, run_level, running_worth
from hai_backend.scheduler.queue.rating_refresh import RatingRefresh
from hai_backend.scheduler.queue.user_order import UserOrder
from hai_backend.scheduler.quota import UNIT, Quotas
from hai_backend.scheduler.row_check import Feasibility, not_yet
from hai_backend.scheduler.shares import Shares
from hai_backend.scheduler.wakeups import Wakeups

_CLASS = (
    "user",
    "name",
    "node_count",
    "gpu",
    "cpu",
    "memory",
    "zone",
    "assigned_nodes",
    "task_type",
)
_FACTS = attrgetter(*_CLASS)
ALIKE = attrgetter(
    *_CLASS, "priority", "run_seconds", "custom_rank", "held", "awaited", "not_before"
)
"""Equal for tasks of a group that differ only in who they are and since when they wait."""
_CLASSES = 20_000  # that are remembered; names come and go


@dataclass(slots=True, eq=False)
class GroupState:
    """`spot` finds an open node of any group: a run keeps its nodes when an operator moves one of them elsewhere."""

    name: str
    policy: Policy
    packed: bool
    exists: bool
    nodes: dict[str, Node]
    quotas: Quotas
    shares: Shares
    history: History
    spot: Callable[[str], Slot | None]
    waiting: dict[int, Waiting] = field(default_factory=dict)
    aside: dict[int, SchedTask] = field(default_factory=dict)  # held by their users, or backing off
    holders: dict[int, Holder] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    victim_index: VictimIndex = field(default_factory=VictimIndex)
    changed: bool = True
    pool: Pool = field(init=False)
    feasible: Feasibility = field(init=False)
    wishes: UserOrder = field(init=False)
    needs: Requests = field(init=False)
    alarms: Wakeups = field(default_factory=Wakeups)
    _lessons: RatingRefresh = field(init=False)
    _classes: dict[object, tuple[Need, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = Pool(self.packed)
        for node in self.nodes.values():
            if node.usable:
                self.pool.add(node)
        self.feasible = Feasibility(self.name, self.exists, self.nodes, self.pool)
        self.needs = Requests(self.packed, self.nodes.values())
        self.wishes = UserOrder(self)
        self._lessons = RatingRefresh(self.name, self.history, self.policy.relearn_seconds)

    def open(self, node: Node, on: Iterable[Holder]) -> None:
        """A known node may be used again; `on` names who is on it, once for each rank."""
        spot = self.pool.add(node)
        for holder in on:
            self._refile(holder, lambda holder=holder: allocation.put(spot, holder))  # type: ignore[misc]
        self._judge()

    def close(self, node: Node) -> None:
        """A node may not be used for now; runs on it stay."""
        holders = list(dict.fromkeys(self.pool.spots[node.name].holders))
        for holder in holders:
            self._unladder(holder)
        self.pool.close(node.name)
        for holder in holders:
            self._enladder(holder)
        self._judge()

    def _judge(self) -> None:
        self.feasible.usable_changed()
        self.wishes.touch_all()
        self.changed = True

    def enter(self, task: SchedTask, now: float) -> None:
        """A task that is new here, or has changed."""
        self.changed = True
        if task.standing is not Standing.QUEUED:
            self._hold(task, now)
        elif not_yet(task, now):
            self._set_aside(task, now)
        else:
            (waiting,) = self._line_up([task], now)
            self.queue.add(waiting)
            self.alarms.set(waiting.until, task.id, now)

    def exit(self, task: int) -> None:
        """A task is gone, or about to enter anew."""
        self.changed = True
        self.aside.pop(task, None)
        waiting = self.waiting.pop(task, None)
        if waiting is not None:
            self.queue.discard(waiting)
            self.wishes.forget(waiting)
        holder = self.holders.pop(task, None)
        if holder is not None:
            self._release(holder)

    def _release(self, holder: Holder) -> None:
        self._unladder(holder)
        allocation.remove(holder)
        self._count(holder, -holder.units)
        self.wishes.touch(holder.task.user)

    def _count(self, holder: Holder, units: int) -> None:
        user = holder.task.user
        self.quotas.hold(user, run_level(holder.task, self.policy), units)
        self.shares.hold(user, units)
        if holder.grip is Grip.HELD:
            self.shares.keep(user, units)

    def _hold(self, task: SchedTask, now: float) -> None:
        ask = self.needs.ask(task)
        gone = task.standing is Standing.LEAVING and task.leaves_free
        holder = Holder(task, Grip.LEAVING if gone else Grip.HELD, ask=ask)
        holder.wanted_by = task.suspended_for
        holder.units = self.needs.units(len(task.placed), ask)
        if task.standing is Standing.RUNNING:
            self._appraise(holder, now)
        self.holders[task.id] = holder
        self._settle(holder)

    def keep(self, task: SchedTask) -> None:
        """Count a task on its nodes that can not be told from another one."""
        holder = Holder(task, Grip.HELD, ask=self.needs.ask(task))
        holder.units = self.needs.units(len(task.placed), holder.ask)
        self._settle(holder)

    def _settle(self, holder: Holder) -> None:
        for name in holder.task.placed:
            spot = self.pool.spots.get(name) or self.spot(name)
            if spot is not None:
                allocation.put(spot, holder)
        self._enladder(holder)
        self._count(holder, holder.units)
        self.wishes.touch(holder.task.user)

    def _appraise(self, holder: Holder, now: float) -> None:
        task = holder.task
        weight = max(1, self.needs.units(task.node_count, holder.ask)) / UNIT
        holder.worth = running_worth(task, weight, self.history, self.policy, now)
        self.alarms.set(holder.worth.until, task.id, now)

    def _enladder(self, holder: Holder) -> None:
        if holder.worth is not None:
            self.victim_index.add(holder)

    def _unladder(self, holder: Holder) -> None:
        if holder.worth is not None:
            self.victim_index.remove(holder)

    def _refile(self, holder: Holder, change: Callable[[], None]) -> None:
        self._unladder(holder)
        change()
        self._enladder(holder)

    def fill(self, lots: Iterable[list[SchedTask]], now: float) -> None:
        """Like `enter` for many queued tasks in lots that are alike, to a group that is new."""
        for alike in lots:
            if not_yet(alike[0], now):
                for task in alike:
                    self._set_aside(task, now)
            else:
                found = self._line_up(alike, now)
                self.queue.append(found)
                self.alarms.append([(w.until, w.task.id) for w in found if w.until < inf])
        self.queue.arrange()
        self.alarms.arrange()

    def _set_aside(self, task: SchedTask, now: float) -> None:
        self.aside[task.id] = task
        self.alarms.set(inf if task.held or task.awaited else task.not_before, task.id, now)

    def _line_up(self, alike: list[SchedTask], now: float) -> list[Waiting]:
        first, policy = alike[0], self.policy
        need, merit = self._class(first)
        level, share = self.wishes.level(first), self.shares.of(first.user)
        found: list[Waiting] = []
        for task in alike:
            as_level, worth, until, lifted = claim(task, level, merit, policy, now)
            waiting = Waiting(task, need, level, as_level, worth, until, lifted, share)
            waiting.key = natural_key(waiting)
            self.waiting[task.id] = waiting
            found.append(waiting)
        self.wishes.remember(first, len(alike))
        return found

    def _class(self, task: SchedTask) -> tuple[Need, float]:
        """What equal tasks share, whatever their level: need and merit, as of the last time that the group learned."""
        facts: object = _FACTS(task)
        if task.run_seconds:
            facts = (facts, bin_of(task.run_seconds))
        found = self._classes.get(facts)
        if found is None:
            if len(self._classes) >= _CLASSES:
                self._classes.clear()
            need = self.needs.of(task)
            weight = need.units / UNIT
            merit = merit_at(task, task.run_seconds, weight, self.history, self.policy)
            found = self._classes[facts] = (need, merit)
        return found

    def rate(self, waiting: Waiting, now: float, level: Priority | None = None) -> None:
        """Its turn has come or gone, or AUTO counts as another level: its place in the queue changes."""
        level = waiting.own_level if level is None else level
        _, merit = self._class(waiting.task)
        turn = self.wishes.has_turn(waiting)
        as_level, merit, until, lifted = claim(waiting.task, level, merit, self.policy, now, turn)
        if until != waiting.until:
            self.alarms.set(until, waiting.task.id, now)
        waiting.until, waiting.lifted = until, lifted
        if (as_level, merit, level) == (waiting.level, waiting.merit, waiting.own_level):
            return
        self.queue.discard(waiting)
        waiting.own_level, waiting.level, waiting.merit = level, as_level, merit
        waiting.key = natural_key(waiting)
        self.queue.add(waiting)
        self.wishes.touch(waiting.task.user)

    def tier(self, waiting: Waiting) -> int:
        """What orders equal levels before their ranks do."""
        return self.shares.tier(waiting) if self.shares else 0

    def advance(self, now: float) -> None:
        """Ask again what has run out, learn what has ended, and bring the users' own wishes up to date."""
        self._relearn(now)
        for task in self.alarms.due(now):
            self._again(task, now)
        self.wishes.fulfil(now)

    def _again(self, task: int, now: float) -> None:
        holder, waiting = self.holders.get(task), self.waiting.get(task)
        if holder is not None and holder.worth is not None:
            if holder.worth.until <= now:
                self._rank_again(task, now)
        elif waiting is not None:
            if waiting.until <= now:
                self.rate(waiting, now)
            else:
                self.wishes.touch(waiting.task.user)
        elif (late := self.aside.get(task)) is not None and late.not_before <= now:
            self._enter_again(late, now)

    def _enter_again(self, task: SchedTask, now: float) -> None:
        self.exit(task.id)
        self.enter(task, now)

    def _relearn(self, now: float) -> None:
        if self._lessons.learnt(now):
            self._classes.clear()
            self._lessons.teach([*self.holders, *self.waiting])
            return
        for task in self._lessons.pupils():
            self._rank_again(task, now)

    def _rank_again(self, task: int, now: float) -> None:
        holder, waiting = self.holders.get(task), self.waiting.get(task)
        if holder is not None and holder.worth is not None:
            self._refile(holder, lambda: self._appraise(holder, now))
        elif waiting is not None:
            self.rate(waiting, now)
