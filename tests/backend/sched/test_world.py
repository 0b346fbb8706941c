"""Many passes over a tiny simulated world: what one pass decides is the next one's snapshot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Node
from hai_backend.domain.plan import Start, Stop, Suspend
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.snapshot import SchedTask, Snapshot, Standing
from hai_backend.sched import schedule
from hai_backend.sched.testing import NOW, nodes, queued

PASS_SECONDS = 60.0
DEMOTED_AFTER = 1800.0


@dataclass
class World:
    """Tasks work while they run and keep what they have done when suspended; leaving takes `slowness` passes."""

    nodes: list[Node]
    waiting: list[tuple[int, SchedTask]]  # pass of arrival
    work: dict[int, int]  # passes of running that a task still needs
    slowness: int
    now: float = NOW
    tasks: dict[int, SchedTask] = field(default_factory=dict)
    gone_at: dict[int, int] = field(default_factory=dict)
    suspensions: list[tuple[float, int, int]] = field(default_factory=list)

    def step(self, number: int) -> None:
        self.now += PASS_SECONDS
        self._arrive_and_leave(number)
        self._work()
        for decision in schedule(
            Snapshot(self.now, tuple(self.nodes), tuple(self.tasks.values()))
        ).decisions:
            self._apply(decision, number)
        self._check()

    def _arrive_and_leave(self, number: int) -> None:
        for _, task in [item for item in self.waiting if item[0] == number]:
            self.tasks[task.id] = task
        for task in [t for t, when in self.gone_at.items() if when <= number]:
            del self.gone_at[task]
            self.tasks[task] = replace(
                self.tasks[task], standing=Standing.QUEUED, placed=(), suspended_for=0
            )

    def _work(self) -> None:
        for task in [t for t in self.tasks.values() if t.standing is Standing.RUNNING]:
            self.work[task.id] -= 1
            if self.work[task.id] <= 0:
                del self.tasks[task.id]

    def _apply(self, decision: object, number: int) -> None:
        match decision:
            case Start(task=task, nodes=placed, priority=level):
                self.tasks[task] = replace(
                    self.tasks[task], standing=Standing.RUNNING, placed=placed,
                    run_priority=level, run_started_at=self.now,
                )  # fmt: skip
            case Suspend(task=task, for_task=for_task):
                self.suspensions.append((self.now, for_task, task))
                self.gone_at[task] = number + self.slowness
                self.tasks[task] = replace(
                    self.tasks[task], standing=Standing.LEAVING, suspended_for=for_task
                )
            case Stop():
                raise AssertionError("nobody is inactive")

    def _check(self) -> None:
        booked = Counter(name for task in self.tasks.values() for name in task.placed)
        assert max(booked.values(), default=0) <= 1, "a node is booked twice"
        for task in self.tasks.values():
            if task.standing is not Standing.QUEUED:
                assert len(task.placed) == task.node_count


arrivals = st.lists(
    st.tuples(
        st.integers(0, 30),  # pass of arrival
        st.integers(1, 4),  # nodes
        st.sampled_from([*LEVELS, Priority.AUTO, Priority.ABOVE_NORMAL]),
        st.sampled_from("uv"),
        st.integers(1, 60),  # passes of work
    ),
    min_size=1,
    max_size=12,
)


@given(arrivals, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_no_node_is_booked_twice_nothing_bounces_and_everything_ends(
    coming: list[tuple[int, int, Priority, str, int]], slowness: int
) -> None:
    world = World(
        nodes(4),
        [(when, queued(i, n, level, user=user)) for i, (when, n, level, user, _) in enumerate(coming, 1)],
        {i: work for i, (*_, work) in enumerate(coming, 1)},
        slowness,
    )  # fmt: skip
    number = 0
    while number <= 30 or world.tasks:
        world.step(number)
        number += 1
        assert number < 3000, f"{len(world.tasks)} tasks never end"
    _nothing_bounces(world)


def _nothing_bounces(world: World) -> None:
    """A suspends B, B suspends A: only when a run has been demoted in between."""
    last: dict[tuple[int, int], float] = {}
    for when, newcomer, victim in world.suspensions:
        back = last.get((victim, newcomer))
        assert back is None or when - back >= DEMOTED_AFTER
        last[newcomer, victim] = when


@given(st.integers(1, 4), st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_a_stream_of_urgent_tasks_suspends_each_victim_once_per_need(count: int, gap: int) -> None:
    """While the nodes of one victim suffice for the stream, nobody else is touched."""
    urgent = [(1 + i * gap, queued(10 + i, count, Priority.HIGH)) for i in range(3)]
    world = World(
        nodes(8),
        [(0, queued(i, 4, Priority.LOW)) for i in (1, 2)] + urgent,
        {1: 50, 2: 50} | {task.id: 1 for _, task in urgent},
        slowness=2,
    )
    for number in range(400):
        world.step(number)
    assert not world.tasks
    assert all(victim in (1, 2) for _, _, victim in world.suspensions)
    assert len(world.suspensions) <= len(urgent)
