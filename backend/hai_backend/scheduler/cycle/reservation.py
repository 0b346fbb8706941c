"""Backfill: the first task that lacks nodes gets a reservation; later tasks may start only if they do not delay it.

The reservation names the nodes that are expected to be free first, or that can be taken first from runs that rank below
the task. A later task, the filler, may start on them only if it returns them in time. Either the first task may suspend
it (after the minimum of a run at the latest), or history expects it to have ended. Only tasks of the same user, which
never suspend one another, and groups without time slices need this check. With time slices, a filler of the same user
waits only if the reservation begins within the minimum of a run.

A lifted task has waited longer than the policy allows. Fillers must have ended or be unprotected when it may start:
each new run is protected for its minimum, so with many short runs a large gang would never find all its nodes free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.requests import UNIT, Request
from hai_backend.scheduler.capacity.resources import plus, ranks_in
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.eligibility import preemptible_at, refusal_scope
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.precedence import compute_run_precedence, task_kind
from hai_backend.scheduler.queue.queue import QueueEntry


@dataclass(frozen=True, slots=True)
class Reservation:
    """The nodes that a task waits for, and when it is expected to start on them; inf if that is unknown."""

    now: float
    start: float
    nodes: tuple[NodeInfo, ...]


def compete(one: Request, other: Request) -> bool:
    """Return whether two requests need the same resource: GPUs, cpus or memory. A whole node has all of them."""
    if one.whole_nodes or other.whole_nodes:
        return True
    return any(a and b for a, b in zip(one.resources, other.resources, strict=True))


def can_return_nodes(filler: QueueEntry, first: QueueEntry, policy: Policy) -> bool:
    """Return whether `first` could suspend `filler` at any time.

    False for a lifted task: `outlasts` compares the times.
    """
    if first.lifted:
        return False
    if filler.level < first.level:
        return True
    return policy.time_slices and filler.task.user != first.task.user


def outlasts(
    filler: QueueEntry, first: QueueEntry, reserved: Reservation, group: GroupState
) -> bool:
    """Return whether `filler`, if it starts now, still has its nodes when the reservation begins."""
    policy, now = group.policy, reserved.now
    if first.lifted:
        returned = _returned_at(filler, first, group, now) <= reserved.start
    else:
        returned = policy.time_slices and reserved.start > now + policy.minimum_seconds
    return not returned and _expected_end(filler.task, group.history, now) > reserved.start


def _returned_at(filler: QueueEntry, first: QueueEntry, group: GroupState, now: float) -> float:
    """Return from when on `first` may suspend `filler`, if `filler` starts now; inf for never."""
    run = replace(filler.task, run_started_at=now, run_priority=filler.quota_level)
    precedence = compute_run_precedence(
        run, filler.request.units / UNIT, group.history, group.policy, now
    )
    allocation = Allocation(run, Occupancy.ALLOCATED, precedence)
    if refusal_scope(first, allocation, group.policy, now) is not None:
        return inf
    return preemptible_at(allocation, first, group.policy, group.shares)


def reserve(group: GroupState, entry: QueueEntry, now: float) -> Reservation:
    """Reserve the nodes that the first task that lacks nodes can expect first."""
    request, times = entry.request, dict[Allocation, float]()
    nodes = group.pool.nodes_for(request)
    for allocation in {allocation for node in nodes for allocation in node.allocations}:
        times[allocation] = _released_at(allocation, entry, group, now)
    offers = [
        (at, node.occupancy is not Occupancy.EMPTY, node.name, node)
        for node in nodes
        for at in _rank_times(node, entry, times, now)
    ]
    offers.sort(key=lambda offer: offer[:3])
    chosen = offers[: request.count]
    start = chosen[-1][0] if len(chosen) == request.count else inf
    # The pass has just tried a start now. It failed because nodes are guaranteed to others or their runs are immune.
    start = inf if start <= now else start
    return Reservation(now, start, tuple(dict.fromkeys(node for *_, node in chosen)))


def _rank_times(
    node: NodeInfo, entry: QueueEntry, times: Mapping[Allocation, float], now: float
) -> list[float]:
    """Return when the node has room for a first rank, a second rank, and so on."""
    request = entry.request
    if request.whole_nodes or request.node_names:
        return [max((times[allocation] for allocation in node.allocations), default=now)]
    free, found = node.free, [now] * ranks_in(node.free, request.resources)
    for allocation in sorted(node.allocations, key=lambda a: (times[a], a.task.id)):
        free = plus(free, node.used_by(allocation))
        found += [times[allocation]] * (ranks_in(free, request.resources) - len(found))
    return found


def _released_at(allocation: Allocation, entry: QueueEntry, group: GroupState, now: float) -> float:
    """Return when the task may have the nodes of a run."""
    if allocation.occupancy is Occupancy.RELEASING:
        return now
    if allocation.precedence is None:
        return inf
    same_user = allocation.task.user == entry.task.user
    taken = inf if same_user else preemptible_at(allocation, entry, group.policy, group.shares)
    return now if taken <= now else min(taken, _expected_end(allocation.task, group.history, now))


def _expected_end(task: SchedTask, history: History, now: float) -> float:
    """Return when half of all tasks of this kind and age have ended."""
    age = task.run_seconds + max(0.0, now - (task.run_started_at or now))
    return now + history.curve(task_kind(task)).remaining(age, 0.5)
