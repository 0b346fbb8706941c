"""An upper bound of what suspensions could free: a task that does not fit within the bound needs no search for victims.

In packed groups such a search is long, and it would be repeated for each size of task in the queue. During a pass
capacity only shrinks and later tasks rank no higher, so a bound that was computed for one task holds for later ones.
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
from hai_backend.scheduler.preemption.victim_index import precedence_of
from hai_backend.scheduler.queue.queue import QueueEntry


class CapacityBound:
    """The free resources after every run has left that may be suspended for a task, runs of its own user included."""

    def __init__(self, group: GroupState, entry: QueueEntry, now: float) -> None:
        self._all_equals = bool(group.shares) or group.user_order.reordered
        self._top = (entry.level, entry.merit)
        self._pool = group.pool
        self._free_counts = {
            node_class: dict(node_class.future_free)
            for node_class in group.pool.node_classes.values()
        }
        self._empty = {
            node_class: node_class.empty + node_class.releasing for node_class in self._free_counts
        }
        self._release(_preemptible(group, entry, now, self._all_equals))

    def _release(self, victims: set[Allocation]) -> None:
        """Count what is free after these runs have left."""
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

    def refuses(self, entry: QueueEntry) -> bool:
        """Return True if the task cannot fit, nor any later task of the pass with the same request."""
        level, merit = self._top
        no_higher_merit = self._all_equals or entry.merit <= merit
        applies = entry.level < level or (entry.level == level and no_higher_merit)
        if not applies or entry.request.node_names:
            return False
        return self._ranks(entry.request) < entry.request.count

    def _ranks(self, request: Request) -> int:
        """Return how many ranks of a request fit within the bound."""
        return sum(
            self._ranks_on(node_class, request) for node_class in self._pool.classes_for(request)
        )

    def _ranks_on(self, node_class: NodeClass, request: Request) -> int:
        if request.whole_nodes:
            return self._empty[node_class]
        return ranks_among(self._free_counts[node_class], request.resources)


def _preemptible(
    group: GroupState, entry: QueueEntry, now: float, all_equals: bool
) -> set[Allocation]:
    """Return the runs that levels, merit and protection allow to suspend for the task."""
    policy, victims = group.policy, set[Allocation]()
    for level, runs in group.victim_index.runs_by_level(entry, all_equals):
        equals = level == entry.level
        if equals and not policy.time_slices and not group.shares:
            continue
        kind = 1 if equals else 2 if entry.level >= policy.urgent else 0
        victims.update(a for a in runs if precedence_of(a).protection_ends[kind] <= now)
    return victims
