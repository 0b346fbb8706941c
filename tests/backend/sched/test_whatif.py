"""Every change that is suggested to a waiting task works, and no smaller one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import inf, nextafter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.plan import Start, Wait, WaitReason
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.snapshot import Snapshot, Standing
from hai_backend.sched import Policy, schedule
from hai_backend.sched.flip import Cause, Change, Flip, applied
from hai_backend.sched.testing import NOW, leaving, node, nodes, queued, quota, running, snap
from hai_backend.sched.whatif import flips

LOW, NORMAL, HIGH, AUTO = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.AUTO
POLICY = Policy(overhead_share=0.01)


def served(snapshot: Snapshot, task: int) -> bool:
    """By a whole pass over everything."""
    for decision in schedule(snapshot, POLICY).decisions:
        if decision.task == task and isinstance(decision, Start):
            return True
        if decision.task == task and isinstance(decision, Wait):
            return decision.why is WaitReason.WAITING_FOR_PREEMPTED
    return False


def smaller(snapshot: Snapshot, task: int, flip: Flip) -> Iterator[Flip]:
    """What must not suffice."""
    match flip.change:
        case Change.QUOTA:
            for row, more in flip.rows:
                rows = tuple((r, more - 1 if r is row else n) for r, n in flip.rows)
                yield replace(flip, rows=rows)
        case Change.FEWER_NODES:
            yield replace(flip, count=flip.count + 1)
        case Change.LEVEL:
            yield from (replace(flip, level=level) for level in LEVELS if level < flip.level)
        case Change.TIME:
            yield replace(flip, at=nextafter(flip.at, -inf))
        case Change.UNCORDON:
            for names in combinations(flip.nodes, len(flip.nodes) - 1):
                yield replace(flip, nodes=names)
        case Change.MORE_NODES:
            yield replace(flip, count=flip.count - 1)


def check(snapshot: Snapshot) -> list[Flip]:
    found: list[Flip] = []
    for task in snapshot.tasks:
        if task.standing is Standing.QUEUED:
            for flip in flips(snapshot, task.id, POLICY):
                assert served(applied(snapshot, task.id, flip, POLICY), task.id), (task, flip)
                for less in smaller(snapshot, task.id, flip):
                    changed = applied(snapshot, task.id, less, POLICY)
                    assert not served(changed, task.id), (task, flip, less)
                found.append(flip)
    return found


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_every_flip_works_and_is_minimal(
    snapshots: Callable[..., st.SearchStrategy[Snapshot]], data: st.DataObject
) -> None:
    check(data.draw(snapshots(most=3)))


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        pytest.param(
            snap(nodes(4), quota("u1", HIGH, 2), running(9, "n00", HIGH, user="u1"),
                 queued(1, 3, HIGH)),
            [Flip(Change.FEWER_NODES, count=1, starts=True), Flip(Change.LEVEL, level=LOW, starts=True),
             Flip(Change.QUOTA, rows=((HIGH, 2),), starts=True)],
            id="quota of a level",
        ),
        pytest.param(
            snap(nodes(4), quota("u1", HIGH, 1), quota("u1", AUTO, 2), queued(1, 3, HIGH)),
            [Flip(Change.FEWER_NODES, count=1, starts=True),
             Flip(Change.QUOTA, rows=((HIGH, 2), (AUTO, 1)), starts=True)],
            id="two rows in the way",
        ),
        pytest.param(
            snap(nodes(3), running(9, "n00", HIGH, since=1e6), queued(1, 3)),
            [Flip(Change.FEWER_NODES, count=2, starts=True),
             Flip(Change.LEVEL, level=HIGH), Flip(Change.MORE_NODES, count=1, starts=True)],
            id="fewer, higher, more",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", LOW, suspensions=(Suspension(NOW - 60, 5, higher=True),)),
                 queued(1)),
            [Flip(Change.LEVEL, level=HIGH), Flip(Change.MORE_NODES, count=1, starts=True),
             Flip(Change.TIME, at=NOW + 6440, cause=Cause.PROTECTION, task=9)],
            id="protected after a suspension",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", Priority.ABOVE_NORMAL, since=1700), queued(1, 1, Priority.UNDER_NORMAL),
                 queued(2)),
            [Flip(Change.LEVEL, level=Priority.ABOVE_NORMAL), Flip(Change.MORE_NODES, count=2, starts=True),
             Flip(Change.TIME, at=NOW + 85_401.0, cause=Cause.LIFT)],
            id="demoted for another",
        ),
        pytest.param(
            snap(nodes(1), node("x", cordoned=True), queued(1, 2)),
            [Flip(Change.FEWER_NODES, count=1, starts=True),
             Flip(Change.UNCORDON, nodes=("x",), starts=True),
             Flip(Change.MORE_NODES, count=1, starts=True)],
            id="a cordoned node",
        ),
        pytest.param(
            snap(nodes(1), queued(1, held=True)), [Flip(Change.RESUME, starts=True)], id="held",
        ),
        pytest.param(
            snap(nodes(1), queued(1, not_before=NOW + 30)),
            [Flip(Change.RESUME, starts=True),
             Flip(Change.TIME, at=NOW + 30, cause=Cause.DELAY, starts=True)],
            id="put off",
        ),
        pytest.param(snap(nodes(1), queued(1)), [], id="starts anyway"),
        pytest.param(snap(nodes(1), leaving(9, "n00"), queued(1)), [], id="has its promise"),
        pytest.param(snap(nodes(1), queued(1, -1)), [], id="a bad row"),
        pytest.param(snap(queued(1, group="nowhere")), [], id="no such group"),
        pytest.param(snap(nodes(1), running(1, "n00")), [], id="runs"),
        pytest.param(snap(nodes(1)), [], id="is not there"),
    ],
)  # fmt: skip
def test_flips(snapshot: Snapshot, expected: list[Flip]) -> None:
    assert list(flips(snapshot, 1, POLICY)) == expected
    check(snapshot)
