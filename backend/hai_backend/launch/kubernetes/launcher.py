"""The launcher of a Kubernetes cluster. It passes changes from the watches to `Ranks` and executes the actions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import structlog

from hai.client.connection.cancellation import error_of
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.gpu import GpuState
from hai_backend.kube_cache.cache import Change
from hai_backend.kube_cache.nodes import ObservedNode
from hai_backend.kube_cache.source import ADDED, MODIFIED, Body
from hai_backend.launch.base import (
    KillRequest,
    LauncherEvent,
    LaunchFailed,
    NodeList,
    RankKey,
    RankLaunch,
    RankList,
)
from hai_backend.launch.kubernetes.api import Api, Transport
from hai_backend.launch.kubernetes.checkpoint_writers import CheckpointWriters
from hai_backend.launch.kubernetes.create import ObjectCreator
from hai_backend.launch.kubernetes.delete import GarbageCollector, PodDeleter
from hai_backend.launch.kubernetes.errors import ApiError
from hai_backend.launch.kubernetes.foreign_pods import ForeignPod, NodeReserve
from hai_backend.launch.kubernetes.nodes import Nodes, Timeouts
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.pods import ObservedPod
from hai_backend.launch.kubernetes.ranks import (
    Action,
    DeleteOwner,
    DeletePod,
    Ranks,
    Report,
    Run,
    WriteCheckpoints,
)
from hai_backend.launch.kubernetes.watches import ClusterWatches, PodWarning
from hai_backend.launch.manifests.settings import ClusterSettings

log = structlog.get_logger(__name__)
_BATCH_SECONDS = 0.2  # changes of nodes within this time are reported together


class KubernetesLauncher:
    """Implements launch.base.Launcher with pods."""

    name = "kubernetes"

    def __init__(
        self,
        transport: Transport,
        cluster: ClusterSettings,
        options: Options,
        random: Random | None = None,
    ) -> None:
        random = random or Random()
        reserve = NodeReserve(
            *(cluster.reserved_cpus, cluster.reserved_memory_bytes),
            *(cluster.gpu_resource, cluster.mig_resource),
        )
        timeouts = Timeouts(
            options.lost_after,
            cluster.fence_after,
            transient_failure=options.trouble_within,
            reserve=reserve,
        )
        self._api = Api(transport, cluster.namespace, random)
        self._nodes = Nodes(timeouts)
        self._ranks = Ranks(self._nodes, timeouts, staging=bool(cluster.staging_path))
        self._collector = GarbageCollector(self._api, cluster, self._ranks.is_needed)
        self._creator = ObjectCreator(
            self._api,
            cluster,
            self._pod_created,
            self._creation_failed,
            self._collector.owner_created,
        )
        self._deleter = PodDeleter(self._api, cluster, options)
        self._watches = ClusterWatches(
            *(self._api, cluster, options, random),
            nodes=self._nodes_changed,
            pods=self._pods_changed,
            foreign=self._foreign_changed,
            warnings=self._warned,
            listed=self._relisted,
        )
        self._writers = (
            CheckpointWriters(self._api, cluster, options, random, self._nodes.uid)
            if cluster.staging_path
            else None
        )
        self._events: asyncio.Queue[LauncherEvent | None] = asyncio.Queue()
        self._work: set[asyncio.Task[None]] = set()
        self._owner_deletions: dict[Run, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_update: asyncio.Handle | None = None
        self._report_timer: asyncio.TimerHandle | None = None
        self._synced = asyncio.Event()  # all nodes and pods are listed
        self._reported_nodes = NodeList(())

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """See Launcher. Return when every pod exists or was reported as failed.

        Waits while the API server is unavailable.
        """
        await self._synced.wait()
        missing = [rank for rank in ranks if rank.key not in self._ranks and self._has_node(rank)]
        if not missing:
            return
        request, key = missing[0].run, missing[0].key
        run = key.task_id, key.run
        self._ranks.creation_begun(run, [(rank.key, rank.node) for rank in missing])
        try:
            if (deletion := self._owner_deletions.get(run)) is not None:
                await asyncio.wait({deletion})
            await self._creator.create_run(request, missing)
        finally:
            self._execute(self._ranks.creation_finished(run))

    async def kill(self, request: KillRequest) -> None:
        """See Launcher."""
        await self._synced.wait()
        self._execute(self._ranks.kill(request, self._now()))

    async def write_checkpoints(self, key: RankKey) -> None:
        """See Launcher."""
        if self._writers is not None:
            self._writers.write(key)
            await self._writers.wait_created([key])

    async def events(self) -> AsyncIterator[LauncherEvent]:
        """See Launcher."""
        launched_runs = await self._start_watches()
        self._synced.set()
        pods = {pod.key for pod in self._watches.pods.values() if pod.key is not None}
        yield self._current_nodes()
        yield RankList(frozenset(pods) | self._ranks.keys(), launched_runs, complete=False)
        while (event := await self._events.get()) is not None:
            yield event

    async def _start_watches(self) -> frozenset[Run]:
        """Start the watches. Return the runs whose launch has begun. Raises Unavailable if access is refused."""
        try:
            await self._watches.start()
            if self._writers is not None:
                self._spawn(self._writers.run())
            return await self._collector.load_owners()
        except ApiError as error:
            message = "the cluster refuses what the server needs of it"
            raise Unavailable(f"{message}, see the roles of the chart: {error}") from error

    async def read_gpus(self) -> Mapping[str, tuple[GpuState, ...]]:
        """See Launcher. Only the agents in the pods see GPUs."""
        return {}

    async def close(self) -> None:
        """See Launcher."""
        for timer in (self._timer, self._timer_update, self._report_timer):
            if timer is not None:
                timer.cancel()
        await self._watches.close()
        for work in list(self._work):
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._api.close()
        self._events.put_nowait(None)

    def _has_node(self, rank: RankLaunch) -> bool:
        if rank.node in self._nodes:
            return True
        reason = f"the cluster has no node {rank.node}"
        self._events.put_nowait(LaunchFailed(rank.key, reason, unschedulable=True))
        return False

    # Observations.

    def _nodes_changed(self, changes: Sequence[Change[ObservedNode]]) -> None:
        observed = [
            (each.name, c.after) for c in changes if (each := c.after or c.before) is not None
        ]
        self._execute(self._ranks.nodes_changed(observed, self._now()))
        self._report_nodes_soon()

    def _foreign_changed(self, changes: Sequence[Change[ForeignPod]]) -> None:
        for change in changes:
            self._nodes.foreign.changed(change.before, change.after)
        self._report_nodes_soon()

    def _report_nodes_soon(self) -> None:
        if self._synced.is_set() and self._report_timer is None:
            loop = asyncio.get_running_loop()
            self._report_timer = loop.call_later(_BATCH_SECONDS, self._report_nodes)

    def _pods_changed(self, changes: Iterable[Change[ObservedPod]]) -> None:
        relevant = [
            (change.uid, change.after)
            for change in changes
            if not (
                change.before is not None and change.before.finished and change.after is not None
            )
        ]  # the end of a finished pod is already reported
        self._execute(self._ranks.pods_changed(relevant, self._now()))

    def _warned(self, changes: Sequence[Change[PodWarning]]) -> None:
        for change in changes:
            if change.after is not None and change.after[1] is not None:
                self._ranks.pod_warned(*change.after, self._now())  # type: ignore[arg-type]
        self._set_timer()

    def _relisted(self) -> None:
        self._spawn(self._collector.collect())

    def _pod_created(self, key: RankKey, body: Body) -> None:
        """Process a pod that was created. The watch may already have shown it."""
        self._pod_observed(key, ADDED, body)

    def _pod_observed(self, key: RankKey, kind: str, body: Body) -> None:
        """Process a pod from the response to a request, as if it were a change from the watch."""
        change = self._watches.pods.apply_change(kind, body)
        uid = body["metadata"]["uid"]
        if change is not None:
            self._pods_changed([change])
        cached = self._watches.pods.get(uid)
        if cached is None:
            self._execute(self._ranks.pod_missing(key, self._now()))
        elif change is None or self._ranks.has_no_pod(
            key
        ):  # the rank was killed again after its pod had finished
            self._execute(self._ranks.pod_changed(uid, cached, self._now()))

    def _creation_failed(self, key: RankKey, reason: str) -> None:
        self._execute(self._ranks.creation_failed(key, reason))

    # Actions.

    def _execute(self, actions: Iterable[Action]) -> None:
        """Report events, and begin deletions in the background."""
        for action in actions:
            match action:
                case Report(event):
                    if isinstance(event, LaunchFailed) and event.unschedulable:
                        self._report_nodes()  # first, so that the scheduler does not choose the node again
                    self._events.put_nowait(event)
                case WriteCheckpoints(key):
                    if self._writers is not None:
                        self._writers.write(key)
                case DeletePod():
                    self._spawn(self._delete_pod(action))
                case DeleteOwner(run):
                    self._owner_deletions[run] = deletion = self._spawn(self._delete_owner(run))
                    deletion.add_done_callback(self._forget_deletion(run))
        self._set_timer()

    def _forget_deletion(self, run: Run) -> Callable[[asyncio.Task[None]], None]:
        def forget(deletion: asyncio.Task[None]) -> None:
            if self._owner_deletions.get(run) is deletion:
                del self._owner_deletions[run]

        return forget

    async def _delete_owner(self, run: Run) -> None:
        if self._writers is not None:
            await self._writers.wait_created(self._writers.being_created(run))
        await self._collector.delete_owner(run)

    async def _delete_pod(self, end: DeletePod) -> None:
        if self._writers is not None and not end.force:
            await self._writers.wait_created([end.key])
        body = await self._deleter.delete_pod(end)
        if body is None:
            self._execute(self._ranks.pod_missing(end.key, self._now()))
        else:
            self._pod_observed(end.key, MODIFIED, body)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work_ended)
        return task

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if (error := error_of(task)) is not None:
            log.error("a change of the cluster failed", why=repr(error))

    def _set_timer(self) -> None:
        """Set the timer at most once per iteration of the event loop: a thousand ranks may be killed at once."""
        if self._timer_update is None:
            self._timer_update = asyncio.get_running_loop().call_soon(self._set_timer_now)

    def _set_timer_now(self) -> None:
        """Set the timer to the next time at which the state of a rank or node changes without an event."""
        self._timer_update = None
        deadlines = (at for at in self._nodes.deadlines() if at > self._now())
        due = min(self._ranks.due(), *deadlines, math.inf)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due < math.inf:
            self._timer = asyncio.get_running_loop().call_at(due + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._execute(self._ranks.tick(self._now()))
        self._report_nodes()

    def _report_nodes(self) -> None:
        self._report_timer = None
        reported = self._reported_nodes
        if self._synced.is_set() and self._current_nodes() != reported:
            self._events.put_nowait(self._reported_nodes)

    def _current_nodes(self) -> NodeList:
        self._reported_nodes = NodeList(self._nodes.now(self._now()))
        return self._reported_nodes

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
