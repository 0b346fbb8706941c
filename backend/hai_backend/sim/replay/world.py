"""A virtual cluster: the production scheduler with simulated time, nodes and programs.

Programs are ideal: a suspended one frees its nodes after `suspend_seconds` and loses no work; a restarted one makes
progress again after `restart_seconds`. As in production, a pass follows each change, and its decisions are applied at
once. A virtual cluster begins empty (replay) or with running tasks (forecast).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

from hai_backend.domain.goodput_facts import Suspension, suspended
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan, Start, Suspend
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, SchedulingState
from hai_backend.scheduler import SchedulerCache
from hai_backend.sim.replay.job import Usage


@dataclass(slots=True)
class SimulatedTask:
    """A task with its simulated state. `left` seconds of work remained at `since`."""

    task: SchedTask
    weight: float  # nodes' worth that it holds while it runs
    left: float
    since: float = 0.0
    first_start: float = -1.0
    finished: float = -1.0
    starting: float = 0.0  # seconds of this run before it works on
    suspensions: int = 0
    held: float = 0.0
    run: int = 0


@dataclass(slots=True)
class VirtualCluster:
    """`learns`: the scheduler learns from ended tasks, as in production; a forecast keeps its history unchanged."""

    cache: SchedulerCache
    suspend_seconds: float
    restart_seconds: float
    learns: bool = True
    now: float = 0.0
    lives: dict[int, SimulatedTask] = field(default_factory=dict)
    events: list[tuple[float, int, int, int]] = field(default_factory=list)  # at, kind, task, run
    changed: dict[int, SchedTask] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    ended: list[SimulatedTask] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    held: float = 0.0
    wanted: float = 0.0
    pass_seconds: list[float] = field(default_factory=list)
    wake_at: float = inf

    def schedule_submission(self, life: SimulatedTask, at: float) -> None:
        """Submit the task at this time."""
        self.lives[life.task.id] = life
        heappush(self.events, (at, _SUBMIT, life.task.id, 0))

    def schedule_end(self, life: SimulatedTask, at: float) -> None:
        """End the run at this time unless it is suspended before."""
        heappush(self.events, (at, _END, life.task.id, life.run))

    def schedule_release(self, life: SimulatedTask, *, requeue: bool = True) -> None:
        """Free its nodes after `suspend_seconds`; then requeue or end the task."""
        at = self.now + self.suspend_seconds
        heappush(self.events, (at, _LEFT if requeue else _END, life.task.id, life.run))

    def advance(self) -> bool:
        """Go to the time of the next event and handle all events of that time. False: there are none."""
        at = min(self.events[0][0] if self.events else inf, self.wake_at)
        if at == inf:
            return False
        self.now = at
        while self.events and self.events[0][0] <= self.now:
            _, kind, task, run = heappop(self.events)
            life = self.lives[task]
            if run == life.run:
                _HANDLERS[kind](self, life)
        return True

    def decide(self) -> None:
        """Run one pass and apply its decisions."""
        began = time.perf_counter()
        self.cache.update_tasks(self.changed.values(), self.removed, self.now)
        self.changed.clear()
        self.removed.clear()
        plan = self.cache.decide(self.now)
        self.pass_seconds.append(time.perf_counter() - began)
        self.wake_at = inf if plan.wake_at is None else plan.wake_at
        self._apply(plan)
        self.usage.append(Usage(self.now, self.held, self.wanted))

    def _apply(self, plan: Plan) -> None:
        for decision in plan.decisions:
            match decision:
                case Start(task=task, nodes=nodes, priority=level):
                    self._start(self.lives[task], nodes, level)
                case Suspend(task=task):
                    self._suspend(self.lives[task], decision)
                case _:
                    raise AssertionError(f"nobody waits for {decision}")

    def _start(self, life: SimulatedTask, nodes: tuple[str, ...], level: Priority) -> None:
        life.run += 1
        life.since = self.now
        life.starting = self.restart_seconds if life.suspensions else 0.0
        if life.first_start < 0:
            life.first_start = self.now
        self._set(
            life,
            standing=SchedulingState.RUNNING,
            placed=nodes,
            run_priority=level,
            run_started_at=self.now,
        )
        self.held += life.weight
        self.schedule_end(life, self.now + life.starting + life.left)

    def _suspend(self, life: SimulatedTask, decision: Suspend) -> None:
        life.left -= max(0.0, self.now - life.since - life.starting)
        life.run += 1
        life.suspensions += 1
        new = Suspension(self.now, decision.for_task, decision.higher)
        self._set(
            life,
            standing=SchedulingState.LEAVING,
            suspended_for=decision.for_task,
            suspensions=suspended(life.task.suspensions, new),
        )
        self.schedule_release(life)

    def _on_submitted(self, life: SimulatedTask) -> None:
        self.changed[life.task.id] = life.task
        self.wanted += life.weight

    def _on_ended(self, life: SimulatedTask) -> None:
        seconds = self._release_nodes(life)
        self.wanted -= life.weight
        self.changed.pop(life.task.id, None)
        self.removed.append(life.task.id)
        if self.learns:
            self.cache.learn((Ending(life.task, seconds),))
        life.finished = self.now
        self.ended.append(life)

    def _on_left(self, life: SimulatedTask) -> None:
        seconds = self._release_nodes(life)
        self._set(
            life,
            standing=SchedulingState.QUEUED,
            placed=(),
            run_priority=Priority.AUTO,
            run_started_at=None,
            suspended_for=0,
            run_seconds=seconds,
            waiting_since=self.now,
        )

    def _release_nodes(self, life: SimulatedTask) -> float:
        """Free its nodes; returns the seconds it spent on nodes over all runs."""
        duration = self.now - life.since
        life.held += duration * life.weight
        self.held -= life.weight
        return life.task.run_seconds + duration

    def _set(self, life: SimulatedTask, **facts: object) -> None:
        life.task = self.changed[life.task.id] = replace(life.task, **facts)  # type: ignore[arg-type]


_SUBMIT, _END, _LEFT = 0, 1, 2
_HANDLERS = {
    _SUBMIT: VirtualCluster._on_submitted,
    _END: VirtualCluster._on_ended,
    _LEFT: VirtualCluster._on_left,
}
