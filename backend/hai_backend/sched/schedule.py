"""One pass: from what is known of the cluster to what should change, each decision with its reason.

1. Survey: sort nodes, quota rows, runs and queued tasks by group; turn bad rows away; stop tasks of inactive users.

Then for each group, which shares nothing with the others:

2. Sift: set aside who is held, backs off, or could never start with today's nodes.
3. Level: find the level of AUTO tasks.
4. Order: highest level first, then the ranking.
5. Seat: quota? free nodes? nodes being left? nodes of lower levels? else wait, and let others pass.
6. Explain: every task that waits learns why, its place, and who is ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hai_backend.domain.plan import Decision, Plan, Start, Suspend, Wait, WaitReason
from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import Snapshot
from hai_backend.sched import explain, fit, preempt, quota
from hai_backend.sched.check import Feasibility, not_yet, wanted
from hai_backend.sched.order import Waiting, in_order
from hai_backend.sched.policy import Policy
from hai_backend.sched.pool import FIXED, LEAVING, Holder, Need, Pool
from hai_backend.sched.survey import GroupSurvey, Survey, survey

_DEFAULT = Policy()


def schedule(snapshot: Snapshot, policy: Policy = _DEFAULT) -> Plan:
    """What should start, leave, stop or wait now. Pure, deterministic, and total: a bad row gets a reason."""
    found = survey(snapshot, policy)
    decisions: list[Decision] = [
        *found.stops,
        *(found.refused[task] for task in sorted(found.refused)),
    ]
    for group in found.groups.values():
        if group.queue:
            decisions += _group_pass(group, found, snapshot, policy)
    waiting = any(isinstance(decision, Wait) for decision in decisions)
    wake_at = min(found.alarms, default=None) if waiting else None
    return Plan(snapshot.revision, tuple(decisions), wake_at)


@dataclass(slots=True, eq=False)
class _Desk:
    """What a pass over one group works with."""

    group: GroupSurvey
    pool: Pool
    ladder: preempt.Ladder
    decisions: list[Decision] = field(default_factory=list)
    blocked: list[Waiting] = field(default_factory=list)
    # Needs that did not fit at a level at least as high; with a user, only because of own tasks.
    refused: set[Need | tuple[Need, str, Priority]] = field(default_factory=set)


def _group_pass(
    group: GroupSurvey, found: Survey, snapshot: Snapshot, policy: Policy
) -> list[Decision]:
    desk = _open_desk(group, found)
    queue = _sift(desk, snapshot.now)
    quota.resolve_auto(queue, group.quotas)
    for waiting in in_order(queue):
        _seat(desk, waiting)
    desk.decisions += explain.waits(desk.blocked, desk.pool, group.name, policy.ahead_limit)
    return desk.decisions


def _open_desk(group: GroupSurvey, found: Survey) -> _Desk:
    usable = [node for node in group.nodes.values() if node.usable]
    pool = Pool(usable, found.on, group.packed)
    holders = {h: None for node in usable for h in found.on.get(node.name, ())}
    return _Desk(group, pool, preempt.Ladder([h for h in holders if LEAVING < h.level < FIXED]))


def _sift(desk: _Desk, now: float) -> list[Waiting]:
    """The tasks that could start, were nobody else there; the others wait outside the queue."""
    group = desk.group
    feasible = Feasibility(group.name, group.exists, group.nodes, desk.pool)
    queue: list[Waiting] = []
    aside: list[Wait] = []
    for task in group.queue:
        need = group.need(task)
        verdict = not_yet(task, now) or feasible.verdict(need)
        if verdict is None:
            queue.append(Waiting(task, need, task.priority))
        else:
            aside.append(Wait(task.id, *verdict, priority=task.priority))
    desk.decisions += sorted(aside, key=lambda wait: wait.task)
    return queue


def _seat(desk: _Desk, waiting: Waiting) -> None:
    task, need, quotas = waiting.task, waiting.need, desk.group.quotas
    limits = quotas.limits(task.user, waiting.level)
    if limits and not quota.has_room(limits, need.units):
        waiting.why, waiting.message = explain.out_of_quota(limits, waiting, desk.group.name)
    elif need not in desk.refused:
        if _start(desk, waiting):
            quotas.hold(task.user, waiting.level, need.units)
            return
        if _hand_over(desk, waiting):
            quotas.hold(task.user, waiting.level, need.units)
    desk.blocked.append(waiting)


def _start(desk: _Desk, waiting: Waiting) -> bool:
    task, need = waiting.task, waiting.need
    spots = fit.seat(desk.pool, need, _newcomer(waiting))
    if spots is None:
        return False
    reason = f"{wanted(need)} free in {desk.group.name}, first in the queue at {waiting.level.name}"
    desk.decisions.append(Start(task.id, tuple(spot.name for spot in spots), waiting.level, reason))
    return True


def _newcomer(waiting: Waiting) -> Holder:
    ask = None if waiting.need.whole else waiting.need.ask
    return Holder(waiting.task.id, FIXED, waiting.task.user, ask=ask)


def _hand_over(desk: _Desk, waiting: Waiting) -> bool:
    """Promise nodes that are being left; suspend lower levels only when these do not suffice and they do."""
    pool, need = desk.pool, waiting.need
    already = fit.within(pool, need, LEAVING)
    if already < need.count and not _suspend(desk, waiting, already):
        return False
    waiting.message = explain.handed_over(fit.promise(pool, need, _newcomer(waiting)), waiting)
    waiting.why = WaitReason.WAITING_FOR_PREEMPTED
    return True


def _suspend(desk: _Desk, waiting: Waiting, already: int) -> bool:
    pool, task, need, level = desk.pool, waiting.task, waiting.need, waiting.level
    if fit.within(pool, need, level - 1) < need.count:
        desk.refused.add(need)
        return False
    if (need, task.user, level) in desk.refused:
        return False
    victims = preempt.victims(pool, desk.ladder, waiting, already)
    if not victims:
        desk.refused.add((need, task.user, level))
    for victim in victims:
        desk.decisions.append(Suspend(victim.task, task.id, _reason(victim, waiting)))
        desk.ladder.remove(victim)
        pool.leave(victim, wanted_by=task.id)
    return bool(victims)


def _reason(victim: Holder, waiting: Waiting) -> str:
    return (
        f"task {waiting.task.id} of {waiting.task.user} at {waiting.level.name} needs {wanted(waiting.need)}; this run "
        f"counts as {Priority(victim.level).name} and loses least ({victim.loss:.0f} node-seconds)"
    )
