"""A preview shows what new settings of a group would change in the next pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Start, Suspend, Wait
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.scheduler import Policy, schedule
from hai_backend.scheduler.policy.group_policy import format_settings
from hai_backend.scheduler.policy.preview import Effect, preview
from hai_backend.scheduler.testing import nodes, queued, running, snap

HIGH, NORMAL = Priority.HIGH, Priority.NORMAL
OLD = {"since": 90_000.0}  # longer than every slice and protection
KINDS = (Start, Suspend, Wait)
SETTINGS = (
    {"default_quota": 0},
    {"time_slices": False},
    {"ranking": "attained"},
    {"minimum_seconds": 1e6},
    {"demotion": {"EXTREME_HIGH": {"to": "LOW", "after_seconds": 0}}},
    {"patience_seconds": 0, "lifted_to": "EXTREME_HIGH"},
)


def ids(effect: Effect) -> tuple[list[int], ...]:
    kinds = (effect.starts, effect.delayed, effect.suspended, effect.spared)
    return tuple([decision.task for decision in kind] for kind in kinds)


def of(**found: Any) -> Group:
    return Group("default", policy=format_settings(found))


@pytest.mark.parametrize(
    ("snapshot", "new", "expected"),
    [
        pytest.param(
            snap(nodes(1), queued(1), of(default_quota=0)), of(), ([1], [], [], []), id="starts"
        ),
        pytest.param(
            snap(nodes(1), queued(1)), of(default_quota=0), ([], [1], [], []), id="delayed"
        ),
        pytest.param(
            snap(nodes(1), running(1, "n00", HIGH, **OLD), queued(2)),
            of(demotion={"HIGH": {"to": "LOW", "after_seconds": 0}}),
            ([], [], [1], []),
            id="suspended",
        ),
        pytest.param(
            snap(nodes(1), running(1, "n00", NORMAL, **OLD), queued(2, created_at=0.0)),
            of(time_slices=False, patience_seconds=1e9),
            ([], [], [], [1]),
            id="spared",
        ),
        pytest.param(snap(nodes(1), queued(1)), of(), ([], [], [], []), id="nothing"),
    ],
)
def test_a_preview_lists_the_changed_decisions(
    snapshot: Snapshot, new: Group, expected: tuple[list[int], ...]
) -> None:
    assert ids(preview(snapshot, new, Policy())) == expected


def test_a_preview_counts_moved_positions() -> None:
    waiting = [queued(2, priority=Priority.LOW), queued(3), queued(4, 9)]
    snapshot = snap(nodes(1), running(1, "n00", Priority.EXTREME_HIGH), *waiting)
    new = of(patience_seconds=0, lifted_to="NORMAL")
    effect = preview(snapshot, new, Policy())
    assert (effect.moved, effect.waiting) == (2, 3)


def decided(snapshot: Snapshot) -> dict[type, set[int]]:
    """Return the ids of tasks of the group default by kind of decision."""
    own = {task.id for task in snapshot.tasks if task.group == "default"}
    decisions = [d for d in schedule(snapshot).decisions if d.task in own]
    return {kind: {d.task for d in decisions if isinstance(d, kind)} for kind in KINDS}


def elsewhere(snapshot: Snapshot) -> Snapshot:
    """Return the same tasks in another group."""

    def moved(task: SchedTask) -> SchedTask:
        names: Mapping[str, Any] = {
            field: tuple(f"o{name}" for name in getattr(task, field))
            for field in ("placed", "assigned_nodes")
        }
        return replace(task, id=task.id + 1000, group="other", **names)

    return replace(
        snapshot,
        nodes=tuple(replace(n, name=f"o{n.name}", group="other") for n in snapshot.nodes),
        tasks=tuple(map(moved, snapshot.tasks)),
        groups={},
        quotas=(),
    )


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_preview_equals_the_difference_of_two_passes(
    snapshots: Callable[..., st.SearchStrategy[Snapshot]], data: st.DataObject
) -> None:
    one, two = (data.draw(snapshots(most=4)) for _ in range(2))
    two = elsewhere(two)
    both = replace(one, nodes=one.nodes + two.nodes, tasks=one.tasks + two.tasks)
    packed = any(group.packed for group in one.groups.values())
    new = Group("default", packed, format_settings(data.draw(st.sampled_from(SETTINGS))))
    effect = preview(both, new, Policy())
    old = decided(both)
    now = decided(replace(both, groups={**both.groups, "default": new}))
    assert ids(effect) == (
        sorted(now[Start] - old[Start]),
        sorted(old[Start] & now[Wait]),
        sorted(now[Suspend] - old[Suspend]),
        sorted(old[Suspend] - now[Suspend]),
    )
    assert effect.waiting == len(old[Wait] & now[Wait])


def test_without_queued_tasks_a_preview_has_no_effect() -> None:
    assert preview(snap(nodes(1)), of(staying=2), Policy()) == Effect()


def test_equal_settings_have_no_effect() -> None:
    state = snap(nodes(1), running(1, "n00", **OLD), queued(2), queued(3), of(staying=2))
    assert preview(state, of(staying=2.0), Policy()) == Effect(waiting=2)
