"""The workspace that a folder belongs to: how it stands, and bringing both sides together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hai.client.errors import NotFound
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.syncing import run, truncate, workspace_of

VERBS = "push|pull|sync"


class WorkspaceHandler(Handler):
    """The one that a folder of the file browser is in."""

    @answers
    async def get(self) -> Any:
        """What there is to push and to pull, and what is in conflict; `{}`: the folder is in none."""
        path = self.get_query_argument("path", "")
        folder = await asyncio.to_thread(self._folder, path)
        return (
            {}
            if folder is None
            else truncate(await run(folder, "status", self.backend.client_provider.profile()))
        )

    def _folder(self, path: str) -> Path | None:
        contents_paths = self.backend.contents_paths
        return workspace_of(contents_paths.directory(path), contents_paths.root.resolve())


class WorkspaceVerbHandler(WorkspaceHandler):
    """push, pull, sync."""

    @answers
    async def post(self, verb: str) -> Any:
        """What was done. In a conflict nothing is, and the paths are listed."""
        path = self.body().get("path", "")
        if not isinstance(path, str):
            raise invalid(("path", "must be a folder of the file browser"))
        folder = await asyncio.to_thread(self._folder, path)
        if folder is None:
            raise NotFound(f"{path or 'the top folder'} is not in a workspace")
        return truncate(await run(folder, verb, self.backend.client_provider.profile()))
