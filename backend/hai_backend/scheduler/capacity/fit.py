"""Chooses nodes for a gang: nodes that are free now (`allocate`), or also nodes that are being released (`promise`).

A task on whole nodes gets empty nodes by topology (capacity/topology.py). In packed groups, a task that requests a part
of a node gets the occupied node where it leaves the least free (best fit by GPUs, then cpus, then memory), and an empty
node only if no occupied node has room. A dev container gets the node with the fewest tasks. All ranks of a gang are
equal, so a gang fits if all nodes together have room for its number of ranks.
"""

from __future__ import annotations

from collections.abc import Container

from hai_backend.scheduler.capacity import topology
from hai_backend.scheduler.capacity.node_info import Allocation, NodeInfo, Occupancy
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.capacity.resources import Resources, covers, plus, ranks_among, ranks_in


def allocate(pool: Pool, request: Request, allocation: Allocation) -> tuple[NodeInfo, ...] | None:
    """Allocate nodes that are free now to all ranks, or return None."""
    if request.node_names:
        return _allocate_named(pool, request, allocation)
    if request.whole_nodes:
        return _allocate_whole(pool, request, allocation)
    if request.count > 1 and rank_capacity(pool, request, Occupancy.EMPTY) < request.count:
        return None
    return _allocate_parts(pool, request, allocation)


def promise(pool: Pool, request: Request, allocation: Allocation) -> tuple[NodeInfo, ...]:
    """Allocate free nodes, then nodes that are being released. They suffice according to `rank_capacity`."""
    if request.node_names:
        return _allocate_all(pool.nodes_for(request), allocation)
    return (
        _promise_whole_nodes(pool, request, allocation)
        if request.whole_nodes
        else _promise_parts(pool, request, allocation)
    )


def rank_capacity(pool: Pool, request: Request, occupancy: Occupancy) -> int:
    """Return how many ranks fit now (EMPTY), or after all nodes that are being released are free (RELEASING)."""
    if request.whole_nodes:
        return pool.count(request, occupancy)
    if request.node_names:
        return sum(ranks_on(node, request, occupancy) for node in pool.nodes_for(request))
    node_classes = pool.classes_for(request)
    free_counts = (
        node_class.free if occupancy is Occupancy.EMPTY else node_class.future_free
        for node_class in node_classes
    )
    return sum(ranks_among(each, request.resources) for each in free_counts)


def ranks_on(
    node: NodeInfo, request: Request, occupancy: Occupancy, victims: Container[Allocation] = ()
) -> int:
    """Return how many ranks fit on a node after all tasks up to `occupancy`, and all `victims`, have left it."""
    if request.whole_nodes:
        return int(
            all(
                allocation.occupancy <= occupancy or allocation in victims
                for allocation in node.allocations
            )
        )
    ranks = ranks_in(_free_with(node, occupancy, victims), request.resources)
    return min(1, ranks) if request.node_names else ranks


def _free_with(node: NodeInfo, occupancy: Occupancy, victims: Container[Allocation]) -> Resources:
    """Return what is free on a node, now or after releases, and after the victims have left."""
    if occupancy is Occupancy.EMPTY:
        return node.free
    free = node.future_free
    for allocation in node.allocations:
        if allocation in victims and allocation.occupancy is Occupancy.ALLOCATED:
            free = plus(free, node.used_by(allocation))
    return free


def _allocate_named(
    pool: Pool, request: Request, allocation: Allocation
) -> tuple[NodeInfo, ...] | None:
    """Allocate the nodes that the task names if all of them are free."""
    nodes = [node for node in pool.nodes_for(request) if ranks_on(node, request, Occupancy.EMPTY)]
    return _allocate_all(nodes, allocation) if len(nodes) == request.count else None


def _allocate_whole(
    pool: Pool, request: Request, allocation: Allocation
) -> tuple[NodeInfo, ...] | None:
    if pool.count(request, Occupancy.EMPTY) < request.count:
        return None
    return _allocate_all(_pick_empty(pool, request, request.count), allocation)


def _allocate_all(nodes: list[NodeInfo], allocation: Allocation) -> tuple[NodeInfo, ...]:
    """Allocate these nodes, one for each rank."""
    for node in nodes:
        allocation.add(node)
    return tuple(nodes)


def _pick_empty(pool: Pool, request: Request, count: int) -> list[NodeInfo]:
    """Return empty nodes, chosen by topology. There must be at least `count`."""
    node_classes = pool.classes_for(request)
    empty: dict[topology.Domain, int] = {}
    for node_class in node_classes:
        for domain, nodes in node_class.empty_nodes.items():
            if nodes:
                empty[domain] = empty.get(domain, 0) + len(nodes)
    chosen: list[NodeInfo] = []
    for domain, number in topology.choose_leaves(empty, count) if count else ():
        in_domain = [
            node
            for node_class in node_classes
            for node in node_class.empty_nodes.get(domain, [])[:number]
        ]
        chosen += in_domain[:number]
    return chosen


def _allocate_parts(
    pool: Pool, request: Request, allocation: Allocation
) -> tuple[NodeInfo, ...] | None:
    """Allocate a part of a node to each rank, or return None."""
    chosen: list[NodeInfo] = []
    for _ in range(request.count):
        node = _least_loaded(pool, request) if request.spread else _best_fit(pool, request)
        if node is None:
            # Happens only for a single rank: `allocate` checks before that larger gangs fit.
            return None
        allocation.add(node)
        chosen.append(node)
    return tuple(chosen)


def _least_loaded(pool: Pool, request: Request) -> NodeInfo | None:
    """Choose a node for a dev container, whose user notices the load of other tasks."""
    fitting = (node for node in pool.nodes_for(request) if covers(node.free, request.resources))
    return min(fitting, key=lambda node: _fit_key(node, request), default=None)


def _fit_key(node: NodeInfo, request: Request) -> tuple[object, ...]:
    """Return the sort key of a node; the node with the smallest key fits best."""
    loads = (
        (len(node.allocations), *(-amount for amount in node.free)) if request.spread else node.free
    )
    return (*loads, node.name)


def _best_fit(pool: Pool, request: Request) -> NodeInfo | None:
    return _best_shared(pool, request) or _smallest_empty(pool, request)


def _best_shared(pool: Pool, request: Request) -> NodeInfo | None:
    """Return the occupied node that fits best, or None."""
    for gpus in sorted(gpus for gpus in pool.partly_free if gpus >= request.resources[0]):
        fitting = [
            node
            for node in pool.partly_free[gpus]
            if covers(node.free, request.resources) and pool.suits(node, request)
        ]
        if fitting:
            return min(fitting, key=lambda node: _fit_key(node, request))
    return None


def _smallest_empty(pool: Pool, request: Request) -> NodeInfo | None:
    """Return an empty node of the smallest suitable size, or None."""
    return next(
        iter(_pick_empty(pool, request, min(1, pool.count(request, Occupancy.EMPTY)))), None
    )


def _promise_whole_nodes(
    pool: Pool, request: Request, allocation: Allocation
) -> tuple[NodeInfo, ...]:
    """Allocate empty nodes, then nodes that are being released."""
    free = _pick_empty(pool, request, min(request.count, pool.count(request, Occupancy.EMPTY)))
    return _allocate_all(
        free + _pick_releasing(pool, request, allocation.task.id, request.count - len(free)),
        allocation,
    )


def _pick_releasing(pool: Pool, request: Request, task: int, count: int) -> list[NodeInfo]:
    """Return nodes that are being released.

    Nodes reserved for this task come first, then nodes that are not reserved. Nodes reserved for other tasks come last,
    because those tasks may fit on no other nodes.
    """
    node_classes = pool.classes_for(request)
    chosen = [
        node
        for reserved_for in (task, 0)
        for node_class in node_classes
        for node in node_class.releasing_nodes.get(reserved_for, ())
    ]
    if len(chosen) < count:
        others = (
            node
            for node_class in node_classes
            for reserved_for, nodes in node_class.releasing_nodes.items()
            if reserved_for not in (task, 0)
            for node in nodes
        )
        chosen += sorted(others, key=lambda node: node.name)
    return chosen[:count]


def _promise_parts(pool: Pool, request: Request, allocation: Allocation) -> tuple[NodeInfo, ...]:
    """Allocate parts of nodes: first where there is room now, then by reservation, then by best fit."""
    ranks_left = {
        node: ranks_on(node, request, Occupancy.RELEASING) for node in pool.nodes_for(request)
    }
    chosen: list[NodeInfo] = []
    preferred = (allocation.task.id, 0)

    def key(node: NodeInfo) -> tuple[bool, int, tuple[object, ...]]:
        must_wait = not covers(node.free, request.resources)
        order = preferred.index(node.reserved_for) if node.reserved_for in preferred else 2
        return (must_wait, order, _fit_key(node, request))

    for _ in range(request.count):
        best = min((node for node, ranks in ranks_left.items() if ranks), key=key)
        allocation.add(best)
        ranks_left[best] -= 1
        chosen.append(best)
    return tuple(chosen)
