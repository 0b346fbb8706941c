"""Defragmentation: small runs move to other nodes, so that a larger task fits on one node.

Small tasks leave free parts on many nodes. When no run may be suspended for the first task that lacks nodes, runs of
its level or below that have had their slice may move: that costs as little as taking turns, and they start again at
once. Only in groups that share nodes, where time slices are on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.resources import Resources, covers, minus, plus
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.candidates import loss
from hai_backend.scheduler.preemption.eligibility import refusal_scope
from hai_backend.scheduler.queue.precedence import Guard, slice_seconds
from hai_backend.scheduler.queue.queue import Verdict, Waiting

_MAX_NODES = 64  # examined for one rank


def runs_to_move(group: GroupState, waiting: Waiting, already: int, now: float) -> list[Allocation]:
    """The runs that move so that all ranks fit and not only `already`. None: no way was found on the nodes examined."""
    plan = _RelocationPlan(group, waiting, now)
    for node in _emptiest(group, waiting):
        already += plan.clear(node)
        if already >= waiting.request.count:
            return plan.runs_to_move
    return []


def _emptiest(group: GroupState, waiting: Waiting) -> list[NodeInfo]:
    partly_free = (node for nodes in group.pool.partly_free.values() for node in nodes)
    suitable = (
        node
        for node in partly_free
        if node.occupancy is Occupancy.ALLOCATED and group.pool.suits(node, waiting.request)
    )
    order = sorted(suitable, key=lambda n: (-n.free[0], len(n.allocations), n.name))
    return order[:_MAX_NODES]


class _RelocationPlan:
    """Which nodes are cleared for the task, and what other nodes have free once runs have moved there."""

    def __init__(self, group: GroupState, waiting: Waiting, now: float) -> None:
        self.runs_to_move: list[Allocation] = []
        self._group = group
        self._waiting = waiting
        self._now = now
        self._cleared: set[NodeInfo] = set()
        self._free: dict[NodeInfo, Resources] = {}

    def clear(self, node: NodeInfo) -> bool:
        """Clear the node for one rank, if all runs in the way can move."""
        if node in self._free:  # a run has moved here
            return False
        before = dict(self._free)
        self._cleared.add(node)
        found = self._moving(node)
        if found is None:
            self._free = before
            self._cleared.discard(node)
            return False
        self.runs_to_move += found
        return True

    def _moving(self, node: NodeInfo) -> list[Allocation] | None:
        request = self._waiting.request
        needed = node.node_class.size if request.whole_nodes else request.resources
        free, found = node.future_free, list[Allocation]()
        for allocation in self._in_the_way(node):
            if covers(free, needed):
                break
            if not self._may_move(allocation) or not self._allocate(allocation):
                return None
            found.append(allocation)
            free = plus(free, node.used_by(allocation))
        return found if covers(free, needed) else None

    def _in_the_way(self, node: NodeInfo) -> list[Allocation]:
        """The runs on the node, those that lose least first."""
        runs = (a for a in node.allocations if a.occupancy is Occupancy.ALLOCATED)
        policy, now = self._group.policy, self._now
        return sorted(runs, key=lambda run: (loss(run.task, policy, now), run.task.id))

    def _may_move(self, allocation: Allocation) -> bool:
        rating, task, policy = allocation.rating, allocation.task, self._group.policy
        if rating is None or rating.level > self._waiting.level:
            return False
        if allocation.resources is None or len(allocation.nodes) != 1:
            return False
        began = self._now if task.run_started_at is None else task.run_started_at
        had_slice = self._now - began >= slice_seconds(task, policy) and rating.guard is Guard.NONE
        return (
            had_slice
            and refusal_scope(self._waiting, allocation, policy, self._now) is Verdict.LINE
        )

    def _allocate(self, allocation: Allocation) -> bool:
        """Reserve its resources on the fullest node where they fit."""
        request = self._group.requests.of(allocation.task)
        for node in self._best_fit(request.resources[0]):
            free = self._free.get(node, node.free)
            if covers(free, request.resources) and self._group.pool.suits(node, request):
                self._free[node] = minus(free, request.resources)
                return True
        return False

    def _best_fit(self, gpus: int) -> Iterator[NodeInfo]:
        partly_free = self._group.pool.partly_free
        for free in sorted(free for free in partly_free if free >= gpus):
            for node in islice(partly_free[free], _MAX_NODES):
                if node not in self._cleared:
                    yield node
