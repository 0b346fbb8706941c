"""What is counted of the nodes of a group as runs come and go, and how amounts are reckoned."""

from __future__ import annotations

import pytest

from hai_backend.scheduler.capacity import allocation
from hai_backend.scheduler.capacity.fit import within
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.resources import (
    GB,
    UNLIMITED,
    Amount,
    ask_of,
    covers,
    ranks_in,
    size_of,
)
from hai_backend.scheduler.capacity.slots import SEVERAL, Grip, Holder, Need
from hai_backend.scheduler.testing import node, queued

GPU = Need(1, whole=False, ask=(1, 0, 0))
WHOLE = Need(1)


def pool(*, packed: bool = True) -> Pool:
    """Two nodes of 4 GPUs, 8 cpus and 4 GB in zone A, one larger node in zone B."""
    found = Pool(packed)
    for name in "ab":
        found.add(node(name, zone="A", gpus=4, cpus=8, memory_bytes=4 * GB))
    found.add(node("c", zone="B", gpus=8, cpus=8, memory_bytes=4 * GB))
    return found


def counts(found: Pool) -> tuple[int, int]:
    return found.count(WHOLE, Grip.EMPTY), found.count(WHOLE, Grip.LEAVING)


@pytest.mark.parametrize(
    ("have", "ask", "expected"),
    [
        ((8, 8, 8), (1, 0, 0), 8),
        ((8, 8, 8), (3, 0, 0), 2),
        ((8, 8, 8), (1, 3, 0), 2),
        ((8, 8, 8), (1, 0, 9), 0),
        ((8, 8, 8), (1, 2, 4), 2),
        ((8, 8, 8), (0, 1, 0), 8),
        ((0, 8, 8), (0, 0, 2), 4),
        ((-1, 8, 8), (1, 0, 0), 0),
        ((8, 8, 8), (0, 0, 0), UNLIMITED),
    ],
)
def test_how_many_ranks_fit(have: Amount, ask: Amount, expected: int) -> None:
    assert ranks_in(have, ask) == expected


@pytest.mark.parametrize(
    ("asked", "packed", "expected"),
    [
        ((0, 0, 0), True, None),
        ((4, 2, 1), False, None),
        ((4, 0, 0), True, (4, 0, 0)),
        ((0, 2, 0), True, (0, 2, 0)),
        ((0, 0, 3), True, (0, 0, 3 << 30)),
        ((-1, 2, -3), True, (0, 2, 0)),
    ],
)
def test_what_a_rank_takes(asked: Amount, packed: bool, expected: Amount | None) -> None:
    assert ask_of(*asked, packed=packed) == expected


def test_what_a_node_does_not_declare_limits_nobody_except_gpus() -> None:
    assert size_of(node("a")) == (0, 10**18, 10**18)
    assert size_of(node("a", gpus=1, cpus=1, memory_bytes=1)) == (1, 1, 1)


@pytest.mark.parametrize("larger", [(1, 2, 3), (0, 3, 3), (0, 2, 4)])
def test_each_amount_must_be_covered(larger: Amount) -> None:
    assert covers((0, 2, 3), (0, 2, 3))
    assert not covers((0, 2, 3), larger)


def test_a_run_takes_gives_notice_comes_back_and_goes() -> None:
    found, run = pool(), Holder(queued(1), Grip.HELD, ask=(1, 2, GB))
    spot = found.spots["a"]
    allocation.put(spot, run)
    allocation.put(spot, run)
    assert (spot.free, spot.soon, counts(found)) == ((2, 4, 2 * GB), (2, 4, 2 * GB), (2, 2))
    allocation.leave(run, wanted_by=7)
    assert (spot.free, spot.soon, counts(found)) == ((2, 4, 2 * GB), (4, 8, 4 * GB), (2, 3))
    assert (run.wanted_by, spot.claim) == (7, 7)
    allocation.stay(run)
    assert (spot.soon, counts(found)) == ((2, 4, 2 * GB), (2, 2))
    assert (run.wanted_by, spot.claim) == (0, 0)
    allocation.remove(run)
    assert (spot.free, spot.soon, counts(found)) == (spot.kind.size, spot.kind.size, (3, 3))
    assert (run.spots, spot.holders, found.open) == ([], [], {2: {}, 3: {}})


def test_what_a_leaving_run_holds_is_there_soon_already() -> None:
    found, run = pool(), Holder(queued(1), Grip.LEAVING, ask=(1, 0, 0))
    spot = found.spots["a"]
    allocation.put(spot, run)
    assert (spot.free[0], spot.soon) == (3, spot.kind.size)
    allocation.remove(run)
    assert (spot.free[0], spot.soon) == (4, spot.kind.size)


def test_a_whole_run_takes_all_of_a_packed_node() -> None:
    found, run = pool(), Holder(queued(1), Grip.HELD)
    allocation.put(found.spots["a"], run)
    assert found.spots["a"].free == (0, 0, 0)


def test_a_node_that_is_left_for_two_tasks_is_left_for_none_alone() -> None:
    found = pool()
    for task in (1, 2):
        allocation.put(found.spots["a"], Holder(queued(task), Grip.LEAVING, wanted_by=task))
    (kind,) = (kind for kind in found.kinds.values() if kind.zone == "A")
    assert found.spots["a"].claim == SEVERAL
    assert {claim: len(spots) for claim, spots in kind.leavings.items()} == {1: 0, -1: 1}


@pytest.mark.parametrize(
    ("taken", "shelf"),
    [
        pytest.param((1, 1, 1), {3: "a"}, id="room for more"),
        pytest.param((4, 1, 1), {0: "a"}, id="no GPUs"),
        pytest.param((1, 8, 1), {3: "a"}, id="no cpus"),
        pytest.param((1, 1, 4 * GB), {3: "a"}, id="no memory"),
        pytest.param((5, 1, 1), {}, id="more GPUs than there are"),
        pytest.param((1, 9, 1), {}, id="more cpus than there are"),
        pytest.param((1, 1, 5 * GB), {}, id="more memory than there is"),
    ],
)
def test_partly_taken_nodes_are_found_by_their_free_gpus(
    taken: Amount, shelf: dict[int, str]
) -> None:
    found = pool()
    allocation.put(found.spots["a"], Holder(queued(1), Grip.HELD, ask=taken))
    assert {g: spot.name for g, spots in found.open.items() for spot in spots} == shelf


def test_a_closed_node_counts_nowhere_and_its_runs_forget_it() -> None:
    found, run, other = (
        pool(),
        Holder(queued(1), Grip.HELD, ask=(1, 1, 1)),
        Holder(queued(2), Grip.HELD),
    )
    for name in "ab":
        allocation.put(found.spots[name], run)
    allocation.put(found.spots["a"], other)
    assert found.close("a").name == "a"
    assert ([spot.name for spot in run.spots], other.spots) == (["b"], [])
    assert (counts(found), list(found.spots)) == ((1, 1), ["b", "c"])
    assert [spot.name for spots in found.open.values() for spot in spots] == ["b"]
    allocation.remove(run)
    assert counts(found) == (2, 2)
    allocation.put(found.spots["b"], Holder(queued(3), Grip.LEAVING))
    found.close("b")
    assert counts(found) == (1, 1)


def test_a_partly_taken_node_that_is_closed_is_on_no_shelf() -> None:
    found = pool()
    allocation.put(found.spots["a"], Holder(queued(1), Grip.HELD, ask=(1, 1, 1)))
    found.close("a")
    assert found.open == {3: {}}


def test_which_nodes_suit() -> None:
    found = pool()
    in_a, large = Need(1, zone="A"), Need(1, whole=False, ask=(5, 0, 0))
    named, elsewhere = Need(2, only=("c", "a", "x")), Need(1, only=("c",), zone="A")
    names = {n: [s.name for s in found.spots_for(n)] for n in (in_a, large, named, elsewhere)}
    assert list(names.values()) == [["a", "b"], ["c"], ["c", "a"], []]
    for need, suiting in names.items():
        assert [s.name for s in found.spots.values() if found.suits(s, need)] == sorted(suiting)
    assert [found.usable(need) for need in names] == [2, 1, 2, 0]
    assert (found.usable(GPU), found.usable(WHOLE), found.usable(large)) == (16, 3, 1)


def test_a_new_kind_of_node_is_found_by_needs_that_were_asked_before() -> None:
    found, tall = pool(), Need(1, whole=False, ask=(9, 0, 0))
    assert found.kinds_for(tall) == ()
    found.add(node("d", gpus=9))
    assert [spot.name for spot in found.spots_for(tall)] == ["d"]


def test_named_nodes_are_counted_by_who_keeps_them() -> None:
    found, named = pool(), Need(3, only=("a", "b", "c"))
    allocation.put(found.spots["a"], Holder(queued(1), Grip.HELD))
    allocation.put(found.spots["b"], Holder(queued(2), Grip.LEAVING))
    assert (found.count(named, Grip.EMPTY), found.count(named, Grip.LEAVING)) == (1, 2)
    assert counts(found) == (1, 2)


@pytest.mark.parametrize(
    ("packed", "runs", "shared"), [(True, 0, True), (False, 1, False), (False, 2, True)]
)
def test_a_node_is_shared_in_packed_groups_or_when_two_runs_stand_on_it(
    packed: bool, runs: int, shared: bool
) -> None:
    found = pool(packed=packed)
    for task in range(runs):
        allocation.put(found.spots["a"], Holder(queued(task), Grip.HELD))
    assert found.shared is shared


def test_the_firmest_holder_says_how_a_node_is_kept() -> None:
    found = pool(packed=False)
    leaving, held = Holder(queued(1), Grip.LEAVING), Holder(queued(2), Grip.HELD)
    for run in (leaving, held):
        allocation.put(found.spots["a"], run)
    assert (found.spots["a"].grip, counts(found)) == (Grip.HELD, (2, 2))
    # Amounts matter in packed groups only.
    assert found.spots["a"].free == found.spots["a"].kind.size
    allocation.remove(held)
    assert (found.spots["a"].grip, counts(found)) == (Grip.LEAVING, (2, 3))


def test_a_need_that_says_nothing_is_one_of_whole_nodes() -> None:
    assert (WHOLE.whole, WHOLE.ask, WHOLE.zone, WHOLE.only) == (True, (0, 0, 0), "", ())
    assert (WHOLE.units, WHOLE.spread) == (0, False)


def test_for_whom_a_node_was_left_is_forgotten_once_somebody_stays() -> None:
    """Whatever the order in which they were seen."""
    for order in (1, -1):
        found = pool()
        leaving, held = Holder(queued(1), Grip.LEAVING, wanted_by=7), Holder(queued(2), Grip.HELD)
        for run in (leaving, held)[::order]:
            allocation.put(found.spots["a"], run)
        assert found.spots["a"].claim == 0
        allocation.remove(held)
        assert found.spots["a"].claim == 7
        allocation.stay(leaving)
        assert found.spots["a"].claim == 0
        allocation.leave(leaving, wanted_by=7)
        allocation.remove(leaving)
        assert found.spots["a"].claim == 0


def test_nodes_with_equal_room_are_counted_together() -> None:
    """So a need is compared with each amount that is there, and not with each node."""
    found = pool()
    kind = found.spots["a"].kind
    size, less = kind.size, (3, 8, 4 * GB)
    assert (kind.free, kind.soon) == ({size: 2}, {size: 2})
    run = Holder(queued(9), Grip.HELD, ask=(1, 0, 0))
    allocation.put(found.spots["a"], run)
    assert (kind.free, kind.soon) == ({size: 1, less: 1}, {size: 1, less: 1})
    assert within(found, Need(9, whole=False, ask=(2, 0, 0), zone="A"), Grip.EMPTY) == 3
    allocation.leave(run, wanted_by=1)
    assert (kind.free, kind.soon) == ({size: 1, less: 1}, {size: 2})
    assert within(found, Need(9, whole=False, ask=(2, 0, 0), zone="A"), Grip.LEAVING) == 4
    allocation.remove(run)
    found.close("b")
    assert (kind.free, kind.soon) == ({size: 1}, {size: 1})
