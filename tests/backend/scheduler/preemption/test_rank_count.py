"""How many ranks fit as victims are added and taken back."""

from __future__ import annotations

from hai_backend.scheduler.capacity import allocation
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.slots import Grip, Holder, Need
from hai_backend.scheduler.preemption.rank_count import RankCount
from hai_backend.scheduler.testing import node, queued


def test_what_fits_already_is_no_gain() -> None:
    pool = Pool(packed=True)
    run = Holder(queued(1), Grip.HELD, ask=(3, 0, 0))
    allocation.put(pool.add(node("a", gpus=4)), run)
    tally = RankCount(pool, Need(4, whole=False, ask=(1, 0, 0)), total=1)
    assert (tally.gain(run), tally.missing) == (3, 3)
    tally.add(run)
    assert tally.missing == 0
    tally.spare(run)
    assert tally.missing == 3


def test_of_several_nodes_only_those_that_suit_count() -> None:
    pool = Pool(packed=False)
    run = Holder(queued(1), Grip.HELD)
    for name, zone in (("a", "A"), ("b", "A"), ("c", "B")):
        allocation.put(pool.add(node(name, zone=zone)), run)
    assert RankCount(pool, Need(3, zone="A"), total=0).gain(run) == 2
    assert RankCount(pool, Need(2, only=("b", "c")), total=0).gain(run) == 2
    assert not RankCount(pool, Need(1, zone="C"), total=0).useful(run)
