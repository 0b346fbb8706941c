"""Creates the components of a server that leads, and connects them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from hai_backend.api.environments.environments import Environments
from hai_backend.api.environments.pinning import EnvironmentPinning
from hai_backend.api.server.certificates import Certificates
from hai_backend.api.tasks.launch_context import LaunchContext
from hai_backend.api.workspaces.access import WorkspaceLimits, Workspaces
from hai_backend.api.workspaces.pins import WorkspacePins
from hai_backend.auth import tokens
from hai_backend.auth.directory import Directory
from hai_backend.config import Settings
from hai_backend.controllers.aio.background import BackgroundTasks
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.heartbeat_monitor import HeartbeatMonitor
from hai_backend.controllers.cluster.launch import LaunchReconciler
from hai_backend.controllers.cluster.log_delay import LogDelay
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.controllers.metrics import task_metrics
from hai_backend.controllers.metrics.gpus import GpuStates
from hai_backend.controllers.metrics.interruptions import Interruptions
from hai_backend.controllers.metrics.usage import Usage
from hai_backend.controllers.scheduling.decision_log import DecisionLog
from hai_backend.controllers.scheduling.loop import SchedulingLoop
from hai_backend.controllers.scheduling.plan_check import PlanCheck
from hai_backend.controllers.tasks.checkpoints import Checkpoints
from hai_backend.controllers.tasks.deadlines import Deadlines
from hai_backend.controllers.tasks.dependencies import Dependencies
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.expiry import Expiry
from hai_backend.controllers.tasks.notifications import DeliveryPolicy, Notifications
from hai_backend.controllers.tasks.save_history import SaveHistory
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.controllers.tasks.webhooks import Webhooks
from hai_backend.domain.task import Task
from hai_backend.launch.base import Launcher, RankKey
from hai_backend.launch.local_launcher import ProcessLauncher
from hai_backend.launch.shared_dirs import SharedDirectories
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.limits import Limits
from hai_backend.logs.store import LogStore
from hai_backend.metrics.prometheus import Metrics
from hai_backend.proxy.addresses import Addresses
from hai_backend.scheduler import Policy
from hai_backend.server.leader.task_changes import TaskChanges
from hai_backend.store.base import Store
from hai_backend.webhooks.delivery import post


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """Values that all leaders of a process use, one after another. Metrics are therefore not reset by a new leader."""

    clock: Clock
    run_token_key: bytes
    metrics: Metrics
    is_certain_leader: Callable[[], bool]  # see election.roles.Election.is_certain
    # addresses of services of tasks; None if the server has no port for browsers
    addresses: Addresses | None = None
    certificates: Certificates | None = None  # None without TLS


class Components:
    """The components of a leader. They do nothing before `Leader.load`. A component is created after those it uses."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        launcher: Launcher,
        context: ProcessContext,
        *,
        alone: bool,
    ) -> None:
        self.settings, self.context = settings, context
        self.store, self.launcher, self.clock = store, launcher, context.clock
        self.background = BackgroundTasks()
        self.task_counts = task_metrics.TaskCounts(context.metrics)
        self.directory = directory = Directory(store, changed=self._wake_scheduler)
        self.expiry = Expiry(self.clock, directory.next_expiry, directory.check)
        directory.on_expiry = self.expiry.expires_at
        self.connected_agents = ConnectedAgents()
        self.tunnels = Tunnels(self.connected_agents)
        directory.checks.append(self.tunnels.check)
        self.service_states = ServiceStates(self.clock)
        self.logs = LogStore(settings.common / "logs", settings.log_bytes_per_rank, alone=alone)
        self.log_delay = LogDelay(
            self.connected_agents, lambda: self.task_manager.unfinished(), self.logs.is_followed
        )
        self.cluster = Cluster(store, self.clock, changed=self._wake_scheduler)
        self.shared_directories = SharedDirectories(settings.common, settings.kubernetes)
        self._create_workspaces()
        self._create_notifications()
        self._create_task_manager()
        self._create_schedulers()
        self.task_changes = self._create_task_changes()

    @property
    def _ranks_are_local(self) -> bool:
        """Whether ranks are processes of this machine and can use only its directories."""
        return isinstance(self.launcher, ProcessLauncher)

    def _create_workspaces(self) -> None:
        settings = self.settings
        self.workspaces = Workspaces(
            settings.common / "workspaces",
            lambda: self.task_manager.unfinished(),
            self.directory,
            self.clock,
            self.store.add_audit,
            WorkspaceLimits(settings.workspace_bytes, settings.workspace_days * 24 * 3600.0),
        )
        self.pins = WorkspacePins(
            self.workspaces, self.shared_directories.path_in_rank, run_here=self._ranks_are_local
        )

    def _create_notifications(self) -> None:
        self.webhooks = Webhooks(self.store)
        self.notifications = Notifications(
            self.store,
            self.webhooks,
            self.clock,
            post,
            DeliveryPolicy(self.settings.cluster, self.settings.webhook_origins),
            self.background.run,
            self.context.metrics.webhook_request,
        )

    def _create_task_manager(self) -> None:
        """Create the task manager, the executor of its instructions, and the components that read its tasks."""
        root = self.settings.environment_root.resolve()
        launch_context = LaunchContext(
            self.store,
            self.directory,
            self.cluster,
            self.clock,
            self.shared_directories,
            root,
            self.pins,
            self.settings.durable,
            self.settings.save_within_max,
        )
        self.executor = Executor(
            self.launcher,
            self.connected_agents,
            self._make_run_token,
            self.cluster.nodes().get,
            launch_context,
        )
        self.checkpoints = Checkpoints(self.clock)
        self.interruptions = Interruptions()
        self.save_history = SaveHistory(self.store)
        self._limits = Limits(
            build_within=self.settings.build_seconds,
            save_within_max=self.settings.save_within_max,
        )
        self.task_manager = TaskManager(
            self.store,
            self.clock,
            ChangeFeed(),
            perform=self.executor.perform,
            changed=self._task_changed,
            limits=self._limits,
            with_unsaved=self.checkpoints.with_unsaved,
            notices=self.notifications.notices_of,
        )
        self.executor.task_manager = self.checkpoints.task_manager = self.task_manager
        self.cluster.suspend_on = self.task_manager.suspend_on
        self.usage = Usage(self.store, self.task_manager, self.cluster, self.clock)
        self.gpus = GpuStates(self.launcher, self.cluster, self.clock)
        self.environments = Environments(
            root,
            self.store,
            self.directory,
            self.task_manager,
            self.clock,
            run_here=self._ranks_are_local,
        )
        self.pinning = EnvironmentPinning(
            self.environments,
            visible=self.shared_directories.is_visible(root),
            copies=self.settings.copies_of_environments,
            copies_bytes=self.settings.environment_copies_bytes,
        )

    def _create_schedulers(self) -> None:
        """Create the components that send events to the task manager.

        These are the scheduling loop, the launch reconciler, timers and others.
        """
        quota = self.settings.default_quota
        self.policy = Policy(default_quota=None if quota < 0 else quota)
        self.scheduling = SchedulingLoop(
            self.task_manager,
            self.cluster,
            self.directory,
            self.clock,
            self.policy,
            resync=self.settings.resync_seconds,
            observe_pass=self._observe_pass,
            recorder=self._create_decision_log(),
            plan_check=PlanCheck(self.policy, self.context.metrics),
        )
        self.checkpoints.saved = self.scheduling.saved
        self.launch_reconciler = LaunchReconciler(
            self.launcher, self.task_manager, self.cluster, self.executor
        )
        self.launch_reconciler.record_written = self.checkpoints.report_written
        self.deadlines = Deadlines(self.clock, self._on_deadline, self._limits, paused=True)
        self.agent_silence = HeartbeatMonitor(
            self.task_manager,
            self.clock,
            self.background.run,
            silent_after=self.settings.timing.silent_after,
            return_within=self._limits.return_within,
            count=self.context.metrics.silent_agents,
        )
        self.dependencies = Dependencies(self.task_manager, self.background.run)

    def _create_task_changes(self) -> TaskChanges:
        return TaskChanges(
            background=self.background,
            deadlines=self.deadlines,
            agent_silence=self.agent_silence,
            tunnels=self.tunnels,
            service_states=self.service_states,
            directory=self.directory,
            scheduling=self.scheduling,
            interruptions=self.interruptions,
            save_history=self.save_history,
            task_counts=self.task_counts,
            metrics=self.context.metrics,
            connected_agents=self.connected_agents,
            checkpoints=self.checkpoints,
            executor=self.executor,
            pinning=self.pinning,
            pins=self.pins,
            dependencies=self.dependencies,
            notifications=self.notifications,
            clock=self.clock,
        )

    def _create_decision_log(self) -> DecisionLog | None:
        if not self.settings.record_decisions:
            return None
        path = self.settings.home / "decisions.jsonl"
        return DecisionLog(path, self.policy, version("hai-platform"))

    def _make_run_token(self, key: RankKey) -> str:
        return tokens.run_token(self.context.run_token_key, key.task_id, key.run, key.rank)

    def _wake_scheduler(self) -> None:
        self.scheduling.wakeup.notify()

    def _observe_pass(self, seconds: float) -> None:
        self.context.metrics.passed(seconds)
        self.task_counts.show(self.cluster.nodes().values(), self.cluster.feed.version)

    def _task_changed(self, before: Task | None, task: Task) -> None:
        self.task_changes.changed(before, task)

    def _on_deadline(self, task_id: int, run: int, deadline: float) -> None:
        self.background.run(self.apply_later(task_id, ev.Ticked(run, deadline)))

    async def apply_later(self, task_id: int, event: ev.Event) -> None:
        """Apply an event as soon as the store is available. Background tasks run this coroutine."""
        await self.task_manager.apply_when_stored(task_id, event)
