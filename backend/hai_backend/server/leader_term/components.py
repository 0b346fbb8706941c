"""Which parts a server that leads is made of, and how they are joined: the stories of tasks, and what moves them."""

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
from hai_backend.controllers.cluster.heartbeat_monitor import AgentSilence
from hai_backend.controllers.cluster.launch import LaunchReconciler
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.controllers.metrics import task_metrics
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
from hai_backend.server.leader_term.task_changes import TaskChanges
from hai_backend.store.base import Store
from hai_backend.webhooks.delivery import post


@dataclass(frozen=True, slots=True)
class Tools:
    """What a leader term gets of the process, which lasts longer. Metrics count over all terms."""

    clock: Clock
    secret: bytes
    metrics: Metrics
    fresh: Callable[[], bool]  # whether this server can know that it leads
    addresses: Addresses | None = None  # of services of tasks, for browsers; None: not served
    certificates: Certificates | None = None  # that browsers are shown


class Components:
    """The parts, made and joined; nothing moves yet. Who knows whom is the order of the lines."""

    def __init__(
        self, settings: Settings, store: Store, launcher: Launcher, tools: Tools, *, alone: bool
    ) -> None:
        self.settings, self.tools = settings, tools
        self.store, self.launcher, self.clock = store, launcher, tools.clock
        self.work = BackgroundTasks()
        self.standings = task_metrics.TaskCounts(tools.metrics)
        self.directory = directory = Directory(store, changed=self._ring)
        self.expiring = Expiry(self.clock, directory.next_expiry, directory.check)
        directory.on_expiry = self.expiring.expires_at
        self.hub = ConnectedAgents()
        self.tunnels = Tunnels(self.hub)
        directory.checks.append(self.tunnels.check)
        self.board = ServiceStates(self.clock)
        self.logs = LogStore(settings.common / "logs", settings.log_bytes_per_rank, alone=alone)
        self.cluster = Cluster(store, self.clock, changed=self._ring)
        self.shared = SharedDirectories(settings.common, settings.kubernetes)
        self._keep_files()
        self._tell_webhooks()
        self._keep_tasks()
        self._move_tasks()
        self.following = self._following()

    @property
    def _runs_here(self) -> bool:
        """Whether ranks are processes of this machine: a directory that is not here is nowhere."""
        return isinstance(self.launcher, ProcessLauncher)

    def _keep_files(self) -> None:
        """Workspaces and environments; tasks name both."""
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
            self.workspaces, self.shared.path_in_rank, run_here=self._runs_here
        )

    def _tell_webhooks(self) -> None:
        self.webhooks = Webhooks(self.store)
        self.notifying = Notifications(
            self.store,
            self.webhooks,
            self.clock,
            post,
            DeliveryPolicy(self.settings.cluster, self.settings.webhook_origins),
            self.work.run,
            self.tools.metrics.webhook_request,
        )

    def _keep_tasks(self) -> None:
        """The ledger, and what acts on what it says."""
        root = self.settings.environment_root.resolve()
        describe = LaunchContext(
            self.store, self.directory, self.cluster, self.clock, self.shared, root, self.pins
        )
        self.executor = Executor(
            self.launcher, self.hub, self._mint, self.cluster.nodes().get, describe
        )
        self.checkpoints = Checkpoints(self.clock)
        self.interruptions = Interruptions()
        self._limits = Limits(build_within=self.settings.build_seconds)
        self.task_manager = TaskManager(
            self.store,
            self.clock,
            ChangeFeed(),
            perform=self.executor.perform,
            changed=self._changed,
            limits=self._limits,
            with_unsaved=self.checkpoints.with_unsaved,
            notices=self.notifying.notices_of,
        )
        self.executor.task_manager = self.checkpoints.task_manager = self.task_manager
        self.cluster.suspend_on = self.task_manager.suspend_on
        self.usage = Usage(self.store, self.task_manager, self.cluster, self.clock)
        self.environments = Environments(
            root,
            self.store,
            self.directory,
            self.task_manager,
            self.clock,
            run_here=self._runs_here,
        )
        self.pinning = EnvironmentPinning(
            self.environments,
            visible=self.shared.is_visible(root),
            copies=self.settings.copies_of_environments,
            copies_bytes=self.settings.environment_copies_bytes,
        )

    def _move_tasks(self) -> None:
        """What tells the ledger what shall happen: plans, the launcher, and time."""
        quota = self.settings.default_quota
        self.policy = Policy(default_quota=None if quota < 0 else quota)
        self.scheduling = SchedulingLoop(
            self.task_manager,
            self.cluster,
            self.directory,
            self.clock,
            self.policy,
            resync=self.settings.resync_seconds,
            observe_pass=self._passed,
            recorder=self._recorder(),
            plan_check=PlanCheck(self.policy, self.tools.metrics),
        )
        self.checkpoints.saved = self.scheduling.saved
        self.launching = LaunchReconciler(
            self.launcher, self.task_manager, self.cluster, self.executor
        )
        self.timers = Deadlines(self.clock, self._tick, self._limits, paused=True)
        self.agent_silence = AgentSilence(
            self.task_manager,
            self.clock,
            self.work.run,
            silent_after=self.settings.timing.silent_after,
            return_within=self._limits.return_within,
            count=self.tools.metrics.silent_agents,
        )
        self.successors = Dependencies(self.task_manager, self.work.run)

    def _following(self) -> TaskChanges:
        return TaskChanges(
            work=self.work,
            timers=self.timers,
            agent_silence=self.agent_silence,
            tunnels=self.tunnels,
            board=self.board,
            directory=self.directory,
            scheduling=self.scheduling,
            interruptions=self.interruptions,
            standings=self.standings,
            metrics=self.tools.metrics,
            hub=self.hub,
            checkpoints=self.checkpoints,
            executor=self.executor,
            pinning=self.pinning,
            pins=self.pins,
            successors=self.successors,
            notifying=self.notifying,
            clock=self.clock,
        )

    def _recorder(self) -> DecisionLog | None:
        if not self.settings.record_decisions:
            return None
        path = self.settings.home / "decisions.jsonl"
        return DecisionLog(path, self.policy, version("hai-platform"))

    def _mint(self, key: RankKey) -> str:
        return tokens.run_token(self.tools.secret, key.task_id, key.run, key.rank)

    def _ring(self) -> None:
        self.scheduling.wakeup.notify()

    def _passed(self, seconds: float) -> None:
        self.tools.metrics.passed(seconds)
        self.standings.show(self.cluster.nodes().values(), self.cluster.feed.version)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.following.changed(before, task)

    def _tick(self, task_id: int, run: int, deadline: float) -> None:
        self.work.run(self._ticked(task_id, ev.Ticked(run, deadline)))

    async def _ticked(self, task_id: int, event: ev.Ticked) -> None:
        await self.task_manager.apply_when_stored(task_id, event)
