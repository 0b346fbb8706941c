"""Backfill: the first task that lacks nodes gets a reservation; later tasks may start only if they do not delay it.

The reservation names the nodes that will be free first, or can be taken first from runs that rank below the task. A
task that is started before it must return its nodes in time. Either it ranks below, so that they can be taken back (at
the latest after the minimum of a run), or history expects it to have ended. This concerns only tasks of the same user,
which never suspend one another, and groups without time slices. With slices, a task of the same user is held back only
for a start that is nearer than the minimum of a run.

A lifted task has waited for too long: tasks that start before it must have ended, or be unprotected, when it may start.
Each new run is protected for its minimum, so in a stream of them a gang would never find all its nodes free at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.capacity.resources import plus, ranks_in
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.eligibility import preemptible_at, refusal_scope
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.precedence import like, rate_run
from hai_backend.scheduler.queue.queue import Verdict, Waiting


@dataclass(frozen=True, slots=True)
class Reservation:
    """The nodes that a task waits for, and when it is expected to start on them; inf: unknown."""

    now: float
    start: float
    nodes: tuple[NodeInfo, ...]


def can_return_nodes(filler: Waiting, first: Waiting, policy: Policy) -> bool:
    """Whether `first` could take the nodes of `filler` back. For a lifted task `outlasts` decides each case."""
    if first.lifted:
        return False
    if filler.level < first.level:
        return True
    return policy.time_slices and filler.task.user != first.task.user


def outlasts(filler: Waiting, first: Waiting, reserved: Reservation, group: GroupState) -> bool:
    """Whether `filler`, started now, would still have its nodes when the reservation begins."""
    policy, now = group.policy, reserved.now
    if first.lifted:
        returned = _returned_at(filler, first, group, now) <= reserved.start
    else:
        returned = policy.time_slices and reserved.start > now + policy.minimum_seconds
    return not returned and _expected_end(filler.task, group.history, now) > reserved.start


def _returned_at(filler: Waiting, first: Waiting, group: GroupState, now: float) -> float:
    """From when on `first` may take the nodes of `filler`, if that starts now; inf: never."""
    run = replace(filler.task, run_started_at=now, run_priority=filler.quota_level)
    rating = rate_run(run, filler.request.units / UNIT, group.history, group.policy, now)
    allocation = Allocation(run, Occupancy.ALLOCATED, rating)
    if refusal_scope(first, allocation, group.policy, now) is not Verdict.LINE:
        return inf
    return preemptible_at(allocation, first, group.policy, group.shares)


def reserve(group: GroupState, waiting: Waiting, now: float) -> Reservation:
    """The reservation of the first task that lacks nodes."""
    request, times = waiting.request, dict[Allocation, float]()
    nodes = group.pool.nodes_for(request)
    for allocation in {allocation for node in nodes for allocation in node.allocations}:
        times[allocation] = _released_at(allocation, waiting, group, now)
    offers = [
        (at, node.occupancy is not Occupancy.EMPTY, node.name, node)
        for node in nodes
        for at in _rank_times(node, waiting, times, now)
    ]
    offers.sort(key=lambda offer: offer[:3])
    chosen = offers[: request.count]
    start = chosen[-1][0] if len(chosen) == request.count else inf
    # A start now was tried in vain: some nodes are guaranteed to others, or their runs are immune for a while.
    start = inf if start <= now else start
    return Reservation(now, start, tuple(dict.fromkeys(node for *_, node in chosen)))


def _rank_times(
    node: NodeInfo, waiting: Waiting, times: Mapping[Allocation, float], now: float
) -> list[float]:
    """When the node has room for a first, second ... rank."""
    request = waiting.request
    if request.whole_nodes or request.node_names:
        return [max((times[allocation] for allocation in node.allocations), default=now)]
    free, found = node.free, [now] * ranks_in(node.free, request.resources)
    for allocation in sorted(node.allocations, key=lambda a: (times[a], a.task.id)):
        free = plus(free, node.used_by(allocation))
        found += [times[allocation]] * (ranks_in(free, request.resources) - len(found))
    return found


def _released_at(allocation: Allocation, waiting: Waiting, group: GroupState, now: float) -> float:
    """When the waiting task may have the nodes of a run."""
    if allocation.occupancy is Occupancy.RELEASING:
        return now
    if allocation.rating is None:
        return inf
    same_user = allocation.task.user == waiting.task.user
    taken = inf if same_user else preemptible_at(allocation, waiting, group.policy, group.shares)
    return now if taken <= now else min(taken, _expected_end(allocation.task, group.history, now))


def _expected_end(task: SchedTask, history: History, now: float) -> float:
    """The median."""
    age = task.run_seconds + max(0.0, now - (task.run_started_at or now))
    return now + history.curve(like(task)).remaining(age, 0.5)
