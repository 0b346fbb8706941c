"""A server that starts tasks with an HTTP service, and a client session that behaves like a browser.

Tests and benchmarks of tunnels, of containers and of the proxy use them.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from hai.client.client import Client
from hai.client.profile import Profile
from hai.v1.container_pb2 import SERVICE_STATE_READY
from hai.v1.task_pb2 import TASK_STATE_RUNNING, Task
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ServiceSpec, TaskSpec
from hai_backend.domain.accounts.user import Role, TokenScope, User
from hai_backend.launch.local_launcher import sweep
from tests.ports import free_port
from tests.support.agent_pods import process_pod_cluster
from tests.support.deployment import kubernetes_settings
from tests.support.servers import RunningServer, running_server

ECHO = Path(__file__).with_name("echo_service.py")


class Loopback(AbstractResolver):
    """Resolves every name to this machine, as browsers do for *.localhost."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = ResolveResult(
            hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
        )
        return [found]

    async def close(self) -> None:
        return None


@dataclass
class ServiceCluster:
    """A running server, the client of an administrator, and methods that start tasks and create users."""

    server: RunningServer
    client: Client
    directory: Path
    pods: Path | None = None

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def rank_directory(self, key: str) -> Path:
        """Return the directory of a live rank."""
        runs = [self.home / "run"] if self.pods is None else self.pods.glob("*/volumes/home/run")
        return next(run / key for run in runs if (run / key).exists())

    async def start_task(self, name: str = "web", **options: Any) -> Task:
        """Start a task with a service `web`, and wait until the service answers."""
        port = free_port()
        spec = TaskSpec(
            version=2,
            name=name,
            spec=ProgramSpec(
                entrypoint="sleep", parameters=["infinity"], entrypoint_executable=True
            ),
            services=[
                ServiceSpec(
                    name="web",
                    type="http",
                    port=port,
                    startup_script=f"{sys.executable} {ECHO} {port}",
                )
            ],
            options=OptionsSpec(**options),
        )
        task = await self.client.tasks.create(spec)
        await self.wait_ready(task.id)
        return await self.client.tasks.get(task.id)

    async def wait_ready(self, id: int, service: str = "web") -> None:
        """Wait until a service answers."""
        await self.wait_ready_on(self.server, id, service)

    async def wait_ready_on(self, server: RunningServer, id: int, service: str = "web") -> None:
        """Wait until a service answers, as `server` sees it: its feed of service states wakes the caller."""
        assert server.app.leader is not None
        board, task_manager = server.app.leader.service_states, server.app.leader.task_manager
        while True:
            version = board.feed.version
            services = board.services(await task_manager.get(id))
            if any(s.name == service and s.state == SERVICE_STATE_READY for s in services):
                return
            await board.feed.beyond(version)

    async def wait_running(self, id: int) -> Task:
        return await self.wait_until(id, lambda task: task.state == TASK_STATE_RUNNING)

    async def wait_until(self, id: int, holds: Callable[[Task], bool]) -> Task:
        """Return the task as soon as `holds` is true of it."""
        async for answer in self.client.tasks.watch():
            for task in answer.tasks:
                if task.id == id and holds(task):
                    return task
        raise AssertionError("the watch ended")

    async def create_user_client(self, name: str, *groups: str) -> Client:
        """Create a user, and return a client with their token. The caller closes it."""
        assert self.server.app.leader is not None
        directory = self.server.app.leader.directory
        await directory.create_user(User(name, Role.USER, tuple(groups)))
        _, secret = await directory.create_token(name, TokenScope.ALL, 1.0)
        return Client(Profile(name, self.server.profile.server, secret))


@asynccontextmanager
async def process_service_cluster(
    directory: Path, **settings: Any
) -> AsyncIterator[ServiceCluster]:
    """Run a server with two nodes whose ranks are processes of this machine."""
    home = directory / "home"
    try:
        async with (
            running_server(home, nodes=2, **settings) as server,
            Client(server.profile) as client,
        ):
            yield ServiceCluster(server, client, directory)
    finally:
        sweep(home)


@asynccontextmanager
async def pod_service_cluster(directory: Path, **settings: Any) -> AsyncIterator[ServiceCluster]:
    """Run a server with two nodes of a fake Kubernetes cluster, whose pods are processes."""
    async with process_pod_cluster(directory, 2) as cluster:
        table = kubernetes_settings(directory, cluster.kubeconfig(directory / "kubeconfig"))
        async with (
            running_server(directory / "home", kubernetes=table, **settings) as server,
            Client(server.profile) as client,
        ):
            yield ServiceCluster(server, client, directory, directory / "pods")


CLUSTERS = [
    pytest.param(process_service_cluster, id="processes"),
    pytest.param(pod_service_cluster, id="pods"),
]
"""Tunnels, services and the proxy work the same with both launchers."""


@asynccontextmanager
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session that keeps cookies for each host."""
    jar = aiohttp.CookieJar(unsafe=True)
    connector = aiohttp.TCPConnector(resolver=Loopback())
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
        yield session


async def sign_in(
    session: aiohttp.ClientSession, client: Client, id: int, service: str = ""
) -> str:
    """Sign the browser in to a service, and return the service's URL."""
    opened = await client.containers.open(id, service)
    async with session.get(opened.link, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
    return opened.url


Get = Callable[..., Awaitable[Any]]


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
