"""The pool counts nodes as runs come and go; arithmetic of resources."""

from __future__ import annotations

import pytest

from hai_backend.scheduler.capacity.fit import rank_capacity
from hai_backend.scheduler.capacity.node_info import SEVERAL, Allocation, Occupancy
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.capacity.resources import (
    GB,
    UNLIMITED,
    Resources,
    covers,
    ranks_in,
    requested_resources,
    size_of,
)
from hai_backend.scheduler.testing import node, queued

GPU = Request(1, whole_nodes=False, resources=(1, 0, 0))
WHOLE = Request(1)


def pool(*, packed: bool = True) -> Pool:
    """Return two nodes of 4 GPUs, 8 cpus and 4 GB in zone A, and a larger node in zone B."""
    found = Pool(packed)
    for name in "ab":
        found.add(node(name, zone="A", gpus=4, cpus=8, memory_bytes=4 * GB))
    found.add(node("c", zone="B", gpus=8, cpus=8, memory_bytes=4 * GB))
    return found


def counts(found: Pool) -> tuple[int, int]:
    return found.count(WHOLE, Occupancy.EMPTY), found.count(WHOLE, Occupancy.RELEASING)


@pytest.mark.parametrize(
    ("have", "resources", "expected"),
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
def test_rank_capacity(have: Resources, resources: Resources, expected: int) -> None:
    assert ranks_in(have, resources) == expected


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
def test_requested_resources(asked: Resources, packed: bool, expected: Resources | None) -> None:
    assert requested_resources(*asked, packed=packed) == expected


def test_what_a_node_does_not_declare_limits_nobody_except_gpus() -> None:
    assert size_of(node("a")) == (0, 10**18, 10**18)
    assert size_of(node("a", gpus=1, cpus=1, memory_bytes=1)) == (1, 1, 1)


@pytest.mark.parametrize("larger", [(1, 2, 3), (0, 3, 3), (0, 2, 4)])
def test_each_amount_must_be_covered(larger: Resources) -> None:
    assert covers((0, 2, 3), (0, 2, 3))
    assert not covers((0, 2, 3), larger)


def test_shares_count_a_run_from_its_start_to_its_end() -> None:
    found, run = pool(), Allocation(queued(1), Occupancy.ALLOCATED, resources=(1, 2, GB))
    node = found.nodes["a"]
    run.add(node)
    run.add(node)
    assert (node.free, node.future_free, counts(found)) == ((2, 4, 2 * GB), (2, 4, 2 * GB), (2, 2))
    run.begin_release(reserved_for=7)
    assert (node.free, node.future_free, counts(found)) == ((2, 4, 2 * GB), (4, 8, 4 * GB), (2, 3))
    assert (run.reserved_for, node.reserved_for) == (7, 7)
    run.undo_release()
    assert (node.future_free, counts(found)) == ((2, 4, 2 * GB), (2, 2))
    assert (run.reserved_for, node.reserved_for) == (0, 0)
    run.clear()
    assert (node.free, node.future_free, counts(found)) == (
        node.node_class.size,
        node.node_class.size,
        (3, 3),
    )
    assert (run.nodes, node.allocations, found.partly_free) == ([], [], {2: {}, 3: {}})


def test_nodes_of_a_leaving_run_count_as_future_free() -> None:
    found, run = pool(), Allocation(queued(1), Occupancy.RELEASING, resources=(1, 0, 0))
    node = found.nodes["a"]
    run.add(node)
    assert (node.free[0], node.future_free) == (3, node.node_class.size)
    run.clear()
    assert (node.free[0], node.future_free) == (4, node.node_class.size)


def test_a_run_on_whole_nodes_uses_all_of_a_packed_node() -> None:
    found, run = pool(), Allocation(queued(1), Occupancy.ALLOCATED)
    run.add(found.nodes["a"])
    assert found.nodes["a"].free == (0, 0, 0)


def test_a_node_released_for_two_tasks_is_reserved_for_neither() -> None:
    found = pool()
    for task in (1, 2):
        Allocation(queued(task), Occupancy.RELEASING, reserved_for=task).add(found.nodes["a"])
    (node_class,) = (
        node_class for node_class in found.node_classes.values() if node_class.zone == "A"
    )
    assert found.nodes["a"].reserved_for == SEVERAL
    assert {task: len(nodes) for task, nodes in node_class.releasing_nodes.items()} == {
        1: 0,
        -1: 1,
    }


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
def test_partly_free_nodes_are_indexed_by_free_gpus(
    taken: Resources, shelf: dict[int, str]
) -> None:
    found = pool()
    Allocation(queued(1), Occupancy.ALLOCATED, resources=taken).add(found.nodes["a"])
    assert {g: node.name for g, nodes in found.partly_free.items() for node in nodes} == shelf


def test_a_disabled_node_leaves_the_pool_and_its_allocations() -> None:
    found, run, other = (
        pool(),
        Allocation(queued(1), Occupancy.ALLOCATED, resources=(1, 1, 1)),
        Allocation(queued(2), Occupancy.ALLOCATED),
    )
    for name in "ab":
        run.add(found.nodes[name])
    other.add(found.nodes["a"])
    assert found.remove("a").name == "a"
    assert ([node.name for node in run.nodes], other.nodes) == (["b"], [])
    assert (counts(found), list(found.nodes)) == ((1, 1), ["b", "c"])
    assert [node.name for nodes in found.partly_free.values() for node in nodes] == ["b"]
    run.clear()
    assert counts(found) == (2, 2)
    Allocation(queued(3), Occupancy.RELEASING).add(found.nodes["b"])
    found.remove("b")
    assert counts(found) == (1, 1)


def test_a_partly_free_node_that_is_disabled_leaves_the_index() -> None:
    found = pool()
    Allocation(queued(1), Occupancy.ALLOCATED, resources=(1, 1, 1)).add(found.nodes["a"])
    found.remove("a")
    assert found.partly_free == {3: {}}


def test_nodes_for_a_request() -> None:
    found = pool()
    in_a, large = Request(1, zone="A"), Request(1, whole_nodes=False, resources=(5, 0, 0))
    named, elsewhere = (
        Request(2, node_names=("c", "a", "x")),
        Request(1, node_names=("c",), zone="A"),
    )
    names = {n: [s.name for s in found.nodes_for(n)] for n in (in_a, large, named, elsewhere)}
    assert list(names.values()) == [["a", "b"], ["c"], ["c", "a"], []]
    for request, suiting in names.items():
        assert [s.name for s in found.nodes.values() if found.suits(s, request)] == sorted(suiting)
    assert [found.usable(request) for request in names] == [2, 1, 2, 0]
    assert (found.usable(GPU), found.usable(WHOLE), found.usable(large)) == (16, 3, 1)


def test_a_new_class_of_nodes_serves_requests_made_before() -> None:
    found, tall = pool(), Request(1, whole_nodes=False, resources=(9, 0, 0))
    assert found.classes_for(tall) == ()
    found.add(node("d", gpus=9))
    assert [node.name for node in found.nodes_for(tall)] == ["d"]


def test_named_nodes_are_counted_by_what_occupies_them() -> None:
    found, named = pool(), Request(3, node_names=("a", "b", "c"))
    Allocation(queued(1), Occupancy.ALLOCATED).add(found.nodes["a"])
    Allocation(queued(2), Occupancy.RELEASING).add(found.nodes["b"])
    assert (found.count(named, Occupancy.EMPTY), found.count(named, Occupancy.RELEASING)) == (1, 2)
    assert counts(found) == (1, 2)


@pytest.mark.parametrize(
    ("packed", "runs", "shared"), [(True, 0, True), (False, 1, False), (False, 2, True)]
)
def test_a_node_is_shared_in_packed_groups_or_with_two_runs_on_it(
    packed: bool, runs: int, shared: bool
) -> None:
    found = pool(packed=packed)
    for task in range(runs):
        Allocation(queued(task), Occupancy.ALLOCATED).add(found.nodes["a"])
    assert found.shared is shared


def test_the_occupancy_of_a_node_is_the_highest_of_its_allocations() -> None:
    found = pool(packed=False)
    leaving, held = (
        Allocation(queued(1), Occupancy.RELEASING),
        Allocation(queued(2), Occupancy.ALLOCATED),
    )
    for run in (leaving, held):
        run.add(found.nodes["a"])
    assert (found.nodes["a"].occupancy, counts(found)) == (Occupancy.ALLOCATED, (2, 2))
    # Free resources matter in packed groups only.
    assert found.nodes["a"].free == found.nodes["a"].node_class.size
    held.clear()
    assert (found.nodes["a"].occupancy, counts(found)) == (Occupancy.RELEASING, (2, 3))


def test_a_request_without_resources_is_for_whole_nodes() -> None:
    assert (WHOLE.whole_nodes, WHOLE.resources, WHOLE.zone, WHOLE.node_names) == (
        True,
        (0, 0, 0),
        "",
        (),
    )
    assert (WHOLE.units, WHOLE.spread) == (0, False)


def test_a_node_with_an_allocated_task_is_reserved_for_nobody() -> None:
    """The order of the allocations does not matter."""
    for order in (1, -1):
        found = pool()
        leaving, held = (
            Allocation(queued(1), Occupancy.RELEASING, reserved_for=7),
            Allocation(queued(2), Occupancy.ALLOCATED),
        )
        for run in (leaving, held)[::order]:
            run.add(found.nodes["a"])
        assert found.nodes["a"].reserved_for == 0
        held.clear()
        assert found.nodes["a"].reserved_for == 7
        leaving.undo_release()
        assert found.nodes["a"].reserved_for == 0
        leaving.begin_release(reserved_for=7)
        leaving.clear()
        assert found.nodes["a"].reserved_for == 0


def test_nodes_with_equal_room_are_counted_together() -> None:
    """So a request is compared with each amount of free resources, not with each node."""
    found = pool()
    node_class = found.nodes["a"].node_class
    size, less = node_class.size, (3, 8, 4 * GB)
    assert (node_class.free, node_class.future_free) == ({size: 2}, {size: 2})
    run = Allocation(queued(9), Occupancy.ALLOCATED, resources=(1, 0, 0))
    run.add(found.nodes["a"])
    assert (node_class.free, node_class.future_free) == ({size: 1, less: 1}, {size: 1, less: 1})
    assert (
        rank_capacity(
            found, Request(9, whole_nodes=False, resources=(2, 0, 0), zone="A"), Occupancy.EMPTY
        )
        == 3
    )
    run.begin_release(reserved_for=1)
    assert (node_class.free, node_class.future_free) == ({size: 1, less: 1}, {size: 2})
    assert (
        rank_capacity(
            found, Request(9, whole_nodes=False, resources=(2, 0, 0), zone="A"), Occupancy.RELEASING
        )
        == 4
    )
    run.clear()
    found.remove("b")
    assert (node_class.free, node_class.future_free) == ({size: 1}, {size: 1})
