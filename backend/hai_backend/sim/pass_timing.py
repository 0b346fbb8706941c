"""Measures passes of the production scheduler, on a generated cluster of any size or on a snapshot.

`cold_s` is the first pass of an empty cache. `steady_*` are passes after at most 100 changes each, as in production:
tasks end, are submitted and leave, and the decisions of a pass are applied before the next pass. Times are processor
time of one core. Random numbers are seeded, so two calls measure the same work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan, Start, Suspend
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, SchedulingState, Snapshot
from hai_backend.runtime import no_garbage_collection, reduce_garbage_collection
from hai_backend.scheduler import Policy, SchedulerCache

TaskFactory = Callable[[int, Random], SchedTask]
"""Makes a task from a number, which is new for each call, and a random generator."""


def sizes(original: Snapshot) -> Mapping[str, int]:
    """Return the sizes of a snapshot, under the names that --synthetic accepts."""
    waiting = sum(task.standing is SchedulingState.QUEUED for task in original.tasks)
    return {
        "nodes": len(original.nodes),
        "waiting": waiting,
        "running": len(original.tasks) - waiting,
        "users": len({task.user for task in original.tasks}),
        "groups": len({node.group for node in original.nodes}),
    }


def resubmitted(original: Snapshot) -> TaskFactory:
    """Return a factory that makes new tasks from tasks of the snapshot, without their history."""
    newest = max(task.id for task in original.tasks)

    def make_task(number: int, draw: Random) -> SchedTask:
        model = draw.choice(original.tasks)
        return SchedTask(
            id=newest + 1 + number,
            user=model.user,
            group=model.group,
            node_count=model.node_count,
            priority=model.priority,
            created_at=original.now,
            zone=model.zone,
            task_type=model.task_type,
            gpu=model.gpu,
            cpu=model.cpu,
            memory=model.memory,
            name=model.name,
            yields=model.yields,
        )

    return make_task


PASSES = 300
CHANGES = 100
_NOW = 1_000_000.0
_SETTLING = 20  # passes
_SECONDS = 5.0  # between two passes
_LEVELS = (
    Priority.HIGH,
    *[Priority.ABOVE_NORMAL] * 4,
    *[Priority.NORMAL] * 11,
    *[Priority.LOW] * 4,
)
_NODE_COUNTS = (*[1] * 12, *[2] * 4, *[4] * 2, 8, 16)


def time_passes(original: Mapping[str, int] | Snapshot) -> Mapping[str, Any]:
    """Measure passes on a generated cluster of these sizes, or on a snapshot."""
    if isinstance(original, Snapshot):
        return {**sizes(original), **_times(original, resubmitted(original))}
    settings = original
    return {**settings, **_times(snapshot(settings), lambda n, draw: _task(n, draw, settings))}


def _times(original: Snapshot, make_task: TaskFactory) -> Mapping[str, Any]:
    """Return the times of a first pass and of the passes after it."""
    reduce_garbage_collection()  # as the server does
    began = time.process_time()
    with no_garbage_collection():
        cache = SchedulerCache.from_snapshot(original, Policy())
        plan = cache.decide(original.now)
    cold = time.process_time() - began
    times = sorted(_steady(_Workload(make_task, cache, original), plan))
    return {
        "cold_s": cold,
        "steady_p50_ms": times[len(times) // 2] * 1000,
        "steady_p99_ms": times[len(times) * 99 // 100] * 1000,
        "steady_max_ms": times[-1] * 1000,
        "passes": len(times),
        "changes_per_pass": CHANGES,
    }


def snapshot(settings: Mapping[str, int]) -> Snapshot:
    """Return a full cluster with a backlog and some history."""
    draw = Random(1)
    groups = [f"g{i}" for i in range(settings["groups"])]
    nodes = tuple(
        Node(f"n{i:05}", groups[i % len(groups)], gpus=8) for i in range(settings["nodes"])
    )
    tasks = [_task(i, draw, settings) for i in range(settings["running"] + settings["waiting"])]
    past = [_task(0, draw, settings) for _ in range(5000)]
    endings = tuple(Ending(task, draw.lognormvariate(8, 2)) for task in past)
    empty = Snapshot(_NOW, nodes, tuple(tasks), endings=endings)
    return replace(empty, tasks=tuple(_filled(empty, settings["running"], draw)))


def _filled(empty: Snapshot, running: int, draw: Random) -> Iterator[SchedTask]:
    """Yield all tasks. At most `running` of them run, on the nodes that the scheduler has chosen."""
    starts = [
        d
        for d in SchedulerCache.from_snapshot(empty, Policy()).decide(_NOW).decisions
        if isinstance(d, Start)
    ]
    placed = {start.task: start for start in starts[:running]}
    for task in empty.tasks:
        start = placed.get(task.id)
        began = _NOW - draw.random() * 3600
        yield _running(task, start.nodes, start.priority, began) if start else task


def _task(number: int, draw: Random, settings: Mapping[str, int]) -> SchedTask:
    user = draw.randrange(settings["users"])
    # A user works in one or two groups.
    group_number = user if draw.random() < 0.7 else user * 7 + 3
    return SchedTask(
        id=number + 1,
        user=f"u{user}",
        group=f"g{group_number % settings['groups']}",
        node_count=draw.choice(_NODE_COUNTS),
        priority=draw.choice(_LEVELS),
        created_at=_NOW - draw.random() * 50_000,
        name=f"job{user}-{draw.randrange(3)}",
        yields=draw.random() < 0.5,
    )


def _running(task: SchedTask, nodes: tuple[str, ...], level: Priority, now: float) -> SchedTask:
    return replace(
        task, standing=SchedulingState.RUNNING, placed=nodes, run_priority=level, run_started_at=now
    )


@dataclass(slots=True)
class _Workload:
    """A cluster whose tasks start, end and change between passes."""

    make_task: TaskFactory
    cache: SchedulerCache
    original: Snapshot
    draw: Random = field(default_factory=lambda: Random(2))
    running: dict[int, SchedTask] = field(default_factory=dict)
    leaving: dict[int, SchedTask] = field(default_factory=dict)
    waiting: dict[int, SchedTask] = field(default_factory=dict)
    submitted: int = 0

    def __post_init__(self) -> None:
        by_state = {
            SchedulingState.RUNNING: self.running,
            SchedulingState.LEAVING: self.leaving,
            SchedulingState.QUEUED: self.waiting,
        }
        for task in self.original.tasks:
            by_state[task.standing][task.id] = task
        self.submitted = len(self.original.tasks)

    def carry_out(self, plan: Plan, now: float) -> dict[int, SchedTask]:
        """Apply the decisions, and return the changed tasks."""
        changed: dict[int, SchedTask] = {}
        for decision in plan.decisions:
            match decision:
                case Start(task=task, nodes=nodes, priority=level):
                    new = _running(self.waiting.pop(task), nodes, level, now)
                    changed[task] = self.running[task] = new
                case Suspend(task=task, for_task=other):
                    suspended = replace(
                        self.running.pop(task),
                        standing=SchedulingState.LEAVING,
                        suspended_for=other,
                    )
                    changed[task] = self.leaving[task] = suspended
        return changed

    def simulate_changes(self, now: float, limit: int) -> tuple[dict[int, SchedTask], list[int]]:
        """Requeue suspended tasks, end some tasks and submit as many."""
        changed: dict[int, SchedTask] = {}
        for task in list(self.leaving)[:limit]:
            queued = self.leaving.pop(task)
            changed[task] = self.waiting[task] = replace(
                queued,
                standing=SchedulingState.QUEUED,
                placed=(),
                run_started_at=None,
                waiting_since=now,
            )
        ending_count = min(CHANGES, max(0, limit - len(changed))) // 2
        ended = self.draw.sample(sorted(self.running), min(ending_count, len(self.running)))
        self.cache.learn(Ending(self.running.pop(task), 5000.0) for task in ended)
        for number in range(self.submitted, self.submitted + ending_count):
            new = replace(self.make_task(number, self.draw), created_at=now)
            changed[new.id] = self.waiting[new.id] = new
        self.submitted += ending_count
        return changed, ended


def _steady(world: _Workload, plan: Plan) -> list[float]:
    """Return the seconds of each pass. Passes of the warm-up, which suspend many tasks, are not measured."""
    times, now = [], world.original.now
    for number in range(_SETTLING + PASSES):
        changed = world.carry_out(plan, now)
        now += _SECONDS
        limit = max(0, CHANGES - len(changed)) if number >= _SETTLING else len(world.original.tasks)
        more, ended = world.simulate_changes(now, limit)
        began = time.process_time()
        world.cache.update_tasks((changed | more).values(), ended, now)
        plan = world.cache.decide(now)
        times.append(time.process_time() - began)
    return times[_SETTLING:]
