"""The time in which this server leads: what begins with it and ends with it."""

from __future__ import annotations

import asyncio

from hai_backend.auth import container_tokens
from hai_backend.config import Settings
from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.scheduling import history
from hai_backend.launch.base import Launcher
from hai_backend.server.leader_term.components import Components, Tools
from hai_backend.server.leader_term.serving import Serving
from hai_backend.server.paths import first_admin, newest_trace
from hai_backend.store.base import Store


class LeadershipTerm(Components):
    """`load`, then `govern`; whatever happened, `close` at the end."""

    def __init__(
        self, settings: Settings, store: Store, launcher: Launcher, tools: Tools, *, alone: bool
    ) -> None:
        super().__init__(settings, store, launcher, tools, alone=alone)
        self.answering = Serving(self)

    async def load(self) -> None:
        """Open the store, and learn all that it and the launcher know."""
        await self.store.open()
        traces = asyncio.create_task(asyncio.to_thread(newest_trace, self.settings.common))
        await self.directory.load()
        self.expiring.check_now()
        await self.cluster.load()
        await self.webhooks.load()
        await self.task_manager.load()
        self.interruptions.load(self.task_manager.unfinished().values())
        for task in self.task_manager.unfinished().values():
            self.standings.changed(None, task)
        await self._listed(self.work.keep_running("launcher events", self.launching.run()))
        await first_admin(self.settings, self.directory, self.clock.now())
        await self.store.skip_task_ids(max(self.launching.newest, await traces))
        await self.environments.load()

    def govern(self) -> None:
        """Let the loops run."""
        self.timers.begin(self.task_manager.unfinished().values())
        self.agent_silence.load(self.task_manager.unfinished().values())
        self.work.keep_running("scheduling", self._schedule())
        self.work.keep_running("usage", self.usage.run())
        self.work.keep_running("workspaces", self.workspaces.collect_forever())
        self.work.run(retry_until_stored(self.environments.begin, "the list of environments"))
        self.work.run(retry_until_stored(self.notifying.load, "what webhooks are still to be told"))
        self.work.run(retry_until_stored(self._sweep_tokens, "the end of tokens of dev containers"))
        self.successors.load(self.task_manager.unfinished().values())
        self.work.run(history.recall(self.store, self.scheduling.learn))

    async def _sweep_tokens(self) -> None:
        await container_tokens.delete_stale_tokens(
            self.directory, self.task_manager.unfinished().values()
        )

    async def _schedule(self) -> None:
        await self.launching.cleared()
        await self.scheduling.run()

    async def close(self, *, deposed: bool) -> None:
        """Answer what is being asked, then leave; programs run on. Deposed: what still wants to write fails first."""
        await self.work.close()
        self.timers.close()
        self.agent_silence.close()
        self.expiring.close()
        if deposed:
            await self.store.close()
        await self.answering.close()
        self.hub.close()
        await self.checkpoints.close()
        await self.executor.close()
        await self.launcher.close()
        await self.workspaces.close()
        await self.store.close()
        self.standings.close()

    async def _listed(self, launching: asyncio.Task[None]) -> None:
        """Wait for the launcher's list: before it, nobody knows which nodes and ranks exist."""
        listed = asyncio.ensure_future(self.launching.listed.wait())
        await asyncio.wait({launching, listed}, return_when=asyncio.FIRST_COMPLETED)
        if not listed.done():
            listed.cancel()
            launching.result()
