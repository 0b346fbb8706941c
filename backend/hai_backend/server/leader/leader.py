"""Starts and stops the components of a server that leads."""

from __future__ import annotations

import asyncio

from hai_backend.auth import container_tokens
from hai_backend.config import Settings
from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.scheduling import history
from hai_backend.launch.base import Launcher
from hai_backend.server.leader.components import Components, ProcessContext
from hai_backend.server.leader.serving import Serving
from hai_backend.server.paths import create_first_admin, newest_task_with_files
from hai_backend.store.base import Store


class Leader(Components):
    """Loads, starts and closes the components. The caller calls `load`, then `start_loops`, and always `close`."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        launcher: Launcher,
        context: ProcessContext,
        *,
        alone: bool,
    ) -> None:
        super().__init__(settings, store, launcher, context, alone=alone)
        self.serving = Serving(self)

    async def load(self) -> None:
        """Open the store. Load its contents, and the nodes and ranks that the launcher lists."""
        await self.store.open()
        newest_task = asyncio.create_task(
            asyncio.to_thread(newest_task_with_files, self.settings.common)
        )
        await self.directory.load()
        self.expiry.check_now()
        await self.cluster.load()
        await self.webhooks.load()
        await self.task_manager.load()
        self.interruptions.load(self.task_manager.unfinished().values())
        for task in self.task_manager.unfinished().values():
            self.task_counts.changed(None, task)
        await self._wait_for_list(
            self.background.keep_running("launcher events", self.launch_reconciler.run())
        )
        await create_first_admin(self.settings, self.directory, self.clock.now())
        await self.store.skip_task_ids(max(self.launch_reconciler.newest, await newest_task))
        await self.environments.load()

    def start_loops(self) -> None:
        """Start the timers and the background tasks."""
        self.deadlines.begin(self.task_manager.unfinished().values())
        self.agent_silence.load(self.task_manager.unfinished().values())
        self.background.keep_running("scheduling", self._run_scheduling())
        self.background.keep_running("usage", self.usage.run())
        self.background.keep_running("workspaces", self.workspaces.collect_forever())
        self.background.run(retry_until_stored(self.environments.begin, "the list of environments"))
        self.background.run(
            retry_until_stored(self.notifications.load, "what webhooks are still to be told")
        )
        self.background.run(
            retry_until_stored(self._delete_ended_tokens, "the end of tokens of dev containers")
        )
        self.dependencies.load(self.task_manager.unfinished().values())
        self.background.run(history.recall(self.store, self.scheduling.learn))

    async def _delete_ended_tokens(self) -> None:
        await container_tokens.delete_stale_tokens(
            self.directory, self.task_manager.unfinished().values()
        )

    async def _run_scheduling(self) -> None:
        await self.launch_reconciler.cleared()
        await self.scheduling.run()

    async def close(self, *, deposed: bool) -> None:
        """Answer the calls in progress, then stop all components. Programs of tasks keep running.

        If the server was deposed, the store is closed first, so that pending writes fail.
        """
        await self.background.close()
        self.deadlines.close()
        self.agent_silence.close()
        self.expiry.close()
        if deposed:
            await self.store.close()
        await self.serving.close()
        self.connected_agents.close()
        await self.checkpoints.close()
        await self.executor.close()
        self.gpus.close()
        await self.launcher.close()
        await self.workspaces.close()
        await self.store.close()
        self.task_counts.close()

    async def _wait_for_list(self, reconciler: asyncio.Task[None]) -> None:
        """Wait until the launcher has listed all nodes and ranks. Raises the error that ended the reconciler."""
        listed = asyncio.ensure_future(self.launch_reconciler.listed.wait())
        await asyncio.wait({reconciler, listed}, return_when=asyncio.FIRST_COMPLETED)
        if not listed.done():
            listed.cancel()
            reconciler.result()
