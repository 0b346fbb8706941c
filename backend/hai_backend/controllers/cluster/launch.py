"""What the launcher sees becomes events of tasks; what it does not know any more is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import structlog

from hai.client.cancellation import error_of
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import Conflict, Unavailable
from hai_backend.domain.formatting import listed as in_words
from hai_backend.domain.node import Node
from hai_backend.domain.task import Run, RunState, Task
from hai_backend.launch.base import (
    Launcher,
    LauncherEvent,
    LaunchFailed,
    Listed,
    NodesSeen,
    RankGone,
    RankKey,
    RankLeaving,
)
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import resumed
from hai_backend.lifecycle.instructions import KillRanks

log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 2.0  # until the store is tried again
_NAMED = 3  # ranks, in an error
_MISSING = "it was not there when the server was started again"
_PATIENCE_SECONDS = 60.0  # longer than ranks may save; what is left then is on nodes that are away


class LaunchReconciler:
    """`listed` is set once the first complete list has been taken over: scheduling may begin.

    `newest` is then the newest task of which anything exists. The store may be a backup that does not know it.
    """

    def __init__(
        self,
        launcher: Launcher,
        task_manager: TaskManager,
        cluster: Cluster,
        executor: Executor,
    ) -> None:
        self.listed = asyncio.Event()
        self.newest = 0
        self._launcher = launcher
        self._task_manager = task_manager
        self._cluster = cluster
        self._executor = executor
        self._telling: set[asyncio.Task[object]] = set()
        self._seen: NodesSeen | None = None  # the newest
        self._unwanted: set[RankKey] = set()  # of the list, and not gone yet
        self._cleared = asyncio.Event()

    async def cleared(self) -> None:
        """Return when what no task wants is gone: it is on nodes that look free, and a new run may get its name."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._cleared.wait()

    async def run(self) -> None:
        """For ever. Raises Conflict when what runs cannot be of this database."""
        try:
            async for event in self._launcher.events():
                if isinstance(event, Listed):
                    await self._require_ours(event)
                try:
                    await self._take(event)
                except Exception:
                    log.exception("a launcher event failed", launcher_event=str(event))
        finally:
            for telling in self._telling:
                telling.cancel()

    async def _take(self, event: LauncherEvent) -> None:
        match event:
            case NodesSeen():
                await self._see(event)
            case Listed():
                await self._adopt(event)
                self.listed.set()
            case RankGone(key=key, why=why):
                self._clear({key})
                self._tell(key, ev.RankGone(key.run, key.rank, why))
            case RankLeaving(key=key, why=why):
                await self._give_way(key, why)
            case LaunchFailed(key=key, reason=reason, unschedulable=unschedulable):
                self._tell(key, ev.LaunchFailed(key.run, key.rank, reason, unschedulable))

    async def _require_ours(self, listed: Listed) -> None:
        """A database that never had a task, found beside programs that run, is a wrong one: it must end nothing."""
        if listed.keys and not await self._task_manager.knows_any():
            some = ", ".join(sorted(map(str, listed.keys))[:_NAMED])
            raise Conflict(
                f"the database knows no task at all, but {len(listed.keys)} ranks of tasks run ({some}): is it the "
                "right one, is its disk there? Nothing was ended. To begin anew, end them first: `hai-server --home "
                "DIR --sweep`, or delete the pods",
                reason="WRONG_DATABASE",
            )

    async def _see(self, seen: NodesSeen) -> None:
        """A launcher says it once: what the store does not take is tried again, unless there is something newer."""
        self._seen = seen
        try:
            lost = await self._cluster.seen(seen.nodes)
        except Unavailable as error:
            log.warning("what is seen of nodes waits for the store", why=str(error))
            self._beside(self._see_again(seen))
        else:
            await self._lose(lost)

    async def _see_again(self, seen: NodesSeen) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)
        if seen is self._seen:
            await self._see(seen)

    def _tell(self, key: RankKey, event: ev.Event) -> None:
        """Beside others: what happens to the ranks of one run is then written together."""
        self._beside(self._task_manager.insist(key.task_id, event))

    def _beside(self, work: Coroutine[Any, Any, object]) -> None:
        telling: asyncio.Task[object] = asyncio.ensure_future(work)
        self._telling.add(telling)
        telling.add_done_callback(self._told)

    def _told(self, telling: asyncio.Task[object]) -> None:
        self._telling.discard(telling)
        if (error := error_of(telling)) is not None:
            log.error("a launcher event failed", why=repr(error))

    async def _give_way(self, key: RankKey, why: str) -> None:
        """The whole task saves and leaves: without one rank the others cannot go on."""
        task = self._task_manager.unfinished().get(key.task_id)
        if task is not None and key in _keys(task):
            reason = f"rank {key.rank} on {_node_of(task, key)} is taken away: {why}"
            await self._task_manager.insist(task.id, ev.SuspendAsked("cluster", reason))

    async def _adopt(self, listed: Listed) -> None:
        """After a restart: launch what never started, report what vanished, end what nobody wants."""
        seen = {key.task_id for key in listed.keys} | {task_id for task_id, _ in listed.begun}
        self.newest = max(seen, default=0)
        wanted: set[RankKey] = set()
        for task in list(self._task_manager.unfinished().values()):
            wanted.update(_keys(task))
            await _alone(self._adopt_task(task, listed), task=task.id)
        self._unwanted = set(listed.keys - wanted)
        self._clear(set())
        for key in listed.keys - wanted:
            log.warning("ending a rank that no task wants", rank=str(key))
            await _alone(self._launcher.kill(key), rank=str(key))

    def _clear(self, gone: set[RankKey]) -> None:
        self._unwanted -= gone
        if not self._unwanted:
            self._cleared.set()

    async def _adopt_task(self, task: Task, listed: Listed) -> None:
        run = task.run
        if run is None:
            return
        missing = frozenset(key.rank for key in _keys(task) if key not in listed.keys)
        begun = (task.id, run.number) in listed.begun
        left = resumed(task, missing, launch_begun=begun, certain=listed.certain)
        for rank in left.gone:
            await self._task_manager.insist(task.id, ev.RankGone(run.number, rank, _MISSING))
        if left.launch is not None:
            self._executor.perform(task, left.launch)
        if left.unknown:  # without them the others would work in vain
            reason = _unknown(run, left.unknown)
            await self._task_manager.insist(task.id, ev.SuspendAsked("cluster", reason))
        if left.kill:  # the launcher says when it is sure
            self._executor.perform(task, KillRanks(run.number, left.kill))

    async def _lose(self, nodes: Iterable[Node]) -> None:
        """All at once: what many nodes have taken with them is written together."""
        why = {node.name: node.reason for node in nodes}
        tasks = self._task_manager.occupants.on(why)
        lost = ((key, _node_of(task, key)) for task in tasks for key in _keys(task))
        await asyncio.gather(
            *(
                self._task_manager.insist(key.task_id, ev.NodeLost(key.run, key.rank, why[node]))
                for key, node in lost
                if node in why
            )
        )


async def _alone(work: Awaitable[object], **of: object) -> None:
    """One that is odd keeps no other from being adopted, and the server from scheduling."""
    try:
        await work
    except Exception:
        log.exception("what was there at the start could not be adopted", **of)


def _unknown(run: Run, ranks: Sequence[int]) -> str:
    places = in_words([f"rank {index} on {run.ranks[index].node}" for index in ranks])
    return f"{places}: its pod was deleted while no server ran; its program may run on"


def _node_of(task: Task, key: RankKey) -> str:
    assert task.run is not None
    return task.run.ranks[key.rank].node


def _keys(task: Task) -> Iterator[RankKey]:
    run = task.run
    if task.waiting or run is None or run.state is RunState.ENDED:
        return
    for rank in run.ranks:
        if not rank.state.gone:
            yield RankKey(task.id, run.number, rank.index)
