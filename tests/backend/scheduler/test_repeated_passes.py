"""Many passes over a small simulated cluster: the decisions of each pass change the next snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Decision, Plan, Start, Suspend
from hai_backend.domain.scheduling.snapshot import (
    Ending,
    QuotaRow,
    SchedTask,
    SchedulingState,
    ShareRow,
    Snapshot,
)
from hai_backend.scheduler import Policy, schedule
from hai_backend.scheduler.invariants import violations
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.testing import NOW, nodes, queued, quota, share

GPUS = 4
SLICE = 6500.0
DEMOTED_AFTER = 1800.0
DAY = 86_400.0


@dataclass
class World:
    """A simulated cluster. Suspended tasks lose no work; leaving takes `slowness` seconds."""

    policy: Policy
    nodes: list[Node]
    pending: list[SchedTask]
    work: dict[int, float]  # seconds of running that a task still needs
    slowness: float = 60.0
    packed: bool = False
    quotas: tuple[QuotaRow, ...] = ()
    shares: tuple[ShareRow, ...] = ()
    now: float = NOW
    tasks: dict[int, SchedTask] = field(default_factory=dict)
    released_at: dict[int, float] = field(default_factory=dict)
    endings: list[Ending] = field(default_factory=list)
    suspensions: list[tuple[float, Suspend, SchedTask]] = field(default_factory=list)
    passes: int = 0
    plan: Plan = field(default_factory=lambda: Plan(0, ()))

    def run(self) -> None:
        """Run all tasks to their end."""
        while self.tasks or self.pending:
            self.now = self._next()
            assert self.now < inf, f"tasks {sorted(self.tasks)} wait for ever"
            self._apply_events()
            self.decide()
            assert self.passes < 5000, f"tasks {sorted(self.tasks)} never end"

    def _next(self) -> float:
        ends = [self._end(t) for t in self.tasks.values() if t.standing is SchedulingState.RUNNING]
        wake = inf if self.plan.wake_at is None else self.plan.wake_at
        events = (*(t.created_at for t in self.pending), *self.released_at.values(), *ends, wake)
        return max(self.now, min(events, default=inf))

    def _end(self, task: SchedTask) -> float:
        assert task.run_started_at is not None
        return task.run_started_at + self.work[task.id]

    def _apply_events(self) -> None:
        for task in [t for t in self.pending if t.created_at <= self.now]:
            self.pending.remove(task)
            self.tasks[task.id] = task
        for number in [t for t, when in self.released_at.items() if when <= self.now]:
            del self.released_at[number]
            task = self.tasks[number]
            self.tasks[number] = replace(
                task, standing=SchedulingState.QUEUED, placed=(), suspended_for=0, run_started_at=None,
                run_priority=Priority.AUTO, waiting_since=self.now,
            )  # fmt: skip
        for task in [t for t in self.tasks.values() if t.standing is SchedulingState.RUNNING]:
            if self._end(task) <= self.now:
                del self.tasks[task.id]
                self.endings.append(Ending(task, task.run_seconds + self._ran(task)))

    def _ran(self, task: SchedTask) -> float:
        return self.now - (task.run_started_at or self.now)

    def decide(self) -> None:
        """Make one pass, check it, and carry it out."""
        self.passes += 1
        groups = {"default": Group("default", self.packed)}
        tasks = tuple(self.tasks.values())
        snapshot = Snapshot(
            self.now, tuple(self.nodes), tasks, groups, self.quotas,
            endings=tuple(self.endings), shares=self.shares,
        )  # fmt: skip
        self.plan = schedule(snapshot, self.policy)
        assert not list(violations(snapshot, self.plan, self.policy))
        for decision in self.plan.decisions:
            self._apply(decision)

    def _apply(self, decision: Decision) -> None:
        task = self.tasks[decision.task]
        match decision:
            case Start(nodes=placed, priority=level):
                self.tasks[task.id] = replace(
                    task, standing=SchedulingState.RUNNING, placed=placed, run_priority=level,
                    run_started_at=self.now,
                )  # fmt: skip
            case Suspend(for_task=for_task, higher=higher):
                self.suspensions.append((self.now, decision, task))
                self.released_at[task.id] = self.now + self.slowness
                self.work[task.id] -= self._ran(task)
                marks = (*task.suspensions, Suspension(self.now, for_task, higher))
                self.tasks[task.id] = replace(
                    task, standing=SchedulingState.LEAVING, suspended_for=for_task,
                    run_seconds=task.run_seconds + self._ran(task),
                    suspensions=tuple(s for s in marks if self.now - s.at < DAY),
                )  # fmt: skip


POLICIES = [
    pytest.param(Policy(), id="learned"),
    pytest.param(Policy(ranking=Ranking.SUBMITTED), id="submitted"),
    pytest.param(Policy(ranking=Ranking.ATTAINED, daily_suspensions=3), id="attained"),
    pytest.param(Policy(time_slices=False), id="without slices"),
]

arrivals = st.lists(
    st.tuples(
        st.integers(0, 30_000),  # seconds until it is submitted
        st.integers(1, 4),  # nodes
        st.sampled_from([*LEVELS, *[Priority.NORMAL] * 6, Priority.AUTO, Priority.ABOVE_NORMAL]),
        st.sampled_from("uvw"),
        st.sampled_from([60, 1000, 7000, 40_000]),  # seconds of work
        st.sampled_from([0, 1, 2, 4]),  # GPUs of a rank, in packed groups
        st.sampled_from([False, False, False, True]),  # spot
    ),
    min_size=1,
    max_size=12,
)


PARTS = [
    (),
    (share("u", 2),),
    (share("u", 1), share("v", 2)),
    (share("u", 1, weight=1), share("v w", 0, weight=3)),
    (share("u", 2, limit=4), share("v", 2), share("w", 0, weight=1, limit=4)),
]


@pytest.mark.parametrize("policy", POLICIES)
@given(
    pending=arrivals,
    slowness=st.sampled_from([0.0, 5.0, 600.0]),
    packed=st.booleans(),
    limit=st.booleans(),
    parts=st.sampled_from(PARTS),
)
@settings(max_examples=25, deadline=None)
def test_simulated_clusters_break_no_rule_and_end(
    policy: Policy,
    pending: list[tuple[int, int, Priority, str, int, int, bool]],
    slowness: float,
    packed: bool,
    limit: bool,
    parts: tuple[ShareRow, ...],
) -> None:
    tasks = [
        queued(i, n, level, user=user, gpu=gpu, created_at=NOW + after, spot=spot)
        for i, (after, n, level, user, _, gpu, spot) in enumerate(pending, 1)
    ]
    work = {i: float(seconds) for i, (*_, seconds, _, _) in enumerate(pending, 1)}
    rows = tuple(quota(user, Priority.AUTO, 4) for user in "uv") if limit else ()
    world = World(policy, nodes(4, gpus=GPUS), tasks, work, slowness, packed, rows, parts)
    world.run()
    nothing_bounces(world)
    nobody_is_hunted(world)


def nothing_bounces(world: World) -> None:
    """Check that two tasks suspend each other only after a slice, or after a demotion in between."""
    last: dict[tuple[int, int], float] = {}
    for when, suspend, _ in world.suspensions:
        back = last.get((suspend.task, suspend.for_task))
        pause = DEMOTED_AFTER if suspend.higher else SLICE
        assert back is None or when - back >= pause
        last[suspend.for_task, suspend.task] = when


def nobody_is_hunted(world: World) -> None:
    """Check that only urgent tasks suspend a run that has reached its daily suspensions."""
    for when, suspend, victim in world.suspensions:
        recent = [s for s in victim.suspensions if when - s.at < DAY]
        urgent = suspend.higher  # only urgent tasks may have a higher level here
        assert len(recent) < world.policy.daily_suspensions or urgent


@given(st.integers(1, 4), st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_a_stream_of_urgent_tasks_suspends_each_victim_once_per_need(count: int, gap: int) -> None:
    """While the nodes of one victim suffice for the stream, nobody else is touched."""
    low = [queued(i, 4, Priority.LOW, created_at=NOW) for i in (1, 2)]
    urgent = [
        queued(10 + i, count, Priority.HIGH, created_at=NOW + 60 + 60 * i * gap) for i in range(3)
    ]
    work = {1: 3000.0, 2: 3000.0} | {task.id: 60.0 for task in urgent}
    world = World(Policy(), nodes(8), [*low, *urgent], work)
    world.run()
    assert all(suspend.task in (1, 2) for _, suspend, _ in world.suspensions)
    assert len(world.suspensions) <= len(urgent)
