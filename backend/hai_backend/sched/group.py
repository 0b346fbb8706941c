"""What is known of one node group between passes: who waits, who runs where, and when time alone will change that.

Runs and waiting tasks come and go one by one, and nodes open and close; whatever else changes (sizes, quota rows, the
policy) makes the board build the group anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from zlib import crc32

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import SchedTask, Standing
from hai_backend.domain.spec import TaskType
from hai_backend.sched import pool as places
from hai_backend.sched.appraise import claim, merit_at, run_level, running_worth
from hai_backend.sched.check import Feasibility, not_yet
from hai_backend.sched.history import History, bin_of
from hai_backend.sched.policy import Policy
from hai_backend.sched.pool import Amount, Grip, Holder, Need, Pool, Spot, ask_of, size_of
from hai_backend.sched.preempt import Ladder
from hai_backend.sched.queue import Queue, Waiting, natural_key
from hai_backend.sched.quota import UNIT, Quotas, units_of
from hai_backend.sched.shares import Shares
from hai_backend.sched.wishes import Wishes

_RELEARNT = 40  # tasks that are ranked again in one pass


@dataclass(slots=True, eq=False)
class Group:
    """`spot` finds an open node of any group: a run keeps its nodes when an operator moves one of them elsewhere."""

    name: str
    policy: Policy
    packed: bool
    exists: bool
    nodes: dict[str, Node]
    quotas: Quotas
    shares: Shares
    history: History
    spot: Callable[[str], Spot | None]
    waiting: dict[int, Waiting] = field(default_factory=dict)
    aside: dict[int, SchedTask] = field(default_factory=dict)  # held by their users, or backing off
    holders: dict[int, Holder] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    ladder: Ladder = field(default_factory=Ladder)
    changed: bool = True
    pool: Pool = field(init=False)
    feasible: Feasibility = field(init=False)
    wishes: Wishes = field(init=False)
    largest: Amount = (0, 0, 0)
    _needs: dict[object, Need] = field(default_factory=dict)
    _alarms: list[tuple[float, int]] = field(default_factory=list)
    _asked: set[tuple[float, int]] = field(default_factory=set)  # those of `wake_once`
    _classes: dict[tuple[object, ...], tuple[Need, Priority, float]] = field(default_factory=dict)
    _relearn_at: float = -inf
    _outdated: Iterator[int] = field(
        default_factory=lambda: iter(())
    )  # tasks whose ranks are older than what was learned last

    def __post_init__(self) -> None:
        self.pool = Pool(self.packed)
        self.wishes = Wishes(self)
        for node in self.nodes.values():
            self.largest = _larger(self.largest, size_of(node))
            if node.usable:
                self.pool.add(node)
        self.feasible = Feasibility(self.name, self.exists, self.nodes, self.pool)
        self.history.refresh()

    def open(self, node: Node, on: Iterable[Holder]) -> None:
        """A known node may be used again; `on` names who is on it, once for each rank."""
        spot = self.pool.add(node)
        for holder in on:
            self._refile(holder, lambda holder=holder: places.put(spot, holder))  # type: ignore[misc]
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

    def need(self, task: SchedTask) -> Need:
        """What the task asks for; equal for equal tasks."""
        ask = self.ask(task)
        spread = ask is not None and task.task_type is TaskType.JUPYTER
        shape = (task.node_count, ask, task.zone, task.assigned_nodes, spread)
        found = self._needs.get(shape)
        if found is None:
            found = self._needs[shape] = Need(
                count=task.node_count,
                whole=ask is None,
                ask=ask or (0, 0, 0),
                zone=task.zone,
                only=task.assigned_nodes,
                units=units_of(task.node_count, ask, self.largest),
                spread=spread,
            )
        return found

    def ask(self, task: SchedTask) -> Amount | None:
        """What a rank takes of a node; None: all of it."""
        return ask_of(task.gpu, task.cpu, task.memory, packed=self.packed)

    def enter(self, task: SchedTask, now: float) -> None:
        """A task that is new here, or has changed."""
        self.changed = True
        if task.standing is not Standing.QUEUED:
            self._hold(task, now)
        elif not_yet(task, now):
            self._set_aside(task, now)
        else:
            waiting = self._line_up(task, now)
            self.queue.add(waiting)
            self._wake(waiting.until, task.id, now)

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
        places.remove(holder)
        self._count(holder, -holder.units)
        self.wishes.touch(holder.task.user)

    def _count(self, holder: Holder, units: int) -> None:
        user = holder.task.user
        self.quotas.hold(user, run_level(holder.task, self.policy), units)
        self.shares.hold(user, units)
        if holder.grip is Grip.HELD:
            self.shares.keep(user, units)

    def _hold(self, task: SchedTask, now: float) -> None:
        ask = self.ask(task)
        gone = task.standing is Standing.LEAVING and task.leaves_free
        holder = Holder(task, Grip.LEAVING if gone else Grip.HELD, ask=ask)
        holder.wanted_by = task.suspended_for
        holder.units = units_of(len(task.placed), ask, self.largest)
        if task.standing is Standing.RUNNING:
            self._appraise(holder, now)
        self.holders[task.id] = holder
        self._settle(holder)

    def keep(self, task: SchedTask) -> None:
        """Count a task on its nodes that can not be told from another one."""
        holder = Holder(task, Grip.HELD, ask=self.ask(task))
        holder.units = units_of(len(task.placed), holder.ask, self.largest)
        self._settle(holder)

    def _settle(self, holder: Holder) -> None:
        for name in holder.task.placed:
            spot = self.spot(name)
            if spot is not None:
                places.put(spot, holder)
        self._enladder(holder)
        self._count(holder, holder.units)
        self.wishes.touch(holder.task.user)

    def _appraise(self, holder: Holder, now: float) -> None:
        task = holder.task
        weight = max(1, units_of(task.node_count, holder.ask, self.largest)) / UNIT
        holder.worth = running_worth(task, weight, self.history, self.policy, now)
        self._wake(holder.worth.until, task.id, now)

    def _enladder(self, holder: Holder) -> None:
        if holder.worth is not None:
            self.ladder.add(holder)

    def _unladder(self, holder: Holder) -> None:
        if holder.worth is not None:
            self.ladder.remove(holder)

    def _refile(self, holder: Holder, change: Callable[[], None]) -> None:
        self._unladder(holder)
        change()
        self._enladder(holder)

    def fill(self, tasks: Iterable[SchedTask], now: float) -> None:
        """Like `enter` for many queued tasks, to a group that is new."""
        ready: list[Waiting] = []
        for task in tasks:
            if not_yet(task, now):
                self._set_aside(task, now)
            else:
                ready.append(self._line_up(task, now))
        self.queue.fill(ready)
        self._alarms += [(w.until, w.task.id) for w in ready if now < w.until < inf]
        heapify(self._alarms)

    def _set_aside(self, task: SchedTask, now: float) -> None:
        self.aside[task.id] = task
        self._wake(inf if task.held else task.not_before, task.id, now)

    def _line_up(self, task: SchedTask, now: float) -> Waiting:
        need, level, merit = self._class(task)
        found = claim(task, level, merit, self.policy, now)
        share = self.shares.of(task.user)
        waiting = self.waiting[task.id] = Waiting(task, need, level, *found, share)
        waiting.key = natural_key(waiting)
        self.wishes.remember(waiting)
        return waiting

    def _class(self, task: SchedTask) -> tuple[Need, Priority, float]:
        """What equal tasks share: need, level, merit. Merits are those of the last time that the group learned."""
        facts = (
            task.user,
            task.name,
            task.node_count,
            task.gpu,
            task.cpu,
            task.memory,
            task.zone,
            task.assigned_nodes,
            task.task_type,
            task.priority,
            bin_of(task.run_seconds) if task.run_seconds else 0,
        )
        found = self._classes.get(facts)
        if found is None:
            need = self.need(task)
            weight = need.units / UNIT
            merit = merit_at(task, task.run_seconds, weight, self.history, self.policy)
            found = self._classes[facts] = (need, self.wishes.level(task), merit)
        return found

    def rate(self, waiting: Waiting, now: float, level: Priority | None = None) -> None:
        """Its turn has come or gone, or AUTO counts as another level: its place in the queue changes."""
        level = waiting.own_level if level is None else level
        _, _, merit = self._class(waiting.task)
        turn = self.wishes.has_turn(waiting)
        as_level, merit, until, lifted = claim(waiting.task, level, merit, self.policy, now, turn)
        if until != waiting.until:
            self._wake(until, waiting.task.id, now)
        waiting.until, waiting.lifted = until, lifted
        if (as_level, merit, level) == (waiting.level, waiting.merit, waiting.own_level):
            return
        self.queue.discard(waiting)
        waiting.own_level, waiting.level, waiting.merit = level, as_level, merit
        waiting.key = natural_key(waiting)
        self.queue.add(waiting)
        self.wishes.touch(waiting.task.user)

    def _wake(self, at: float, task: int, now: float) -> None:
        """Look at a task again then; not at all when that is past or never."""
        if now < at < inf:
            heappush(self._alarms, (at, task))

    def wake_once(self, at: float, task: int, now: float) -> None:
        """The same, for who asks again and again."""
        if (at, task) not in self._asked:
            self._asked.add((at, task))
            self._wake(at, task, now)

    def tier(self, waiting: Waiting) -> int:
        """What orders equal levels before their ranks do."""
        return self.shares.tier(waiting) if self.shares else 0

    def wake_at(self) -> float:
        """When time alone will change something for somebody."""
        return self._alarms[0][0] if self._alarms else inf

    def advance(self, now: float) -> None:
        """Ask again what has run out, learn what has ended, and bring the users' own wishes up to date."""
        self._relearn(now)
        while self._alarms and self._alarms[0][0] <= now:
            alarm = heappop(self._alarms)
            self._asked.discard(alarm)
            self._again(alarm[1], now)
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
        """Now and then ranks follow what was learned; some tasks in each pass, so that no pass is long."""
        if self._relearn_at == -inf:
            self._relearn_at = now + self.policy.relearn_seconds * self._stagger()
        if self.history.unread and now >= self._relearn_at:
            self.history.outdate()
            self._relearn_at = now + self.policy.relearn_seconds * self._stagger()
        if self.history.renew(_RELEARNT):
            self._classes.clear()
            self._outdated = iter([*self.holders, *self.waiting])
            return
        for task in islice(self._outdated, _RELEARNT):
            self._rank_again(task, now)

    def _stagger(self) -> float:
        """Groups do not all learn in the same pass."""
        return 0.75 + crc32(self.name.encode()) % 64 / 128

    def _rank_again(self, task: int, now: float) -> None:
        holder, waiting = self.holders.get(task), self.waiting.get(task)
        if holder is not None and holder.worth is not None:
            self._refile(holder, lambda: self._appraise(holder, now))
        elif waiting is not None:
            self.rate(waiting, now)


def _larger(one: Amount, other: Amount) -> Amount:
    return (max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2]))
