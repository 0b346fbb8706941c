"""The launcher of a cluster: what the watches say goes through `Ranks`, and what follows from it is done here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import Any

import structlog

from hai.client.connection.cancellation import error_of
from hai_backend.domain.errors import Unavailable
from hai_backend.launch.base import (
    LauncherEvent,
    LaunchFailed,
    Listed,
    NodesSeen,
    RankKey,
    RankLaunch,
)
from hai_backend.launch.kubernetes.actions import Clean, Do, End, Run, Say
from hai_backend.launch.kubernetes.api import Api
from hai_backend.launch.kubernetes.create import Maker
from hai_backend.launch.kubernetes.delete import Ender, Sweeper
from hai_backend.launch.kubernetes.errors import ApiError
from hai_backend.launch.kubernetes.foreign_pods import ForeignPod, Reserve
from hai_backend.launch.kubernetes.nodes import Nodes, Patience
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.kubernetes.pods import PodSeen
from hai_backend.launch.kubernetes.ranks import Ranks
from hai_backend.launch.kubernetes.transport import Transport
from hai_backend.launch.kubernetes.watches import Warned, Watching
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.watch.cache import Change
from hai_backend.watch.nodes import NodeSeen
from hai_backend.watch.source import ADDED, MODIFIED, Body

log = structlog.get_logger(__name__)
_TOGETHER_SECONDS = 0.2  # changes of nodes within it are told at once


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
        reserve = Reserve(
            *(cluster.reserved_cpus, cluster.reserved_memory_bytes),
            *(cluster.gpu_resource, cluster.mig_resource),
        )
        patience = Patience(
            options.lost_after,
            cluster.fence_after,
            trouble=options.trouble_within,
            reserve=reserve,
        )
        self._api = Api(transport, cluster.namespace, random)
        self._nodes = Nodes(patience)
        self._ranks = Ranks(self._nodes, patience)
        self._sweeper = Sweeper(self._api, cluster, self._ranks.wanted)
        self._maker = Maker(self._api, cluster, self._made, self._not_made, self._sweeper.owned)
        self._ender = Ender(self._api, cluster, options)
        self._watching = Watching(
            *(self._api, cluster, options, random),
            nodes=self._nodes_changed,
            pods=self._pods_changed,
            foreign=self._foreign_changed,
            warnings=self._warned,
            listed=self._relisted,
        )
        self._events: asyncio.Queue[LauncherEvent | None] = asyncio.Queue()
        self._work: set[asyncio.Task[None]] = set()
        self._cleaning: dict[Run, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._setting: asyncio.Handle | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._begun = asyncio.Event()  # before it nobody knows which nodes and pods there are
        self._told = NodesSeen(())

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """See Launcher. Returns when every pod is there or told as failed, however long the API server is away."""
        await self._begun.wait()
        wanted = [rank for rank in ranks if rank.key not in self._ranks and self._has_node(rank)]
        if not wanted:
            return
        request, key = wanted[0].run, wanted[0].key
        run = key.task_id, key.run
        self._ranks.begin(run, [(rank.key, rank.node) for rank in wanted])
        try:
            if (cleaning := self._cleaning.get(run)) is not None:
                await asyncio.wait({cleaning})
            await self._maker.make(request, wanted)
        finally:
            self._do(self._ranks.made(run))

    async def kill(
        self,
        key: RankKey,
        node: str = "",
        *,
        ran: bool = False,
        exited: bool = False,
        preempted: bool = False,
    ) -> None:
        """See Launcher."""
        await self._begun.wait()
        self._do(
            self._ranks.kill(key, node, self._now(), ran=ran, exited=exited, preempted=preempted)
        )

    async def events(self) -> AsyncIterator[LauncherEvent]:
        """See Launcher."""
        begun = await self._begin_to_watch()
        self._begun.set()
        pods = {pod.key for pod in self._watching.pods.values() if pod.key is not None}
        yield self._nodes_now()
        yield Listed(frozenset(pods) | self._ranks.keys(), begun, certain=False)
        while (event := await self._events.get()) is not None:
            yield event

    async def _begin_to_watch(self) -> frozenset[Run]:
        """Runs whose launch had begun."""
        try:
            await self._watching.begin()
            return await self._sweeper.begin()
        except ApiError as error:
            what = "the cluster refuses what the server needs of it"
            raise Unavailable(f"{what}, see the roles of the chart: {error}") from error

    async def close(self) -> None:
        """See Launcher."""
        for timer in (self._timer, self._setting, self._telling):
            if timer is not None:
                timer.cancel()
        await self._watching.close()
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

    # what is seen

    def _nodes_changed(self, changes: Sequence[Change[NodeSeen]]) -> None:
        seen = [(each.name, c.after) for c in changes if (each := c.after or c.before) is not None]
        self._do(self._ranks.nodes(seen, self._now()))
        self._tell_nodes_soon()

    def _foreign_changed(self, changes: Sequence[Change[ForeignPod]]) -> None:
        for change in changes:
            self._nodes.foreign.changed(change.before, change.after)
        self._tell_nodes_soon()

    def _tell_nodes_soon(self) -> None:
        if self._begun.is_set() and self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(_TOGETHER_SECONDS, self._tell_nodes)

    def _pods_changed(self, changes: Iterable[Change[PodSeen]]) -> None:
        news = [
            (change.uid, change.after)
            for change in changes
            if not (change.before is not None and change.before.over and change.after is not None)
        ]  # of a pod that was over everything has been said
        self._do(self._ranks.pods(news, self._now()))

    def _warned(self, changes: Sequence[Change[Warned]]) -> None:
        for change in changes:
            if change.after is not None and change.after[1] is not None:
                self._ranks.warned(*change.after, self._now())  # type: ignore[arg-type]
        self._set_timer()

    def _relisted(self) -> None:
        self._begin(self._sweeper.sweep())

    def _made(self, key: RankKey, body: Body) -> None:
        """The API server shows a pod to us; the watch may have been faster."""
        self._shown(key, ADDED, body)

    def _shown(self, key: RankKey, kind: str, body: Body) -> None:
        change = self._watching.pods.take(kind, body)
        uid = body["metadata"]["uid"]
        if change is not None:
            self._pods_changed([change])
        known = self._watching.pods.get(uid)
        if known is None:
            self._do(self._ranks.missing(key, self._now()))
        elif change is None or self._ranks.unseen(
            key
        ):  # killed again when its pod was over already
            self._do(self._ranks.pod(uid, known, self._now()))

    def _not_made(self, key: RankKey, reason: str) -> None:
        self._do(self._ranks.failed(key, reason))

    # what is done

    def _do(self, todo: Iterable[Do]) -> None:
        for do in todo:
            match do:
                case Say(event):
                    if isinstance(event, LaunchFailed) and event.unschedulable:
                        self._tell_nodes()  # first, so that it is not placed there again
                    self._events.put_nowait(event)
                case End():
                    self._begin(self._end(do))
                case Clean(run):
                    self._cleaning[run] = cleaning = self._begin(self._sweeper.clean(run))
                    cleaning.add_done_callback(self._cleaned(run))
        self._set_timer()

    def _cleaned(self, run: Run) -> Callable[[asyncio.Task[None]], None]:
        def forget(cleaning: asyncio.Task[None]) -> None:
            if self._cleaning.get(run) is cleaning:
                del self._cleaning[run]

        return forget

    async def _end(self, end: End) -> None:
        body = await self._ender.end(end)
        if body is None:
            self._do(self._ranks.missing(end.key, self._now()))
        else:
            self._shown(end.key, MODIFIED, body)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if (error := error_of(task)) is not None:
            log.error("something could not be done in the cluster", why=repr(error))

    def _set_timer(self) -> None:
        """Once for all that is done together: a thousand ranks may be killed in a row."""
        if self._setting is None:
            self._setting = asyncio.get_running_loop().call_soon(self._set_timer_now)

    def _set_timer_now(self) -> None:
        """At the next moment at which time alone changes something."""
        self._setting = None
        turns = (at for at in self._nodes.turns() if at > self._now())
        due = min(self._ranks.due(), *turns, math.inf)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due < math.inf:
            self._timer = asyncio.get_running_loop().call_at(due + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._ranks.tick(self._now()))
        self._tell_nodes()

    def _tell_nodes(self) -> None:
        self._telling = None
        told = self._told
        if self._begun.is_set() and self._nodes_now() != told:
            self._events.put_nowait(self._told)

    def _nodes_now(self) -> NodesSeen:
        self._told = NodesSeen(self._nodes.now(self._now()))
        return self._told

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
