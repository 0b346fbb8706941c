"""Every suggested remedy suffices, and no smaller change does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import inf, nextafter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Group
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Start, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedulingState, Snapshot
from hai_backend.scheduler import Policy, schedule
from hai_backend.scheduler.explain import remedy_search
from hai_backend.scheduler.explain.remedy import Cause, Change, Remedy, apply_remedy
from hai_backend.scheduler.explain.remedy_search import find_remedies
from hai_backend.scheduler.testing import NOW, leaving, node, nodes, queued, quota, running, snap

LOW, NORMAL, HIGH, AUTO = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.AUTO
POLICY = Policy(overhead_share=0.01)
PACKED = Group("default", packed=True)


def served(snapshot: Snapshot, task: int) -> bool:
    """Return whether a pass over the whole snapshot gives the task nodes."""
    for decision in schedule(snapshot, POLICY).decisions:
        if decision.task == task and isinstance(decision, Start):
            return True
        if decision.task == task and isinstance(decision, Wait):
            return decision.why is WaitReason.WAITING_FOR_PREEMPTED
    return False


def smaller(snapshot: Snapshot, task: int, remedy: Remedy) -> Iterator[Remedy]:
    """Return the next smaller changes, which must not suffice."""
    match remedy.change:
        case Change.QUOTA:
            for row, more in remedy.rows:
                rows = tuple((r, more - 1 if r is row else n) for r, n in remedy.rows)
                yield replace(remedy, rows=rows)
        case Change.FEWER_NODES:
            yield replace(remedy, count=remedy.count + 1)
        case Change.LEVEL:
            yield from (replace(remedy, level=level) for level in LEVELS if level < remedy.level)
        case Change.TIME:
            yield replace(remedy, at=nextafter(remedy.at, -inf))
        case Change.UNCORDON:
            for names in combinations(remedy.nodes, len(remedy.nodes) - 1):
                yield replace(remedy, nodes=names)
        case Change.MORE_NODES:
            yield replace(remedy, count=remedy.count - 1)


def check(snapshot: Snapshot) -> list[Remedy]:
    found: list[Remedy] = []
    for task in snapshot.tasks:
        if task.standing is SchedulingState.QUEUED:
            for remedy in find_remedies(snapshot, task.id, POLICY):
                assert served(apply_remedy(snapshot, task.id, remedy, POLICY), task.id), (
                    task,
                    remedy,
                )
                for less in smaller(snapshot, task.id, remedy):
                    changed = apply_remedy(snapshot, task.id, less, POLICY)
                    assert not served(changed, task.id), (task, remedy, less)
                found.append(remedy)
    return found


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_every_remedy_suffices_and_is_minimal(
    snapshots: Callable[..., st.SearchStrategy[Snapshot]], data: st.DataObject
) -> None:
    check(data.draw(snapshots(most=3)))


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        pytest.param(
            snap(nodes(4), quota("u1", HIGH, 2), running(9, "n00", HIGH, user="u1"),
                 queued(1, 3, HIGH)),
            [Remedy(Change.FEWER_NODES, count=1, starts=True), Remedy(Change.LEVEL, level=LOW, starts=True),
             Remedy(Change.QUOTA, rows=((HIGH, 2),), starts=True)],
            id="quota of a level",
        ),
        pytest.param(
            snap(nodes(4), quota("u1", HIGH, 1), quota("u1", AUTO, 2), queued(1, 3, HIGH)),
            [Remedy(Change.FEWER_NODES, count=1, starts=True),
             Remedy(Change.QUOTA, rows=((HIGH, 2), (AUTO, 1)), starts=True)],
            id="two rows in the way",
        ),
        pytest.param(
            snap(nodes(4), quota("u1", HIGH, 3), quota("u1", AUTO, 2), queued(1, 3, HIGH)),
            [Remedy(Change.FEWER_NODES, count=2, starts=True),
             Remedy(Change.QUOTA, rows=((AUTO, 1),), starts=True)],
            id="a row that just suffices is not in the way",
        ),
        pytest.param(
            snap(nodes(3), running(9, "n00", HIGH, since=1e6), queued(1, 3)),
            [Remedy(Change.FEWER_NODES, count=2, starts=True),
             Remedy(Change.LEVEL, level=HIGH), Remedy(Change.MORE_NODES, count=1, starts=True)],
            id="fewer, higher, more",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", LOW, suspensions=(Suspension(NOW - 60, 5, higher=True),)),
                 queued(1)),
            [Remedy(Change.LEVEL, level=HIGH), Remedy(Change.MORE_NODES, count=1, starts=True),
             Remedy(Change.TIME, at=NOW + 6440, cause=Cause.PROTECTION, task=9)],
            id="protected after a suspension",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", Priority.ABOVE_NORMAL, since=1700), queued(1, 1, Priority.UNDER_NORMAL),
                 queued(2)),
            [Remedy(Change.LEVEL, level=Priority.ABOVE_NORMAL), Remedy(Change.MORE_NODES, count=2, starts=True),
             Remedy(Change.TIME, at=NOW + 85_401.0, cause=Cause.LIFT)],
            id="demoted for another",
        ),
        pytest.param(
            snap(nodes(1), node("x", cordoned=True), queued(1, 2)),
            [Remedy(Change.FEWER_NODES, count=1, starts=True),
             Remedy(Change.UNCORDON, nodes=("x",), starts=True),
             Remedy(Change.MORE_NODES, count=1, starts=True)],
            id="a cordoned node",
        ),
        pytest.param(
            snap(nodes(1), node("x", held="cordoned in Kubernetes", lift="kubectl uncordon x"),
                 node("y", held="DiskPressure"), queued(1, 2)),
            [Remedy(Change.FEWER_NODES, count=1, starts=True),
             Remedy(Change.UNCORDON, nodes=("x",), starts=True),
             Remedy(Change.MORE_NODES, count=1, starts=True)],
            id="a node that kubectl has cordoned",
        ),
        pytest.param(
            snap(PACKED, node("a", gpus=1, cordoned=True), node("b", gpus=8, cordoned=True), queued(1, gpu=4)),
            [Remedy(Change.UNCORDON, nodes=("b",), starts=True), Remedy(Change.MORE_NODES, count=1, starts=True)],
            id="a cordoned node that does not help",
        ),
        pytest.param(
            snap(
                PACKED, node("a", gpus=1, cordoned=True), *(node(n, gpus=8, cordoned=True) for n in "bc"),
                queued(1, 2, gpu=8),
            ),
            [Remedy(Change.UNCORDON, nodes=("b", "c"), starts=True), Remedy(Change.MORE_NODES, count=2, starts=True)],
            id="two of three cordoned nodes",
        ),
        pytest.param(
            snap(node("a", cordoned=True), node("b", cordoned=True), running(9, "a", HIGH), queued(1, 2)),
            [Remedy(Change.MORE_NODES, count=2, starts=True)],
            id="a cordoned node that is held",
        ),
        pytest.param(
            snap(node("a", cordoned=True), node("b", up=False, cordoned=True), nodes(1), queued(1, 2)),
            [Remedy(Change.FEWER_NODES, count=1, starts=True), Remedy(Change.UNCORDON, nodes=("a",), starts=True),
             Remedy(Change.MORE_NODES, count=1, starts=True)],
            id="only ready nodes come back",
        ),
        pytest.param(
            snap(nodes(2), node("x", cordoned=True), running(9, "n01", HIGH),
                 queued(1, 2, assigned_nodes=("n00", "x"))),
            [Remedy(Change.UNCORDON, nodes=("x",), starts=True)],
            id="named nodes: no other ones, and not fewer",
        ),
        pytest.param(
            snap(nodes(1), quota("u1", NORMAL, 0), running(9, "n00", HIGH), queued(1)),
            [Remedy(Change.LEVEL, level=Priority.VERY_HIGH)], id="quota alone would not help",
        ),
        pytest.param(
            snap(node("a", cordoned=True), node("b", cordoned=True), node("c", cordoned=True), running(9, "a", HIGH),
                 queued(1)),
            [Remedy(Change.UNCORDON, nodes=("b",), starts=True), Remedy(Change.MORE_NODES, count=1, starts=True)],
            id="empty cordoned nodes first",
        ),
        pytest.param(
            snap(node("a", cordoned=True), node("b", cordoned=True), node("c", cordoned=True), running(9, "c", LOW),
                 queued(1, 1, HIGH, assigned_nodes=("c",))),
            [Remedy(Change.UNCORDON, nodes=("c",))],
            id="a held one, when that alone helps",
        ),
        pytest.param(
            snap(nodes(5), quota("u1", NORMAL, 0), running(9, "n00 n01 n02", user="u1"), queued(1)),
            [Remedy(Change.LEVEL, level=LOW, starts=True), Remedy(Change.QUOTA, rows=((NORMAL, 4),), starts=True)],
            id="a quota that was reduced",
        ),
        pytest.param(
            snap(nodes(2), running(9, "n00 n01", since=100), queued(1), queued(2, 1, HIGH, not_before=NOW + 50)),
            [Remedy(Change.LEVEL, level=Priority.ABOVE_NORMAL), Remedy(Change.MORE_NODES, count=1, starts=True),
             Remedy(Change.TIME, at=NOW + 50)],
            id="another one will take more than it needs",
        ),
        pytest.param(
            snap(PACKED, node("a", gpus=1, cordoned=True), node("b", gpus=1, cordoned=True),
                 node("c", gpus=2, cordoned=True), running(9, "c", LOW, gpu=2), queued(1, 2, HIGH, gpu=1)),
            [Remedy(Change.UNCORDON, nodes=("c",)), Remedy(Change.MORE_NODES, count=1, starts=True)],
            id="a held one instead of two",
        ),
        pytest.param(
            snap(PACKED, [node(name, gpus=1, cordoned=True) for name in "abcd"],
                 [node(name, gpus=2, cordoned=True) for name in "yz"],
                 running(9, "y z", LOW, gpu=2), queued(1, 4, HIGH, gpu=1)),
            [Remedy(Change.UNCORDON, nodes=("z", "y")), Remedy(Change.MORE_NODES, count=2, starts=True)],
            id="two held ones instead of four",
        ),
        pytest.param(
            snap(nodes(1), queued(1, held=True)), [Remedy(Change.RESUME, starts=True)], id="held",
        ),
        pytest.param(
            snap(nodes(1), queued(1, not_before=NOW + 30)),
            [Remedy(Change.RESUME, starts=True),
             Remedy(Change.TIME, at=NOW + 30, cause=Cause.DELAY, starts=True)],
            id="put off",
        ),
        pytest.param(snap(nodes(1), queued(1, awaited=(7,))), [], id="waits for another"),
        pytest.param(snap(nodes(1), queued(1)), [], id="starts anyway"),
        pytest.param(snap(nodes(1), leaving(9, "n00"), queued(1)), [], id="has its promise"),
        pytest.param(snap(nodes(1), queued(1, -1)), [], id="a bad row"),
        pytest.param(snap(queued(1, group="nowhere")), [], id="no such group"),
        pytest.param(snap(nodes(1), running(1, "n00")), [], id="runs"),
        pytest.param(snap(nodes(1)), [], id="is not there"),
    ],
)  # fmt: skip
def test_suggested_remedies(snapshot: Snapshot, expected: list[Remedy]) -> None:
    assert list(find_remedies(snapshot, 1, POLICY)) == expected
    check(snapshot)


def test_the_number_of_tried_wake_ups_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hunted = running(9, "n00", LOW, suspensions=(Suspension(NOW - 60, 5, higher=True),))
    monkeypatch.setattr(remedy_search, "_MAX_STEPS", 0)
    found = find_remedies(snap(nodes(1), hunted, queued(1)), 1, POLICY)
    assert found[-1] == Remedy(Change.TIME, at=NOW + 6440, cause=Cause.PROTECTION, task=9)


def test_wake_ups_between_two_known_times_are_tried_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Task 2 will use more than it requests. The known times are the ends of the minimum of both runs."""
    runs = [running(8, "n02", HIGH, since=893), running(9, "n00 n01", since=100)]
    waits = [queued(1), queued(2, 1, HIGH, not_before=NOW + 50)]
    monkeypatch.setattr(remedy_search, "_MAX_STEPS", 2)
    found = find_remedies(snap(nodes(3), *runs, *waits), 1, POLICY)
    assert found[-1] == Remedy(Change.TIME, at=NOW + 50)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 16), (3, 16), (4, 16), (5, 20)], ids=lambda n: str(n)
)
def test_the_number_of_added_nodes_is_limited(count: int, expected: int) -> None:
    """So many tasks of a higher level, and with them the last place, take new nodes first."""
    for ahead, found in ((expected - count, True), (expected - count + 1, False)):
        first = [queued(10 + i, 1, HIGH) for i in range(ahead)]
        more = [
            f
            for f in find_remedies(snap(node("a", up=False), *first, queued(1, count)), 1, POLICY)
            if f.change is Change.MORE_NODES
        ]
        assert bool(more) is found


@pytest.mark.parametrize(
    ("tasks", "nodes", "expected"),
    [
        (0, 0, 120),
        (498, 0, 120),
        (499, 0, 120),
        (500, 0, 119),
        (300, 299, 100),
        (0, 2068, 28),
        (0, 2399, 25),
        (2499, 0, 24),
        (9999, 0, 24),
    ],
)
def test_the_number_of_passes_is_bounded(tasks: int, nodes: int, expected: int) -> None:
    state = snap([node(f"n{i}") for i in range(nodes)], *(queued(i) for i in range(tasks)))
    assert remedy_search._passes(state) == expected


def test_remedies_found_before_the_last_pass_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    state = snap(nodes(3), running(9, "n00", HIGH, since=1e6), queued(1, 3))
    all_of_them = find_remedies(state, 1, POLICY)
    assert len(all_of_them) == 3
    counted: list[int] = []
    for passes in range(30):
        monkeypatch.setattr(remedy_search, "_passes", lambda own, passes=passes: passes)
        found = find_remedies(state, 1, POLICY)
        assert found == all_of_them[: len(found)]
        counted.append(len(found))
    assert counted == sorted(counted)
    assert [counted.index(n) for n in (1, 2, 3)] == [3, 8, 11]


def test_a_search_ends_when_may_continue_returns_false() -> None:
    state = snap(nodes(3), running(9, "n00", HIGH, since=1e6), queued(1, 3))
    all_of_them = find_remedies(state, 1, POLICY)
    counted: list[int] = []
    for passes in range(30):
        left = iter(range(passes))
        found = find_remedies(state, 1, POLICY, lambda left=left: next(left, None) is not None)  # type: ignore[misc]
        assert found == all_of_them[: len(found)]
        counted.append(len(found))
    assert counted == sorted(counted)
    assert counted[0] == 0
    assert counted[-1] == len(all_of_them)


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 8])
def test_the_first_of_many_times_that_suffices_is_found(runs: int) -> None:
    """The protection of each run ends 100 s after that of the one before; as many must end as nodes are wanted."""
    hit = (Suspension(NOW - 7200, 5, higher=True),)
    hunted = [
        running(100 + i, f"n{i:02}", LOW, since=100.0 * (runs - i), suspensions=hit)
        for i in range(runs)
    ]
    for count in range(1, runs + 1):
        found = find_remedies(snap(nodes(runs), *hunted, queued(1, count)), 1, POLICY)
        at = NOW + 6500 - 100 * (runs - count + 1)
        assert found[-1] == Remedy(Change.TIME, at=at, cause=Cause.PROTECTION, task=99 + count)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 8, 100])
def test_the_smallest_number_is_found_in_few_steps(most: int) -> None:
    for least in range(1, most + 1):
        tried: list[int] = []

        def works(number: int, least: int = least, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number >= least

        assert remedy_search._smallest(works, most) == least
        assert len(tried) <= 2 * most.bit_length()
        assert len(tried) == len(set(tried))
        assert all(0 < number <= most for number in tried)


def test_numbers_double_up_to_the_most() -> None:
    assert list(remedy_search._doubling(1)) == [1]
    assert list(remedy_search._doubling(3)) == [1, 3]
    assert list(remedy_search._doubling(10)) == [1, 3, 7, 10]


def test_no_remedy_is_tried_for_a_task_with_dependencies() -> None:
    state = snap(nodes(2), running(9, "n00"), queued(1, awaited=(9,)))
    asked: list[None] = []
    assert find_remedies(state, 1, POLICY, lambda: not asked.append(None)) == ()  # type: ignore[func-returns-value]
    assert asked == []
