"""One sampled future of a node group: existing tasks with random remaining run times, and random arrivals.

Remaining run times are drawn from the history of the kind of task, given how long the task has run. An error of the
history concerns many tasks at once. So the draws of one future deviate in the same direction, and each future uses
either the whole history or only its newest part. Arrivals repeat periods of the last days at the same time of day, so
that bursts of submissions stay bursts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from random import Random
from statistics import NormalDist

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, SchedulingState, Snapshot
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.group_policy import resolve_policy
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.precedence import task_kind
from hai_backend.sim.replay.virtual_cluster import SimulatedTask, VirtualCluster

# spread of the draws of a future, and of a task within it (calibrated: tests/bench/scheduler/bench_forecast)
COMMON_SPREAD, TASK_SPREAD = 1.0, 0.6
# the newest parts of the history that futures use, and the fewest endings in each
NEWEST, FEWEST = (1.0, 0.2, 0.05), 50
DAY, DAYS, STRETCH = 86_400.0, 7, 6 * 3600.0
_LONGEST = 1e7  # seconds; a run time beyond the history
_SUSPEND_SECONDS = 5.0
_NORMAL = NormalDist()
_NOBODY = SchedTask(0, "", "", 0, Priority.AUTO, inf)


@dataclass(frozen=True, slots=True)
class Past:
    """What the futures of a group are sampled from: its current state, its history and its recent arrivals."""

    snapshot: Snapshot
    group: str
    policy: Policy
    history: History  # by which the scheduler orders tasks
    views: tuple[History, ...]  # from which run times are drawn; each future uses one of them
    endings: int
    arrived: tuple[SchedTask, ...]  # in the last DAYS, by submission
    since: float  # start of the recorded arrivals, at least a STRETCH ago: a first rush is not repeated for ever

    @property
    def span(self) -> str:
        """The length of the recorded arrivals as text."""
        seconds = self.snapshot.now - self.since
        return f"{seconds / DAY:.1f} days" if seconds >= DAY else f"{seconds / 3600:.0f} hours"


def past_of(snapshot: Snapshot, policy: Policy, group: str) -> Past:
    """Collect state, history and arrivals of one group."""
    endings = tuple(e for e in snapshot.endings if e.task.group == group and e.seconds >= 0)
    tasks = tuple(task for task in snapshot.tasks if task.group == group)
    views = tuple(_learned(endings[-max(FEWEST, int(part * len(endings))) :]) for part in NEWEST)
    all_tasks = sorted((*tasks, *(e.task for e in endings)), key=lambda t: (t.created_at, t.id))
    first = min((task.created_at for task in all_tasks[:1]), default=snapshot.now)
    since = max(snapshot.now - DAYS * DAY, min(first, snapshot.now - STRETCH))
    arrived = tuple(t for t in all_tasks if since <= t.created_at < snapshot.now)
    alone = replace(snapshot, tasks=tasks, nodes=_free_nodes(snapshot, group), endings=())
    return Past(alone, group, policy, views[0], views, len(endings), arrived, since)


def _learned(endings: Sequence[Ending]) -> History:
    history = History()
    for ending in endings:
        history.learn(task_kind(ending.task), ending.seconds)
    return history


def _free_nodes(snapshot: Snapshot, group: str) -> tuple[Node, ...]:
    """Return the nodes of the group, without nodes that runs of other groups still use."""
    foreign = {name for t in snapshot.tasks if t.group != group for name in t.placed}
    return tuple(n for n in snapshot.nodes if n.group == group and n.name not in foreign)


class Future:
    """A possible continuation of the current state. Equal seeds give equal futures."""

    def __init__(self, past: Past, seed: int) -> None:
        self._past = past
        self._random = Random(seed)
        self._view = past.views[seed % len(past.views)]
        self._lean = COMMON_SPREAD * self._random.gauss(0.0, 1.0)
        self.world = self._world()
        self._arrivals = self._draw_arrivals()
        self._next: tuple[float, SchedTask] = next(self._arrivals, (inf, _NOBODY))

    def step(self) -> bool:
        """Advance to the next event and make a pass. Return False if there are no more events."""
        world = self.world
        while (
            inf > self._next[0] <= min(world.events[0][0] if world.events else inf, world.wake_at)
        ):
            at, task = self._next
            world.schedule_submission(
                SimulatedTask(task, task.node_count, self._draw(task, 0.0)), at
            )
            self._next = next(self._arrivals, (inf, _NOBODY))
        if not world.advance():
            return False
        world.decide()
        return True

    def _world(self) -> VirtualCluster:
        """Return a virtual cluster in the current state of the group."""
        past = self._past
        now = past.snapshot.now
        cache = SchedulerCache(past.policy)
        cache.use_histories({past.group: past.history})
        cache.update_rules(replace(Rules.from_snapshot(past.snapshot), inactive_users=frozenset()))
        cache.update_nodes(past.snapshot.nodes)
        settings = past.snapshot.groups.get(past.group)
        policy = resolve_policy(settings, past.policy) if settings else past.policy
        restart = max(0.0, policy.restart_seconds - _SUSPEND_SECONDS)
        world = VirtualCluster(cache, _SUSPEND_SECONDS, restart, learns=False, now=now)
        for task in past.snapshot.tasks:
            if task.user not in past.snapshot.inactive_users or task.placed:
                self._add_existing(world, task)
        world.decide()
        return world

    def _add_existing(self, world: VirtualCluster, task: SchedTask) -> None:
        """Add a task that exists in the snapshot."""
        world.changed[task.id] = task
        began = world.now if task.run_started_at is None else min(task.run_started_at, world.now)
        ran = world.now - began
        simulated = SimulatedTask(task, task.node_count, self._draw(task, task.run_seconds + ran))
        simulated.suspensions = int(task.run_seconds > 0.0)
        world.simulated_tasks[task.id] = simulated
        match task.standing:
            case SchedulingState.RUNNING:
                simulated.since, simulated.left = began, simulated.left + ran
                world.schedule_end(simulated, world.now + simulated.left - ran)
            case SchedulingState.LEAVING:
                simulated.since = began
                world.schedule_release(simulated, requeue=task.suspended_for != 0)

    def _draw(self, task: SchedTask, age: float) -> float:
        """Draw the remaining run time in seconds of a task of this age."""
        task_draw = TASK_SPREAD * self._random.gauss(0.0, 1.0)
        share = _NORMAL.cdf(self._lean + task_draw)
        return min(_LONGEST, self._view.curve(task_kind(task)).remaining(age, share))

    def _draw_arrivals(self) -> Iterator[tuple[float, SchedTask]]:
        """Yield submissions, for DAYS at most: one period after the other, each copied from a random day of the past.

        The limit is needed if all tasks were submitted at one moment: then hardly any period contains a submission.
        """
        past, at = self._past, self._past.snapshot.now
        until = at + DAYS * DAY
        times = [task.created_at for task in past.arrived]
        numbers = count(1 + max((t.id for t in (*past.arrived, *past.snapshot.tasks)), default=0))
        while times and at < until:
            length, requeue = self._stretch(at)
            first, end = bisect_left(times, at - requeue), bisect_left(times, at - requeue + length)
            for task in past.arrived[first:end]:
                submit_at = max(past.snapshot.now, task.created_at + requeue)
                yield submit_at, _resubmitted(task, next(numbers), submit_at)
            at += length

    def _stretch(self, at: float) -> tuple[float, float]:
        """Return how long the next period is, and how far back the copied period lies."""
        now, since = self._past.snapshot.now, self._past.since
        if now - since < DAY:
            return STRETCH, at - self._random.uniform(since, now - STRETCH)
        least = -((at + STRETCH - now) // -DAY)
        most = max(least, (at - since) // DAY)
        return STRETCH, DAY * self._random.randint(int(least), int(most))


def _resubmitted(task: SchedTask, number: int, at: float) -> SchedTask:
    """Return the same task as a new submission."""
    return SchedTask(
        id=number,
        user=task.user,
        group=task.group,
        node_count=task.node_count,
        priority=task.priority,
        created_at=at,
        zone=task.zone,
        task_type=task.task_type,
        gpu=task.gpu,
        cpu=task.cpu,
        memory=task.memory,
        name=task.name,
        yields=task.yields,
        restart_seconds=task.restart_seconds,
        save_seconds=task.save_seconds,
    )
