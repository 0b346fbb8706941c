"""An upper bound of what suspensions could free: a task that does not fit in it needs no search for victims.

In groups that share nodes this search is long, and a queue of many sizes would repeat it for each size in each pass, in
vain. During a pass capacity only shrinks, and later tasks rank no higher: a bound that refused one task holds for them.
"""

from __future__ import annotations

from hai_backend.scheduler.capacity.node_info import (
    Allocation,
    NodeClass,
    NodeInfo,
    Occupancy,
    change_count,
)
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.capacity.resources import Resources, plus, ranks_among
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.preemption.victim_index import rating_of
from hai_backend.scheduler.queue.queue import Waiting


class CapacityBound:
    """What is free if every run leaves that may be suspended for this task, also runs of its own user."""

    def __init__(self, group: GroupState, waiting: Waiting, now: float) -> None:
        self._all_equals = bool(group.shares) or group.user_order.reordered
        self._top = (waiting.level, waiting.merit)
        self._pool = group.pool
        self._free_counts = {
            node_class: dict(node_class.future_free)
            for node_class in group.pool.node_classes.values()
        }
        self._empty = {
            node_class: node_class.empty + node_class.releasing for node_class in self._free_counts
        }
        self._release(_preemptible(group, waiting, now, self._all_equals))

    def _release(self, victims: set[Allocation]) -> None:
        freed: dict[NodeInfo, Resources] = {}
        for allocation in victims:
            for node in (node for node in allocation.nodes if node.node_class in self._free_counts):
                freed[node] = plus(freed.get(node, node.future_free), node.used_by(allocation))
        for node, free in freed.items():
            change_count(self._free_counts[node.node_class], node.future_free, -1)
            change_count(self._free_counts[node.node_class], free, 1)
            self._empty[node.node_class] += all(
                a in victims or a.occupancy is Occupancy.RELEASING for a in node.allocations
            )

    def refuses(self, waiting: Waiting) -> bool:
        """True when the task, and later tasks of the pass with the same request, cannot fit."""
        level, merit = self._top
        no_higher_merit = self._all_equals or waiting.merit <= merit
        applies = waiting.level < level or (waiting.level == level and no_higher_merit)
        if not applies or waiting.request.node_names:
            return False
        return self._ranks(waiting.request) < waiting.request.count

    def _ranks(self, request: Request) -> int:
        return sum(
            self._ranks_on(node_class, request) for node_class in self._pool.classes_for(request)
        )

    def _ranks_on(self, node_class: NodeClass, request: Request) -> int:
        if request.whole_nodes:
            return self._empty[node_class]
        return ranks_among(self._free_counts[node_class], request.resources)


def _preemptible(
    group: GroupState, waiting: Waiting, now: float, all_equals: bool
) -> set[Allocation]:
    """Judged by levels, ranks and protection alone."""
    policy, victims = group.policy, set[Allocation]()
    for level, step in group.victim_index.below(waiting, all_equals):
        equals = level == waiting.level
        if equals and not policy.time_slices and not group.shares:
            continue
        urgent = not equals and waiting.level >= policy.urgent
        victims.update(a for a in step if urgent or rating_of(a).guard_ends[equals] <= now)
    return victims
