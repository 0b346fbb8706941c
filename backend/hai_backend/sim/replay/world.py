"""A cluster on a virtual clock: everything but the clock, the nodes and the programs is the production scheduler.

The programs are ideal: asked to leave, they are gone after `suspend_seconds` and have saved everything; started again,
they work on after `restart_seconds`. As live, a pass follows each change, and its decisions are carried out at once.
A world may begin empty (a replay) or in the middle of things (a forecast).
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
class Life:
    """A task in the world. Of its work, `left` was not done as of `since`."""

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
class World:
    """`learns`: the scheduler is told of endings, as live; a forecast leaves what it knows as it is."""

    cache: SchedulerCache
    suspend_seconds: float
    restart_seconds: float
    learns: bool = True
    now: float = 0.0
    lives: dict[int, Life] = field(default_factory=dict)
    events: list[tuple[float, int, int, int]] = field(default_factory=list)  # at, kind, task, run
    changed: dict[int, SchedTask] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)
    ended: list[Life] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    held: float = 0.0
    wanted: float = 0.0
    pass_seconds: list[float] = field(default_factory=list)
    wake_at: float = inf

    def submits(self, life: Life, at: float) -> None:
        """A task will be submitted."""
        self.lives[life.task.id] = life
        heappush(self.events, (at, _SUBMIT, life.task.id, 0))

    def ends(self, life: Life, at: float) -> None:
        """Its run will end by itself then, unless it is suspended before."""
        heappush(self.events, (at, _END, life.task.id, life.run))

    def leaves(self, life: Life, *, back: bool = True) -> None:
        """It was asked to leave its nodes just now, and goes back to the queue, or away for good."""
        at = self.now + self.suspend_seconds
        heappush(self.events, (at, _LEFT if back else _END, life.task.id, life.run))

    def advance(self) -> bool:
        """To the next moment at which something happens, and everything that happens then. False: nothing ever does."""
        at = min(self.events[0][0] if self.events else inf, self.wake_at)
        if at == inf:
            return False
        self.now = at
        while self.events and self.events[0][0] <= self.now:
            _, kind, task, run = heappop(self.events)
            life = self.lives[task]
            if run == life.run:
                _HAPPENS[kind](self, life)
        return True

    def decide(self) -> None:
        """One pass, carried out."""
        began = time.perf_counter()
        self.cache.update_tasks(self.changed.values(), self.gone, self.now)
        self.changed.clear()
        self.gone.clear()
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

    def _start(self, life: Life, nodes: tuple[str, ...], level: Priority) -> None:
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
        self.ends(life, self.now + life.starting + life.left)

    def _suspend(self, life: Life, decision: Suspend) -> None:
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
        self.leaves(life)

    def _submitted(self, life: Life) -> None:
        self.changed[life.task.id] = life.task
        self.wanted += life.weight

    def _ended(self, life: Life) -> None:
        seconds = self._leave_nodes(life)
        self.wanted -= life.weight
        self.changed.pop(life.task.id, None)
        self.gone.append(life.task.id)
        if self.learns:
            self.cache.learn((Ending(life.task, seconds),))
        life.finished = self.now
        self.ended.append(life)

    def _left(self, life: Life) -> None:
        seconds = self._leave_nodes(life)
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

    def _leave_nodes(self, life: Life) -> float:
        """Seconds on nodes over all runs."""
        stay = self.now - life.since
        life.held += stay * life.weight
        self.held -= life.weight
        return life.task.run_seconds + stay

    def _set(self, life: Life, **facts: object) -> None:
        life.task = self.changed[life.task.id] = replace(life.task, **facts)  # type: ignore[arg-type]


_SUBMIT, _END, _LEFT = 0, 1, 2
_HAPPENS = {_SUBMIT: World._submitted, _END: World._ended, _LEFT: World._left}
