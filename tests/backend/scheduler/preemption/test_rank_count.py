"""RankCount counts the ranks that fit as victims are added and dropped."""

from __future__ import annotations

from hai_backend.scheduler.capacity.node_info import Allocation, Occupancy
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.preemption.victim_selection import RankCount
from hai_backend.scheduler.testing import node, queued


def test_ranks_that_fit_already_are_no_gain() -> None:
    pool = Pool(packed=True)
    run = Allocation(queued(1), Occupancy.ALLOCATED, resources=(3, 0, 0))
    run.add(pool.add(node("a", gpus=4)))
    rank_count = RankCount(pool, Request(4, whole_nodes=False, resources=(1, 0, 0)), total=1)
    assert (rank_count.gain(run), rank_count.missing) == (3, 3)
    rank_count.add(run)
    assert rank_count.missing == 0
    rank_count.drop(run)
    assert rank_count.missing == 3


def test_only_suitable_nodes_are_counted() -> None:
    pool = Pool(packed=False)
    run = Allocation(queued(1), Occupancy.ALLOCATED)
    for name, zone in (("a", "A"), ("b", "A"), ("c", "B")):
        run.add(pool.add(node(name, zone=zone)))
    assert RankCount(pool, Request(3, zone="A"), total=0).gain(run) == 2
    assert RankCount(pool, Request(2, node_names=("b", "c")), total=0).gain(run) == 2
    assert not RankCount(pool, Request(1, zone="C"), total=0).is_useful(run)
