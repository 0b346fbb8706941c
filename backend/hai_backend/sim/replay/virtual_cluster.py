"""A virtual cluster: the production scheduler with simulated time, nodes and programs.

Programs are ideal. A suspended program frees its nodes after `suspend_seconds`, or after the time that its last saves
took if that is longer, and loses no work. A restarted program makes progress again after `restart_seconds`. As in
production, a pass follows each change, and its decisions are applied at once. A virtual cluster begins empty (replay)
or with running tasks (forecast).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension, add_suspension
from hai_backend.domain.scheduling.plan import Plan, Start, Suspend
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, SchedulingState
from hai_backend.scheduler import SchedulerCache
from hai_backend.sim.replay.job import Usage


@dataclass(slots=True)
class SimulatedTask:
    """A task and its simulated state. At `since`, `left` seconds of work remained."""

    task: SchedTask
    weight: float  # nodes that the task uses while it runs; parts of nodes count as parts
    left: float
    since: float = 0.0
    first_start: float = -1.0
    finished: float = -1.0
    starting: float = 0.0  # seconds at the start of this run without progress
    suspensions: int = 0
    node_seconds: float = 0.0
    run: int = 0


@dataclass(slots=True)
class VirtualCluster:
    """A cluster. With `learns`, the scheduler learns from ended tasks. Forecasts do not change the history."""

    cache: SchedulerCache
    suspend_seconds: float
    restart_seconds: float
    learns: bool = True
    now: float = 0.0
    simulated_tasks: dict[int, SimulatedTask] = field(default_factory=dict)
    events: list[tuple[float, int, int, int]] = field(default_factory=list)  # at, kind, task, run
    changed: dict[int, SchedTask] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    ended: list[SimulatedTask] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    used_nodes: float = 0.0
    requested_nodes: float = 0.0
    pass_seconds: list[float] = field(default_factory=list)
    wake_at: float = inf

    def schedule_submission(self, simulated: SimulatedTask, at: float) -> None:
        """Submit the task at this time."""
        self.simulated_tasks[simulated.task.id] = simulated
        heappush(self.events, (at, _SUBMIT, simulated.task.id, 0))

    def schedule_end(self, simulated: SimulatedTask, at: float) -> None:
        """End the run at this time unless it is suspended before."""
        heappush(self.events, (at, _END, simulated.task.id, simulated.run))

    def schedule_release(self, simulated: SimulatedTask, *, requeue: bool = True) -> None:
        """Free the nodes of the task after `suspend_seconds`, or when it has saved; then requeue or end it."""
        at = self.now + max(self.suspend_seconds, simulated.task.save_seconds)
        heappush(self.events, (at, _LEFT if requeue else _END, simulated.task.id, simulated.run))

    def advance(self) -> bool:
        """Go to the time of the next event, and handle all events of that time. Return False if there are none."""
        at = min(self.events[0][0] if self.events else inf, self.wake_at)
        if at == inf:
            return False
        self.now = at
        while self.events and self.events[0][0] <= self.now:
            _, kind, task, run = heappop(self.events)
            simulated = self.simulated_tasks[task]
            if run == simulated.run:
                _HANDLERS[kind](self, simulated)
        return True

    def decide(self) -> None:
        """Make one pass and apply its decisions."""
        began = time.perf_counter()
        self.cache.update_tasks(self.changed.values(), self.removed, self.now)
        self.changed.clear()
        self.removed.clear()
        plan = self.cache.decide(self.now)
        self.pass_seconds.append(time.perf_counter() - began)
        self.wake_at = inf if plan.wake_at is None else plan.wake_at
        self._apply(plan)
        self.usage.append(Usage(self.now, self.used_nodes, self.requested_nodes))

    def _apply(self, plan: Plan) -> None:
        for decision in plan.decisions:
            match decision:
                case Start(task=task, nodes=nodes, priority=level):
                    self._start(self.simulated_tasks[task], nodes, level)
                case Suspend(task=task):
                    self._suspend(self.simulated_tasks[task], decision)
                case _:
                    raise AssertionError(f"nobody waits for {decision}")

    def _start(self, simulated: SimulatedTask, nodes: tuple[str, ...], level: Priority) -> None:
        simulated.run += 1
        simulated.since = self.now
        simulated.starting = self.restart_seconds if simulated.suspensions else 0.0
        if simulated.first_start < 0:
            simulated.first_start = self.now
        self._set(
            simulated,
            standing=SchedulingState.RUNNING,
            placed=nodes,
            run_priority=level,
            run_started_at=self.now,
        )
        self.used_nodes += simulated.weight
        self.schedule_end(simulated, self.now + simulated.starting + simulated.left)

    def _suspend(self, simulated: SimulatedTask, decision: Suspend) -> None:
        simulated.left -= max(0.0, self.now - simulated.since - simulated.starting)
        simulated.run += 1
        simulated.suspensions += 1
        new = Suspension(self.now, decision.for_task, decision.higher)
        self._set(
            simulated,
            standing=SchedulingState.LEAVING,
            suspended_for=decision.for_task,
            suspensions=add_suspension(simulated.task.suspensions, new),
        )
        self.schedule_release(simulated)

    def _on_submitted(self, simulated: SimulatedTask) -> None:
        self.changed[simulated.task.id] = simulated.task
        self.requested_nodes += simulated.weight

    def _on_ended(self, simulated: SimulatedTask) -> None:
        seconds = self._release_nodes(simulated)
        self.requested_nodes -= simulated.weight
        self.changed.pop(simulated.task.id, None)
        self.removed.append(simulated.task.id)
        if self.learns:
            self.cache.learn((Ending(simulated.task, seconds),))
        simulated.finished = self.now
        self.ended.append(simulated)

    def _on_left(self, simulated: SimulatedTask) -> None:
        seconds = self._release_nodes(simulated)
        self._set(
            simulated,
            standing=SchedulingState.QUEUED,
            placed=(),
            run_priority=Priority.AUTO,
            run_started_at=None,
            suspended_for=0,
            run_seconds=seconds,
            waiting_since=self.now,
        )

    def _release_nodes(self, simulated: SimulatedTask) -> float:
        """Free the nodes of the task, and return the seconds that it has spent on nodes in all runs."""
        duration = self.now - simulated.since
        simulated.node_seconds += duration * simulated.weight
        self.used_nodes -= simulated.weight
        return simulated.task.run_seconds + duration

    def _set(self, simulated: SimulatedTask, **facts: object) -> None:
        simulated.task = self.changed[simulated.task.id] = replace(simulated.task, **facts)  # type: ignore[arg-type]


_SUBMIT, _END, _LEFT = 0, 1, 2
_HANDLERS = {
    _SUBMIT: VirtualCluster._on_submitted,
    _END: VirtualCluster._on_ended,
    _LEFT: VirtualCluster._on_left,
}
