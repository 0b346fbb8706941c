"""The client of one server: a connection, and the resources that are reached through it."""

from __future__ import annotations

from typing import Self

from hai.client.connection.transport import Connection, Transport
from hai.client.profile import Profile
from hai.client.resources.artifacts import Artifacts
from hai.client.resources.datasets import Datasets
from hai.client.resources.environments import Environments
from hai.client.resources.images import Images
from hai.client.resources.messaging import Messages, Webhooks
from hai.client.resources.nodes import Nodes
from hai.client.resources.ports import Ports
from hai.client.resources.server import Audit, Server, Watches
from hai.client.resources.storage import Storage
from hai.client.resources.usage import Usage
from hai.client.resources.users import Users
from hai.client.resources.workspaces import Workspaces
from hai.client.tasks.containers import Containers
from hai.client.tasks.logs import Logs
from hai.client.tasks.tasks import Tasks
from hai.client.tasks.tunnels import Tunnels


class Client:
    """A client of one server. It connects on the first call. Use it as an async context manager."""

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
        """Close the connection, which ends open streams."""
        await self._transport.close()
