"""Which parts a server that leads is made of, and how they are joined: the stories of tasks, and what moves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from hai_backend.auth import run_tokens
from hai_backend.auth.directory import Directory
from hai_backend.config import Settings
from hai_backend.domain.task import Task
from hai_backend.launch.base import Launcher, RankKey
from hai_backend.launch.process import ProcessLauncher
from hai_backend.launch.shared import Shared
from hai_backend.logs.store import LogStore
from hai_backend.loops import measuring
from hai_backend.loops.agent_silence import AgentSilence
from hai_backend.loops.checkpoints import Checkpoints
from hai_backend.loops.clock import Clock
from hai_backend.loops.cluster import Cluster
from hai_backend.loops.expiring import Expiring
from hai_backend.loops.feed import Feed
from hai_backend.loops.hub import Hub
from hai_backend.loops.interruptions import Interruptions
from hai_backend.loops.launching import Launching
from hai_backend.loops.ledger import Ledger
from hai_backend.loops.notifying import Notifying, Terms
from hai_backend.loops.performing import Performer
from hai_backend.loops.plan_check import PlanCheck
from hai_backend.loops.recording import Recording
from hai_backend.loops.scheduling import Scheduling
from hai_backend.loops.service_board import ServiceBoard
from hai_backend.loops.successors import Successors
from hai_backend.loops.timers import Timers
from hai_backend.loops.tunnels import Tunnels
from hai_backend.loops.usage import Usage
from hai_backend.loops.webhooks import Webhooks
from hai_backend.loops.work import Work
from hai_backend.metrics.prometheus import Metrics
from hai_backend.proxy.addresses import Addresses
from hai_backend.reign.following import Following
from hai_backend.sched import Policy
from hai_backend.services.certificates import Certificates
from hai_backend.services.describing import Describing
from hai_backend.services.environment_pinning import EnvironmentPinning
from hai_backend.services.environments import Environments
from hai_backend.services.workspace_pins import WorkspacePins
from hai_backend.services.workspaces import Keeping, Workspaces
from hai_backend.store.base import Store
from hai_backend.tasks import events as ev
from hai_backend.tasks.limits import Limits
from hai_backend.webhooks.posting import post


@dataclass(frozen=True, slots=True)
class Tools:
    """What a reign gets of the process: it lasts longer. Metrics count over all reigns."""

    clock: Clock
    secret: bytes
    metrics: Metrics
    fresh: Callable[[], bool]  # whether this server can know that it leads
    addresses: Addresses | None = None  # of services of tasks, for browsers; None: not served
    certificates: Certificates | None = None  # that browsers are shown


class Rooms:
    """The parts, made and joined; nothing moves yet. Who knows whom is the order of the lines."""

    def __init__(
        self, settings: Settings, store: Store, launcher: Launcher, tools: Tools, *, alone: bool
    ) -> None:
        self.settings, self.tools = settings, tools
        self.store, self.launcher, self.clock = store, launcher, tools.clock
        self.work = Work()
        self.standings = measuring.Standings(tools.metrics)
        self.directory = directory = Directory(store, changed=self._ring)
        self.expiring = Expiring(self.clock, directory.next_expiry, directory.check)
        directory.expiring = self.expiring.hear
        self.hub = Hub()
        self.tunnels = Tunnels(self.hub)
        directory.checking.append(self.tunnels.check)
        self.board = ServiceBoard(self.clock)
        self.logs = LogStore(settings.common / "logs", settings.log_bytes_per_rank, alone=alone)
        self.cluster = Cluster(store, self.clock, changed=self._ring)
        self.shared = Shared(settings.common, settings.kubernetes)
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
            lambda: self.ledger.unfinished(),
            self.directory,
            self.clock,
            Keeping(settings.workspace_bytes, settings.workspace_days * 24 * 3600.0),
        )
        self.pins = WorkspacePins(self.workspaces, self.shared.seen, run_here=self._runs_here)

    def _tell_webhooks(self) -> None:
        self.webhooks = Webhooks(self.store)
        self.notifying = Notifying(
            self.store,
            self.webhooks,
            self.clock,
            post,
            Terms(self.settings.cluster, self.settings.webhook_origins),
            self.work.run,
            self.tools.metrics.told,
        )

    def _keep_tasks(self) -> None:
        """The ledger, and what acts on what it says."""
        root = self.settings.environment_root.resolve()
        describe = Describing(
            self.store, self.directory, self.cluster, self.clock, self.shared, root, self.pins
        )
        self.performer = Performer(
            self.launcher, self.hub, self._mint, self.cluster.nodes().get, describe
        )
        self.checkpoints = Checkpoints(self.clock)
        self.interruptions = Interruptions()
        self._limits = Limits(build_within=self.settings.build_seconds)
        self.ledger = Ledger(
            self.store,
            self.clock,
            Feed(),
            perform=self.performer.perform,
            changed=self._changed,
            limits=self._limits,
            recall=self.checkpoints.recall,
            noticed=self.notifying.noticed,
        )
        self.performer.ledger = self.checkpoints.ledger = self.ledger
        self.cluster.suspend_on = self.ledger.suspend_on
        self.usage = Usage(self.store, self.ledger, self.cluster, self.clock)
        self.environments = Environments(
            root,
            self.store,
            self.directory,
            self.ledger,
            self.clock,
            run_here=self._runs_here,
        )
        self.pinning = EnvironmentPinning(
            self.environments,
            visible=self.shared.sees(root),
            copies=self.settings.copies_of_environments,
            copies_bytes=self.settings.environment_copies_bytes,
        )

    def _move_tasks(self) -> None:
        """What tells the ledger what shall happen: plans, the launcher, and time."""
        quota = self.settings.default_quota
        self.policy = Policy(default_quota=None if quota < 0 else quota)
        self.scheduling = Scheduling(
            self.ledger,
            self.cluster,
            self.directory,
            self.clock,
            self.policy,
            resync=self.settings.resync_seconds,
            passed=self._passed,
            recorder=self._recorder(),
            plan_check=PlanCheck(self.policy, self.tools.metrics),
        )
        self.checkpoints.saved = self.scheduling.saved
        self.launching = Launching(self.launcher, self.ledger, self.cluster, self.performer)
        self.timers = Timers(self.clock, self._tick, self._limits, waits=True)
        self.agent_silence = AgentSilence(
            self.ledger,
            self.clock,
            self.work.run,
            silent_after=self.settings.timing.silent_after,
            return_within=self._limits.return_within,
            count=self.tools.metrics.silent_agents,
        )
        self.successors = Successors(self.ledger, self.work.run)

    def _following(self) -> Following:
        return Following(
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
            performer=self.performer,
            pinning=self.pinning,
            pins=self.pins,
            successors=self.successors,
            notifying=self.notifying,
            clock=self.clock,
        )

    def _recorder(self) -> Recording | None:
        if not self.settings.record_decisions:
            return None
        path = self.settings.home / "decisions.jsonl"
        return Recording(path, self.policy, version("hai-platform"))

    def _mint(self, key: RankKey) -> str:
        return run_tokens.make(self.tools.secret, key.task_id, key.run, key.rank)

    def _ring(self) -> None:
        self.scheduling.bell.ring()

    def _passed(self, seconds: float) -> None:
        self.tools.metrics.passed(seconds)
        self.standings.show(self.cluster.nodes().values(), self.cluster.feed.version)

    def _changed(self, before: Task | None, task: Task) -> None:
        self.following.changed(before, task)

    def _tick(self, task_id: int, run: int, deadline: float) -> None:
        self.work.run(self._ticked(task_id, ev.Ticked(run, deadline)))

    async def _ticked(self, task_id: int, event: ev.Ticked) -> None:
        await self.ledger.insist(task_id, event)
