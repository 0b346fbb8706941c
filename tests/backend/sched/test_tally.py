"""How many ranks fit as victims are added and taken back."""

from __future__ import annotations

from hai_backend.sched import places
from hai_backend.sched.pool import Pool
from hai_backend.sched.spots import Grip, Holder, Need
from hai_backend.sched.tally import Tally
from hai_backend.sched.testing import node, queued


def test_what_fits_already_is_no_gain() -> None:
    pool = Pool(packed=True)
    run = Holder(queued(1), Grip.HELD, ask=(3, 0, 0))
    places.put(pool.add(node("a", gpus=4)), run)
    tally = Tally(pool, Need(4, whole=False, ask=(1, 0, 0)), total=1)
    assert (tally.gain(run), tally.missing) == (3, 3)
    tally.add(run)
    assert tally.missing == 0
    tally.spare(run)
    assert tally.missing == 3


def test_of_several_nodes_only_those_that_suit_count() -> None:
    pool = Pool(packed=False)
    run = Holder(queued(1), Grip.HELD)
    for name, zone in (("a", "A"), ("b", "A"), ("c", "B")):
        places.put(pool.add(node(name, zone=zone)), run)
    assert Tally(pool, Need(3, zone="A"), total=0).gain(run) == 2
    assert Tally(pool, Need(2, only=("b", "c")), total=0).gain(run) == 2
    assert not Tally(pool, Need(1, zone="C"), total=0).useful(run)
