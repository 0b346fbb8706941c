"""What follows when a task has changed: every part that follows tasks hears of it here, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hai_backend.auth import container_tokens
from hai_backend.auth.directory import Directory
from hai_backend.domain.task import Task, TaskState
from hai_backend.loops import measuring
from hai_backend.loops.agent_silence import AgentSilence
from hai_backend.loops.checkpoints import Checkpoints
from hai_backend.loops.clock import Clock
from hai_backend.loops.hub import Hub
from hai_backend.loops.insisting import insisted
from hai_backend.loops.interruptions import Interruptions
from hai_backend.loops.measuring import Standings
from hai_backend.loops.notifying import Notifying
from hai_backend.loops.performing import Performer
from hai_backend.loops.scheduling import Scheduling
from hai_backend.loops.service_board import ServiceBoard
from hai_backend.loops.successors import Successors
from hai_backend.loops.timers import Timers
from hai_backend.loops.tunnels import Tunnels
from hai_backend.loops.work import Work
from hai_backend.metrics.prometheus import Metrics
from hai_backend.services.environment_pinning import EnvironmentPinning
from hai_backend.services.workspace_pins import WorkspacePins


@dataclass(frozen=True, slots=True)
class Following:
    """Those who follow. None of them may block or raise: the change is durable already."""

    work: Work
    timers: Timers
    agent_silence: AgentSilence
    tunnels: Tunnels
    board: ServiceBoard
    directory: Directory
    scheduling: Scheduling
    interruptions: Interruptions
    standings: Standings
    metrics: Metrics
    hub: Hub
    checkpoints: Checkpoints
    performer: Performer
    pinning: EnvironmentPinning
    pins: WorkspacePins
    successors: Successors
    notifying: Notifying
    clock: Clock

    def changed(self, before: Task | None, task: Task) -> None:
        """`before` is None when the task is new."""
        self.timers.set(task)
        self.agent_silence.changed(before, task)
        self.tunnels.follow(task)
        if container_tokens.over(before, task):
            delete = partial(container_tokens.delete, self.directory, task)
            self.work.run(insisted(delete, "the end of a token", task=task.id))
        self.board.follow(task)
        self.scheduling.changed(task)
        self.successors.changed(before, task)
        self.notifying.changed(before, task)
        self._count(before, task)
        if task.run is not None and task.state is not TaskState.RUNNING:
            self.hub.forget(task.id, task.run.number)
            self.checkpoints.forget(task.id)
        if task.state is TaskState.FINISHED:
            self._forget(task)
        self.scheduling.bell.ring()

    def _count(self, before: Task | None, task: Task) -> None:
        self.interruptions.changed(before, task)
        self.standings.changed(before, task)
        measuring.count(self.metrics, before, task, self.clock.now())

    def _forget(self, task: Task) -> None:
        self.performer.forget(task)
        self.pinning.forget(task.id)
        self.pins.finished(task)
