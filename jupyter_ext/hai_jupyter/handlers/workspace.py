"""Handlers of the workspace that contains a folder: its status, and syncing it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hai.client.errors import NotFound
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.syncing import run_haiworkspace, truncate, workspace_of

VERBS = "push|pull|sync"


class WorkspaceHandler(Handler):
    """The status of the workspace that contains a folder of the file browser."""

    @answers
    async def get(self) -> Any:
        """Return what would be pushed and pulled, and the conflicts; `{}` if no workspace contains the folder."""
        path = self.get_query_argument("path", "")
        folder = await asyncio.to_thread(self._workspace_folder, path)
        if folder is None:
            return {}
        return truncate(
            await run_haiworkspace(folder, "status", self.shared.client_provider.profile())
        )

    def _workspace_folder(self, path: str) -> Path | None:
        contents_paths = self.shared.contents_paths
        return workspace_of(contents_paths.directory(path), contents_paths.root.resolve())


class WorkspaceVerbHandler(WorkspaceHandler):
    """Push, pull or sync."""

    @answers
    async def post(self, verb: str) -> Any:
        """Return what was done. In a conflict nothing is done, and the answer lists the paths."""
        path = self.body().get("path", "")
        if not isinstance(path, str):
            raise invalid(("path", "must be a folder of the file browser"))
        folder = await asyncio.to_thread(self._workspace_folder, path)
        if folder is None:
            raise NotFound(f"{path or 'the top folder'} is not in a workspace")
        profile = self.shared.client_provider.profile()
        return truncate(await run_haiworkspace(folder, verb, profile))
