"""The client: one connection and the resources that are reached through it."""

from __future__ import annotations

from typing import Self

from hai.client.artifacts import Artifacts
from hai.client.audit import Audit
from hai.client.connection import Connection, Transport
from hai.client.containers import Containers
from hai.client.datasets import Datasets
from hai.client.environments import Environments
from hai.client.images import Images
from hai.client.logs import Logs
from hai.client.messages import Messages
from hai.client.nodes import Nodes
from hai.client.ports import Ports
from hai.client.profile import Profile
from hai.client.server import Server
from hai.client.storage import Storage
from hai.client.tasks import Tasks
from hai.client.tunnels import Tunnels
from hai.client.usage import Usage
from hai.client.users import Users
from hai.client.watches import Watches
from hai.client.webhooks import Webhooks
from hai.client.workspaces import Workspaces


class Client:
    """Speaks to one server; connects on the first call. Use it as an async context manager."""

    def __init__(self, profile: Profile, *, transport: Transport | None = None) -> None:
        self.profile = profile
        self._transport = transport or Connection(profile)
        self.users = Users(self._transport)
        self.tasks = Tasks(self._transport)
        self.nodes = Nodes(self._transport)
        self.watches = Watches(self._transport)
        self.artifacts = Artifacts(self._transport)
        self.containers = Containers(self._transport)
        self.datasets = Datasets(self._transport)
        self.environments = Environments(self._transport)
        self.messages = Messages(self._transport)
        self.webhooks = Webhooks(self._transport)
        self.ports = Ports(self._transport)
        self.storage = Storage(self._transport)
        self.images = Images(self._transport)
        self.workspaces = Workspaces(self._transport)
        self.logs = Logs(self._transport)
        self.usage = Usage(self._transport)
        self.audit = Audit(self._transport)
        self.tunnels = Tunnels(self._transport)
        self.server = Server(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; open streams end with it."""
        await self._transport.close()
