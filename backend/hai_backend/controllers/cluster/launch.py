"""Reconciles tasks with the launcher: converts its events to events of tasks, and kills ranks without a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import structlog

from hai.client.connection.cancellation import error_of
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import Conflict, Unavailable
from hai_backend.domain.formatting import format_list
from hai_backend.domain.node import Node
from hai_backend.domain.task import Run, RunState, Task
from hai_backend.launch.base import (
    CheckpointWritten,
    KillRequest,
    Launcher,
    LauncherEvent,
    LaunchFailed,
    NodeList,
    RankEvictionNotice,
    RankKey,
    RankList,
    RankTerminated,
)
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle import plan_recovery
from hai_backend.lifecycle.instructions import KillRanks

log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 2.0  # pause before the store is tried again
_NAMED = 3  # ranks that an error message names
_MISSING = "it did not exist when the server was restarted"
# longer than the time in which ranks may save; ranks that still exist then are on unreachable nodes
_PATIENCE_SECONDS = 60.0


class LaunchReconciler:
    """Handles the events of the launcher.

    `listed` is set after the first complete list was reconciled, so that scheduling may begin. `newest` is then the id
    of the newest task with existing ranks. A store that was restored from a backup may not contain this task.
    """

    def __init__(
        self,
        launcher: Launcher,
        task_manager: TaskManager,
        cluster: Cluster,
        executor: Executor,
    ) -> None:
        # set by server.leader.components
        self.record_written: Callable[[int, int, float], None] = lambda task, run, seconds: None
        self.listed = asyncio.Event()
        self.newest = 0
        self._launcher = launcher
        self._task_manager = task_manager
        self._cluster = cluster
        self._executor = executor
        self._running: set[asyncio.Task[object]] = set()
        self._newest: NodeList | None = None  # the newest report
        # ranks of the list without a task, until they have ended
        self._unexpected: set[RankKey] = set()
        self._cleared = asyncio.Event()

    async def cleared(self) -> None:
        """Return when all ranks without a task have ended, or after a minute.

        They use nodes that seem free, and a rank of a new run could get the same name.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._cleared.wait()

    async def run(self) -> None:
        """Run until cancelled. Raises Conflict if the existing ranks cannot belong to this database."""
        try:
            async for event in self._launcher.events():
                if isinstance(event, RankList):
                    await self._require_ours(event)
                try:
                    await self._handle(event)
                except Exception:
                    log.exception("a launcher event failed", launcher_event=str(event))
        finally:
            for running in self._running:
                running.cancel()

    async def _handle(self, event: LauncherEvent) -> None:
        match event:
            case NodeList():
                await self._update_nodes(event)
            case RankList():
                await self._adopt(event)
                self.listed.set()
            case RankTerminated(key=key, why=why):
                self._discard({key})
                self._apply_in_background(key, ev.RankGone(key.run, key.rank, why))
            case RankEvictionNotice(key=key, why=why):
                await self._suspend_for(key, why)
            case CheckpointWritten(task_id=task_id, run=run, seconds=seconds):
                self.record_written(task_id, run, seconds)
            case LaunchFailed(key=key, reason=reason, unschedulable=unschedulable):
                self._apply_in_background(
                    key, ev.LaunchFailed(key.run, key.rank, reason, unschedulable)
                )

    async def _require_ours(self, listed: RankList) -> None:
        """Raise Conflict if ranks exist but the database has never had a task.

        It is probably the wrong database, so no program must be terminated.
        """
        if listed.keys and not await self._task_manager.has_tasks():
            some = ", ".join(sorted(map(str, listed.keys))[:_NAMED])
            raise Conflict(
                f"the database knows no task at all, but {len(listed.keys)} ranks of tasks run ({some}): is it the "
                "right one, is its disk there? Nothing was ended. To begin anew, end them first: `hai-server --home "
                "DIR --sweep`, or delete the pods",
                reason="WRONG_DATABASE",
            )

    async def _update_nodes(self, listing: NodeList) -> None:
        """Store a report of nodes. If the store is unavailable, retry until there is a newer report.

        The launcher does not repeat its reports.
        """
        self._newest = listing
        try:
            lost = await self._cluster.update_nodes(listing.nodes, listing.packed_groups)
        except Unavailable as error:
            log.warning("a report of nodes waits for the store", why=str(error))
            self._run_in_background(self._retry_update(listing))
        else:
            await self._report_lost(lost)

    async def _retry_update(self, listing: NodeList) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)
        if listing is self._newest:
            await self._update_nodes(listing)

    def _apply_in_background(self, key: RankKey, event: ev.Event) -> None:
        """Apply an event in the background, so that events of several ranks of a run are written together."""
        self._run_in_background(self._task_manager.apply_when_stored(key.task_id, event))

    def _run_in_background(self, work: Coroutine[Any, Any, object]) -> None:
        running: asyncio.Task[object] = asyncio.ensure_future(work)
        self._running.add(running)
        running.add_done_callback(self._finished)

    def _finished(self, running: asyncio.Task[object]) -> None:
        self._running.discard(running)
        if (error := error_of(running)) is not None:
            log.error("a launcher event failed", why=repr(error))

    async def _suspend_for(self, key: RankKey, why: str) -> None:
        """Suspend the whole task, because the other ranks cannot continue without this rank."""
        task = self._task_manager.unfinished().get(key.task_id)
        if task is not None and key in _keys(task):
            reason = f"rank {key.rank} on {_node_of(task, key)} is taken away: {why}"
            await self._task_manager.apply_when_stored(task.id, ev.SuspendAsked("cluster", reason))

    async def _adopt(self, listed: RankList) -> None:
        """Reconcile all tasks with a complete list of ranks, after a restart of the server.

        Launch runs that were never started, report ranks that no longer exist, and kill ranks without a task.
        """
        listing = {key.task_id for key in listed.keys} | {
            task_id for task_id, _ in listed.launched_runs
        }
        self.newest = max(listing, default=0)
        expected: set[RankKey] = set()
        for task in list(self._task_manager.unfinished().values()):
            expected.update(_keys(task))
            await _isolated(self._adopt_task(task, listed), task=task.id)
        self._unexpected = set(listed.keys - expected)
        self._discard(set())
        for key in listed.keys - expected:
            log.warning("killing a rank of no task", rank=str(key))
            await _isolated(self._launcher.kill(KillRequest(key)), rank=str(key))

    def _discard(self, gone: set[RankKey]) -> None:
        self._unexpected -= gone
        if not self._unexpected:
            self._cleared.set()

    async def _adopt_task(self, task: Task, listed: RankList) -> None:
        """Reconcile the current run of one task with the listed ranks (see lifecycle.recovery)."""
        run = task.run
        if run is None:
            return
        missing = frozenset(key.rank for key in _keys(task) if key not in listed.keys)
        begun = (task.id, run.number) in listed.launched_runs
        recovery = plan_recovery(task, missing, launch_begun=begun, certain=listed.complete)
        for rank in recovery.gone:
            await self._task_manager.apply_when_stored(
                task.id, ev.RankGone(run.number, rank, _MISSING)
            )
        if recovery.launch is not None:
            self._executor.perform(task, recovery.launch)
        if recovery.unknown:  # the other ranks cannot continue without these
            reason = _unknown(run, recovery.unknown)
            await self._task_manager.apply_when_stored(task.id, ev.SuspendAsked("cluster", reason))
        if recovery.kill:  # the launcher reports the end of these ranks
            self._executor.perform(task, KillRanks(run.number, recovery.kill))

    async def _report_lost(self, nodes: Iterable[Node]) -> None:
        """Report all ranks of lost nodes concurrently, so that they are written together."""
        why = {node.name: node.reason for node in nodes}
        tasks = self._task_manager.occupants.on(why)
        lost = ((key, _node_of(task, key)) for task in tasks for key in _keys(task))
        await asyncio.gather(
            *(
                self._task_manager.apply_when_stored(
                    key.task_id, ev.NodeLost(key.run, key.rank, why[node])
                )
                for key, node in lost
                if node in why
            )
        )


async def _isolated(work: Awaitable[object], **of: object) -> None:
    """Await work for one task. Errors are only logged, so that other tasks and scheduling continue."""
    try:
        await work
    except Exception:
        log.exception("a task could not be reconciled at the start", **of)


def _unknown(run: Run, ranks: Sequence[int]) -> str:
    names = format_list([f"rank {index} on {run.ranks[index].node}" for index in ranks])
    return f"{names}: its pod was deleted while no server ran; its program may run on"


def _node_of(task: Task, key: RankKey) -> str:
    assert task.run is not None
    return task.run.ranks[key.rank].node


def _keys(task: Task) -> Iterator[RankKey]:
    run = task.run
    if task.waiting or run is None or run.state is RunState.ENDED:
        return
    for rank in run.ranks:
        if not rank.state.terminated:
            yield RankKey(task.id, run.number, rank.index)
