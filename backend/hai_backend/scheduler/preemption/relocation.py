"""Defragmentation: selects small runs that move to other nodes, so that a larger task fits on one node.

Small tasks leave free parts on many nodes. If no run may be suspended for the first task that lacks nodes, runs of its
level or below that have had their slice may move. A run that moves is suspended and starts again at once. Relocation is
limited to packed groups with time slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.resources import Resources, covers, minus, plus
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.candidates import loss
from hai_backend.scheduler.preemption.eligibility import refusal_scope
from hai_backend.scheduler.queue.precedence import Protection, slice_seconds
from hai_backend.scheduler.queue.queue import QueueEntry

_MAX_NODES = 64  # examined for one rank


def select_runs_to_move(
    group: GroupState, entry: QueueEntry, fitting_count: int, now: float
) -> list[Allocation]:
    """Return the runs that must move so that all ranks fit; none if the examined nodes do not suffice.

    `fitting_count` ranks fit without any move.
    """
    plan = _RelocationPlan(group, entry, now)
    for node in _emptiest(group, entry):
        fitting_count += plan.clear(node)
        if fitting_count >= entry.request.count:
            return plan.runs_to_move
    return []


def _emptiest(group: GroupState, entry: QueueEntry) -> list[NodeInfo]:
    """Return the nodes that are occupied in part and suit the task, those with the most free GPUs first."""
    partly_free = (node for nodes in group.pool.partly_free.values() for node in nodes)
    suitable = (
        node
        for node in partly_free
        if node.occupancy is Occupancy.ALLOCATED and group.pool.suits(node, entry.request)
    )
    order = sorted(suitable, key=lambda n: (-n.free[0], len(n.allocations), n.name))
    return order[:_MAX_NODES]


class _RelocationPlan:
    """Records which nodes are cleared for the task, and what other nodes have free after runs have moved there."""

    def __init__(self, group: GroupState, entry: QueueEntry, now: float) -> None:
        self.runs_to_move: list[Allocation] = []
        self._group = group
        self._entry = entry
        self._now = now
        self._cleared: set[NodeInfo] = set()
        self._free: dict[NodeInfo, Resources] = {}

    def clear(self, node: NodeInfo) -> bool:
        """Clear the node for one rank. Return False if a run that would have to leave cannot move."""
        if node in self._free:  # another run moves to this node
            return False
        before = dict(self._free)
        self._cleared.add(node)
        found = self._select_runs(node)
        if found is None:
            self._free = before
            self._cleared.discard(node)
            return False
        self.runs_to_move += found
        return True

    def _select_runs(self, node: NodeInfo) -> list[Allocation] | None:
        """Return the runs that must leave the node, with room for them elsewhere; None if there is no such room."""
        request = self._entry.request
        needed = node.node_class.size if request.whole_nodes else request.resources
        free, found = node.future_free, list[Allocation]()
        for allocation in self._cheapest_runs(node):
            if covers(free, needed):
                break
            if not self._may_move(allocation) or not self._allocate(allocation):
                return None
            found.append(allocation)
            free = plus(free, node.used_by(allocation))
        return found if covers(free, needed) else None

    def _cheapest_runs(self, node: NodeInfo) -> list[Allocation]:
        """Return the runs on the node, those that lose least first."""
        runs = (a for a in node.allocations if a.occupancy is Occupancy.ALLOCATED)
        policy, now = self._group.policy, self._now
        return sorted(runs, key=lambda run: (loss(run.task, policy, now), run.task.id))

    def _may_move(self, allocation: Allocation) -> bool:
        """Return whether a run has had its slice and may be suspended for the task."""
        precedence, task, policy = allocation.precedence, allocation.task, self._group.policy
        if precedence is None or precedence.level > self._entry.level:
            return False
        if allocation.resources is None or len(allocation.nodes) != 1:
            return False
        began = self._now if task.run_started_at is None else task.run_started_at
        had_slice = (
            self._now - began >= slice_seconds(task, policy)
            and precedence.protection is Protection.NONE
        )
        return had_slice and refusal_scope(self._entry, allocation, policy, self._now) is None

    def _allocate(self, allocation: Allocation) -> bool:
        """Reserve the resources of a run on the fullest node where they fit."""
        request = self._group.requests.request_of(allocation.task)
        for node in self._best_fit(request.resources[0]):
            free = self._free.get(node, node.free)
            if covers(free, request.resources) and self._group.pool.suits(node, request):
                self._free[node] = minus(free, request.resources)
                return True
        return False

    def _best_fit(self, gpus: int) -> Iterator[NodeInfo]:
        """Yield partly free nodes with at least so many free GPUs, the fullest first."""
        partly_free = self._group.pool.partly_free
        for free in sorted(free for free in partly_free if free >= gpus):
            for node in islice(partly_free[free], _MAX_NODES):
                if node not in self._cleared:
                    yield node
