"""A pass over one group: who of its queue starts, whose nodes are promised, who must leave for that.

1. Advance: what time has changed (demotions, slices, protection, patience, learned ranks, levels of AUTO).
2. Offer nodes to one task after the other, highest level first, then by rank:
   quota? free nodes? nodes being left? nodes of who may be suspended? else it waits, and others may pass.
3. Whatever the pass has put aside for its decisions is given back before the group changes again (`undo`); until then
   the group looks as it will when they are carried out, and why others wait can be asked (explain/reasons.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hai_backend.domain.scheduling.plan import Decision, Start, Suspend, Wait
from hai_backend.scheduler import quota
from hai_backend.scheduler.capacity import allocation, fit
from hai_backend.scheduler.capacity.slots import Grip, Holder, Need
from hai_backend.scheduler.cycle import reservation
from hai_backend.scheduler.explain import reasons
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption import preempt, relocation
from hai_backend.scheduler.preemption.bounds import CapacityBound
from hai_backend.scheduler.preemption.cost import loss
from hai_backend.scheduler.preemption.selection import VictimSelection
from hai_backend.scheduler.queue.queue import Verdict, Waiting
from hai_backend.scheduler.queue.rating import level_name
from hai_backend.scheduler.row_check import wanted


@dataclass(slots=True, eq=False)
class Cycle:
    """One pass, and what came of it."""

    group: GroupState
    now: float
    decisions: list[Decision] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    promised: dict[int, str] = field(default_factory=dict)  # task -> for whom it waits
    sentences: reasons.Sentences = field(init=False)
    _answers: dict[int, Wait] | None = None
    first_blocked: Waiting | None = None  # for lack of nodes
    _reservation: reservation.Reservation | None = None
    _crowded: set[tuple[Need, str]] = field(default_factory=set)  # lines without room beside it
    _newcomers: list[tuple[Waiting, Holder]] = field(default_factory=list)
    _leaving: list[Holder] = field(default_factory=list)
    _cheapest: VictimSelection = field(init=False)
    _ceiling: CapacityBound | None = None

    def __post_init__(self) -> None:
        self.sentences = reasons.Sentences(self)
        self._cheapest = VictimSelection(self.group.victim_index, self.group.policy, self.now)

    def run(self) -> None:
        """Decide. The group must have been undone from the pass before."""
        group = self.group
        group.advance(self.now)
        group.shares.divide(len(group.pool.spots) * quota.UNIT)
        group.queue.walk(self._offer, self._feasible, group.tier)

    def undo(self) -> None:
        """Give back what was set aside."""
        for waiting, holder in reversed(self._newcomers):
            allocation.remove(holder)
            self._count(waiting, -waiting.need.units)
        for holder in self._leaving:
            allocation.stay(holder)
            self.group.victim_index.add(holder)
            self.group.shares.keep(holder.task.user, holder.units)

    def _count(self, waiting: Waiting, units: int) -> None:
        user, level = waiting.account
        self.group.quotas.hold(user, level, units)
        self.group.shares.hold(user, units)
        self.group.shares.keep(user, units)

    def _feasible(self, need: Need) -> bool:
        return self.group.feasible.verdict(need) is None

    def place_of(self, task: int) -> Holder | None:
        """What was set aside for a task: its nodes are `spots`. Not after `undo`."""
        return next(
            (holder for waiting, holder in self._newcomers if waiting.task.id == task), None
        )

    def in_order(self) -> Iterable[Waiting]:
        """The queue as it is walked, were every task started when its turn comes; not who can not start at all."""
        group = self.group
        if not group.shares:
            return (w for w in group.queue.in_order() if self._feasible(w.need))
        order: list[Waiting] = []

        def take(waiting: Waiting) -> Verdict:
            order.append(waiting)
            group.shares.keep(waiting.task.user, waiting.need.units)
            return Verdict.NEXT

        with self.before_offers():
            group.queue.walk(take, self._feasible, group.tier)
            for waiting in order:
                group.shares.keep(waiting.task.user, -waiting.need.units)
        return order

    @contextmanager
    def before_offers(self) -> Iterator[None]:
        """The parts without what this pass gives: they were so when those who got it were before others."""
        shares = self.group.shares
        for waiting, _ in self._newcomers:
            shares.keep(waiting.task.user, -waiting.need.units)
        yield
        for waiting, _ in self._newcomers:
            shares.keep(waiting.task.user, waiting.need.units)

    def answers(self) -> dict[int, Wait]:
        """Why each task waits that was not started; written when somebody asks. Not after `undo`."""
        if self._answers is None:
            self._answers = {wait.task: wait for wait in reasons.all_waits(self)}
        return self._answers

    def _offer(self, waiting: Waiting) -> Verdict:
        limits = self.group.quotas.limits(*waiting.account)
        if limits and not quota.has_room(limits, waiting.need.units):
            return Verdict.LANE
        if self.group.shares.exceeded(waiting):
            return Verdict.LINE
        if self._must_not_delay(waiting):
            return self._seat_beside(waiting)
        refusal = self._seat(waiting)
        if refusal is not None and self.first_blocked is None:
            self.first_blocked = waiting
        return refusal or Verdict.NEXT

    def _seat(self, waiting: Waiting) -> Verdict | None:
        """Start it, or promise it nodes; else who is refused with it."""
        newcomer = Holder(
            waiting.task, Grip.HELD, ask=None if waiting.need.whole else waiting.need.ask
        )
        if not self._start(waiting, newcomer):
            refusal = self._make_room(waiting)
            if refusal is not None:
                return refusal
            spots = fit.promise(self.group.pool, waiting.need, newcomer)
            self.promised[waiting.task.id] = reasons.handed_over(spots, waiting)
        self._count(waiting, waiting.need.units)
        self._newcomers.append((waiting, newcomer))
        return None

    def _must_not_delay(self, waiting: Waiting) -> bool:
        """Its nodes could not be taken back by the first task that lacks nodes, and it may outlast that one's wait."""
        group, first = self.group, self.first_blocked
        if first is None or reservation.gives_back(waiting, first, group.policy):
            return False
        if not self._might_fit(waiting):
            return False
        if self._reservation is None:
            self._reservation = reservation.reservation(group, first, self.now)
        return reservation.outlasts(waiting, first, self._reservation, group)

    def _might_fit(self, waiting: Waiting) -> bool:
        """A quick answer: whether it would start, or others might have to leave for it."""
        group, need = self.group, waiting.need
        already = fit.within(group.pool, need, Grip.LEAVING)
        return already >= need.count or self._might_free(waiting, already)

    def _might_free(self, waiting: Waiting, already: int) -> bool:
        group, least = self.group, self._least(waiting.need, already)
        return group.victim_index.might_free(waiting, group.policy, least, bool(group.shares))

    def _seat_beside(self, waiting: Waiting) -> Verdict:
        """Offer only nodes that are not reserved. Who gives back what it takes may stand behind it in its line."""
        line = (waiting.need, waiting.share)
        refusal = Verdict.LINE if line in self._crowded else self._seat_without_reserved(waiting)
        if refusal is None:
            return Verdict.NEXT
        if refusal is Verdict.LINE:
            self._crowded.add(line)
        self._look_again()
        return Verdict.LANE

    def _look_again(self) -> None:
        """Expected ends move with time: one alarm for all who are held back."""
        assert self.first_blocked is not None
        later = self.now + self.group.policy.minimum_seconds
        self.group.alarms.set_once(later, self.first_blocked.task.id, self.now)

    def _seat_without_reserved(self, waiting: Waiting) -> Verdict | None:
        assert self._reservation is not None
        keeper, ceiling = Holder(waiting.task, Grip.HELD), self._ceiling
        for spot in self._reservation.spots:
            allocation.put(spot, keeper)
        refusal = self._seat(waiting)
        allocation.remove(keeper)
        self._ceiling = ceiling  # one of now would not count the reserved nodes
        return refusal

    def _start(self, waiting: Waiting, newcomer: Holder) -> bool:
        spots = fit.seat(self.group.pool, waiting.need, newcomer)
        if spots is None:
            return False
        level, where = waiting.own_level, self.group.name
        reason = f"{wanted(waiting.need)} free in {where}, first in the queue at {level.name}"
        self.started.add(waiting.task.id)
        self.decisions.append(
            Start(waiting.task.id, tuple(spot.name for spot in spots), level, reason)
        )
        return True

    def _make_room(self, waiting: Waiting) -> Verdict | None:
        """Suspend others only when nodes that are being left do not suffice, and then do; else who is refused too."""
        group, need = self.group, waiting.need
        already = fit.within(group.pool, need, Grip.LEAVING)
        if already >= need.count:
            return None
        refusal, leaving = Verdict.LINE, list[Holder]()
        if self._might_free(waiting, already) and not self._hopeless(waiting):
            leaving, refusal = preempt.victims(group, waiting, already, self._cheapest)
            if group.packed and not leaving:
                self._ceiling = CapacityBound(group, waiting, self.now)
        for victim in leaving or self._movers(waiting, already):
            self._suspend(victim, waiting, moves=not leaving)
        return refusal if fit.within(group.pool, need, Grip.LEAVING) < need.count else None

    def _hopeless(self, waiting: Waiting) -> bool:
        return self._ceiling is not None and self._ceiling.refuses(waiting)

    def _movers(self, waiting: Waiting, already: int) -> list[Holder]:
        """Only for the first one that lacks nodes: moving is no way to jump the queue."""
        shared = self.group.packed and self.group.policy.time_slices and not waiting.need.only
        if not shared or self.first_blocked is not None:
            return []
        return relocation.movers(self.group, waiting, already, self.now)

    def _suspend(self, victim: Holder, waiting: Waiting, *, moves: bool) -> None:
        assert victim.worth is not None
        if moves:  # who moves may be none of those who are taken from
            self._ceiling = None
        higher = victim.worth.level < waiting.level
        self.decisions.append(
            Suspend(victim.task.id, waiting.task.id, self._reason(victim, waiting, moves), higher)
        )
        self.group.victim_index.remove(victim)
        self._cheapest.forget(victim)
        self.group.shares.keep(victim.task.user, -victim.units)
        allocation.leave(victim, wanted_by=waiting.task.id)
        self._leaving.append(victim)

    @staticmethod
    def _least(need: Need, already: int) -> int:
        """The fewest nodes that must be freed for the ranks that are missing."""
        return need.count - already if need.whole or need.only else 1

    def _reason(self, victim: Holder, waiting: Waiting, moves: bool) -> str:
        task, level = waiting.task, waiting.level
        whose = f"task {task.id} of {task.user} at {level_name(level)} needs {wanted(waiting.need)}"
        worth = victim.worth
        assert worth is not None
        if moves:
            return f"{whose}; this run has had its slice and fits on other nodes: it moves there"
        if worth.level == level and self.group.shares.apart(waiting, victim):
            return f"{whose}; its user group has more of its part to come than that of this run"
        if worth.level == level:
            return f"{whose}; it ranks higher within {level_name(level)} than this run does now"
        lost = loss(victim.task, self.group.policy, self.now)
        counts = f"counts as {level_name(worth.level)} and loses least ({lost:.0f} node-seconds)"
        return f"{whose}; this run {counts}"
