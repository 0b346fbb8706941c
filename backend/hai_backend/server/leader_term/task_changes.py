"""What follows when a task has changed: every part that follows tasks hears of it here, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hai_backend.api.environments.pinning import EnvironmentPinning
from hai_backend.api.workspaces.pins import WorkspacePins
from hai_backend.auth import container_tokens
from hai_backend.auth.directory import Directory
from hai_backend.controllers.aio.background import BackgroundTasks
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.heartbeat_monitor import AgentSilence
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.controllers.metrics import task_metrics
from hai_backend.controllers.metrics.interruptions import Interruptions
from hai_backend.controllers.metrics.task_metrics import TaskCounts
from hai_backend.controllers.scheduling.loop import SchedulingLoop
from hai_backend.controllers.tasks.checkpoints import Checkpoints
from hai_backend.controllers.tasks.deadlines import Deadlines
from hai_backend.controllers.tasks.dependencies import Dependencies
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.notifications import Notifications
from hai_backend.domain.task import Task, TaskState
from hai_backend.metrics.prometheus import Metrics


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """Those who follow. None of them may block or raise: the change is durable already."""

    work: BackgroundTasks
    timers: Deadlines
    agent_silence: AgentSilence
    tunnels: Tunnels
    board: ServiceStates
    directory: Directory
    scheduling: SchedulingLoop
    interruptions: Interruptions
    standings: TaskCounts
    metrics: Metrics
    hub: ConnectedAgents
    checkpoints: Checkpoints
    executor: Executor
    pinning: EnvironmentPinning
    pins: WorkspacePins
    successors: Dependencies
    notifying: Notifications
    clock: Clock

    def changed(self, before: Task | None, task: Task) -> None:
        """`before` is None when the task is new."""
        self.timers.set(task)
        self.agent_silence.changed(before, task)
        self.tunnels.follow(task)
        if container_tokens.has_run_ended(before, task):
            delete = partial(container_tokens.delete_tokens, self.directory, task)
            self.work.run(retry_until_stored(delete, "the end of a token", task=task.id))
        self.board.follow(task)
        self.scheduling.changed(task)
        self.successors.changed(before, task)
        self.notifying.changed(before, task)
        self._count(before, task)
        if task.run is not None and task.state is not TaskState.RUNNING:
            self.hub.forget(task.id, task.run.number)
            self.checkpoints.remove(task.id)
        if task.state is TaskState.FINISHED:
            self._forget(task)
        self.scheduling.wakeup.notify()

    def _count(self, before: Task | None, task: Task) -> None:
        self.interruptions.changed(before, task)
        self.standings.changed(before, task)
        task_metrics.count(self.metrics, before, task, self.clock.now())

    def _forget(self, task: Task) -> None:
        self.executor.remove(task)
        self.pinning.forget(task.id)
        self.pins.finished(task)
