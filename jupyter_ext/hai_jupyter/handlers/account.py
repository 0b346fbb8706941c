"""The user and the cluster around tasks: who am I, quotas, groups, messages, memory of this container."""

from __future__ import annotations

import asyncio
from typing import Any

from hai.client.text.formatting import enum_name
from hai.v1.user_pb2 import Role
from hai_jupyter.container_memory import memory
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.preemption_notice import say_saved
from hai_jupyter.proto_json import to_json_value

_VISITOR = "X-Hai-User"


class MeHandler(Handler):
    """Who speaks to which cluster."""

    @answers
    async def get(self) -> Any:
        """The user, without his tokens, with his quotas."""
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
        """Who looks, as the platform's proxy says, where that is not whose container this is; empty: nobody else."""
        told = self.request.headers.get(_VISITOR, "")
        return "" if told == owner else told


class GroupsHandler(Handler):
    """Groups with their numbers."""

    @answers
    async def get(self) -> Any:
        """By name."""
        return [to_json_value(group, whole=True) for group in await self.client.nodes.groups()]


class MessagesHandler(Handler):
    """What operators tell users."""

    @answers
    async def get(self) -> Any:
        """Newest first."""
        return [to_json_value(message, whole=True) for message in await self.client.messages.list()]


class ManualHandler(Handler):
    """Where the manual is."""

    @answers
    async def get(self) -> Any:
        """With {page} for the name of a page; empty: this server does not know."""
        return {"url": self.backend.manual}


class WorkspacesHandler(Handler):
    """The user's directories that are kept the same elsewhere and on the cluster."""

    @answers
    async def get(self) -> Any:
        """By name, without the secret of whoever writes one."""
        found = [
            to_json_value(workspace, whole=True)
            for workspace in await self.client.workspaces.list()
        ]
        for workspace in found:
            workspace.get("lease", {}).pop("token", None)
        return found


class MemoryHandler(Handler):
    """Memory of this container."""

    @answers
    async def get(self) -> Any:
        """In bytes."""
        return memory()


class SavedHandler(Handler):
    """The page has saved what was open, because this container is taken back."""

    @answers
    async def post(self) -> Any:
        """Nothing."""
        await say_saved()
        return {}
