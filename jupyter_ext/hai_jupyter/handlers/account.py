"""Handlers of the user and the cluster: identity, quotas, groups, messages, workspaces, memory of the container."""

from __future__ import annotations

import asyncio
from typing import Any

from hai.client.text.formatting import enum_name
from hai.v1.user_pb2 import Role
from hai_jupyter.container_memory import read_memory
from hai_jupyter.handlers.base import Handler, answers, to_json_value
from hai_jupyter.preemption_notice import report_saved

_VISITOR_HEADER = "X-Hai-User"


class MeHandler(Handler):
    """The user and the cluster."""

    @answers
    async def get(self) -> Any:
        """Return the user with quotas, without tokens."""
        me, info = await asyncio.gather(self.client.users.whoami(), self.client.server.info())
        return {
            "user": me.user.name,
            "role": enum_name(Role, me.user.role),
            "cluster": info.cluster,
            "version": info.version,
            "visitor": self._visitor(me.user.name),
            "quotas": [to_json_value(quota, whole=True) for quota in me.quotas],
        }

    def _visitor(self, owner: str) -> str:
        """Return the user whom the platform's proxy names, if they are not the owner of this container; else empty."""
        visitor = self.request.headers.get(_VISITOR_HEADER, "")
        return "" if visitor == owner else visitor


class GroupsHandler(Handler):
    """Node groups and their sizes."""

    @answers
    async def get(self) -> Any:
        return [to_json_value(group, whole=True) for group in await self.client.nodes.groups()]


class MessagesHandler(Handler):
    """Messages of operators to users."""

    @answers
    async def get(self) -> Any:
        return [to_json_value(message, whole=True) for message in await self.client.messages.list()]


class ManualHandler(Handler):
    """The address of the manual."""

    @answers
    async def get(self) -> Any:
        """Return a URL with {page} for the name of a page; empty if this server has none."""
        return {"url": self.shared.manual}


class WorkspacesHandler(Handler):
    """The workspaces of the user."""

    @answers
    async def get(self) -> Any:
        """Return the workspaces without the secret of their writers."""
        workspaces = [
            to_json_value(workspace, whole=True)
            for workspace in await self.client.workspaces.list()
        ]
        for workspace in workspaces:
            workspace.get("lease", {}).pop("token", None)
        return workspaces


class MemoryHandler(Handler):
    """Memory of this container."""

    @answers
    async def get(self) -> Any:
        return read_memory()


class SavedHandler(Handler):
    """The page reports that it has saved its open notebooks, because this container is taken back."""

    @answers
    async def post(self) -> Any:
        await report_saved()
        return {}
