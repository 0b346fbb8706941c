"""Passes each change of a task to all components that depend on tasks, in a fixed order."""

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
from hai_backend.controllers.cluster.heartbeat_monitor import HeartbeatMonitor
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
from hai_backend.controllers.tasks.save_history import SaveHistory
from hai_backend.domain.task import Task, TaskState
from hai_backend.metrics.prometheus import Metrics


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """The components to notify. None of them may block or raise, because the change is stored already."""

    background: BackgroundTasks
    deadlines: Deadlines
    agent_silence: HeartbeatMonitor
    tunnels: Tunnels
    service_states: ServiceStates
    directory: Directory
    scheduling: SchedulingLoop
    interruptions: Interruptions
    save_history: SaveHistory
    task_counts: TaskCounts
    metrics: Metrics
    connected_agents: ConnectedAgents
    checkpoints: Checkpoints
    executor: Executor
    pinning: EnvironmentPinning
    pins: WorkspacePins
    dependencies: Dependencies
    notifications: Notifications
    clock: Clock

    def changed(self, before: Task | None, task: Task) -> None:
        """Notify all components. `before` is None if the task is new."""
        self.deadlines.set(task)
        self.agent_silence.changed(before, task)
        self.tunnels.follow(task)
        if container_tokens.has_run_ended(before, task):
            delete = partial(container_tokens.delete_tokens, self.directory, task)
            self.background.run(retry_until_stored(delete, "the end of a token", task=task.id))
        self.service_states.follow(task)
        self.scheduling.changed(task)
        self.dependencies.changed(before, task)
        self.notifications.changed(before, task)
        self._count(before, task)
        if task.run is not None and task.state is not TaskState.RUNNING:
            self.connected_agents.forget(task.id, task.run.number)
            self.checkpoints.remove(task.id)
        if task.state is TaskState.FINISHED:
            self._forget(task)
        self.scheduling.wakeup.notify()

    def _count(self, before: Task | None, task: Task) -> None:
        self.interruptions.changed(before, task)
        self.save_history.changed(task)
        self.task_counts.changed(before, task)
        task_metrics.count(self.metrics, before, task, self.clock.now())

    def _forget(self, task: Task) -> None:
        self.executor.remove(task)
        self.pinning.forget(task.id)
        self.pins.finished(task)
