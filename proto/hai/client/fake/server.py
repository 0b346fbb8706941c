"""A client without a server, for demonstrations and for tests of programs that use the client.

It is the real Client with a transport that calls services in memory, so its methods are those of the real one. Nothing
happens by itself: the test creates nodes, starts and finishes tasks, prints their lines, sets the clock and makes the
server unreachable. The terminal app uses it for `--demo`, which needs neither a server nor the packages of one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from hai.client.client import Client
from hai.client.errors import Unreachable
from hai.client.fake.catalog import (
    FakeArtifactService,
    FakeImageService,
    FakePortService,
    FakeStorageService,
)
from hai.client.fake.containers import FakeContainerService, FakeTunnelService
from hai.client.fake.lists import FakeDatasetService, FakeMessageService, FakeWebhookService
from hai.client.fake.nodes import FakeNodeService, FakeServerService, FakeWatchService
from hai.client.fake.tasks import FakeLogService, FakeTaskService
from hai.client.fake.usage import FakeAuditService, FakeUsageService
from hai.client.fake.users import FakeUserService
from hai.client.fake.workspaces import FakeEnvironmentService, FakeWorkspaceService
from hai.client.fake.world import World, finish, hear, make_node, silence, start_run, suspend_run
from hai.client.profile import Profile
from hai.v1.artifact_service_pb2_grpc import ArtifactServiceStub
from hai.v1.audit_service_pb2 import AuditRow
from hai.v1.audit_service_pb2_grpc import AuditServiceStub
from hai.v1.container_service_pb2_grpc import ContainerServiceStub
from hai.v1.dataset_service_pb2_grpc import DatasetServiceStub
from hai.v1.environment_service_pb2_grpc import EnvironmentServiceStub
from hai.v1.image_service_pb2_grpc import ImageServiceStub
from hai.v1.log_service_pb2 import LogLine
from hai.v1.log_service_pb2_grpc import LogServiceStub
from hai.v1.message_service_pb2_grpc import MessageServiceStub
from hai.v1.node_service_pb2_grpc import NodeServiceStub
from hai.v1.port_service_pb2_grpc import PortServiceStub
from hai.v1.server_service_pb2_grpc import ServerServiceStub
from hai.v1.storage_service_pb2_grpc import StorageServiceStub
from hai.v1.task_pb2 import TASK_OUTCOME_SUCCEEDED, Task, TaskOutcome
from hai.v1.task_service_pb2_grpc import TaskServiceStub
from hai.v1.tunnel_service_pb2_grpc import TunnelServiceStub
from hai.v1.usage_service_pb2 import ClusterPoint, UsagePoint
from hai.v1.usage_service_pb2_grpc import UsageServiceStub
from hai.v1.user_pb2 import ROLE_ADMIN, User
from hai.v1.user_service_pb2_grpc import UserServiceStub
from hai.v1.watch_service_pb2_grpc import WatchServiceStub
from hai.v1.webhook_service_pb2_grpc import WebhookServiceStub
from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceStub

_ADDRESS = "hai.example.org:7450"


class FakeTransport:
    """Calls the fake services. Raises Unreachable while the world is not reachable."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._services: dict[object, object] = {
            TaskServiceStub: FakeTaskService(world),
            LogServiceStub: FakeLogService(world),
            NodeServiceStub: FakeNodeService(world),
            ArtifactServiceStub: FakeArtifactService(world),
            ContainerServiceStub: FakeContainerService(world),
            DatasetServiceStub: FakeDatasetService(world),
            EnvironmentServiceStub: FakeEnvironmentService(world),
            MessageServiceStub: FakeMessageService(world),
            WebhookServiceStub: FakeWebhookService(world),
            PortServiceStub: FakePortService(world),
            StorageServiceStub: FakeStorageService(world),
            ImageServiceStub: FakeImageService(world),
            TunnelServiceStub: FakeTunnelService(world),
            UsageServiceStub: FakeUsageService(world),
            AuditServiceStub: FakeAuditService(world),
            UserServiceStub: FakeUserService(world),
            ServerServiceStub: FakeServerService(world),
            WatchServiceStub: FakeWatchService(world),
            WorkspaceServiceStub: FakeWorkspaceService(world),
        }

    def stub(self, stub_class: Any) -> Any:
        """Return the fake service of a stub."""
        return self._services[stub_class]

    async def unary(
        self, call: Any, request: Any, *, retry: bool = False, deadline: float | None = None
    ) -> Any:
        """Make one call."""
        self._require_reachable()
        return await call(request)

    async def stream(self, call: Any, request: Any) -> AsyncGenerator[Any, None]:
        """Make a call with a stream of answers."""
        self._require_reachable()
        async for answer in call(request):
            self._require_reachable()
            yield answer

    async def duplex(self, call: Any, requests: Any) -> AsyncGenerator[Any, None]:
        """Make a call with a stream in each direction."""
        self._require_reachable()
        async for answer in call(requests):
            self._require_reachable()
            yield answer

    async def close(self) -> None:
        """Do nothing."""

    def _require_reachable(self) -> None:
        if not self._world.reachable:
            raise Unreachable(f"cannot reach the server at {_ADDRESS}: Connection refused")


class FakeClient(Client):
    """A Client of an empty cluster in memory, with methods that change the cluster as a server would."""

    def __init__(self, *, user: str = "alice", nodes: Iterable[str] = ()) -> None:
        self.world = World(user=user)
        self.world.users[user] = User(name=user, role=ROLE_ADMIN, active=True)
        super().__init__(Profile("fake", _ADDRESS), transport=FakeTransport(self.world))
        for name in nodes:
            self.add_node(name)

    def add_node(self, name: str, group: str = "default", gpus: int = 8) -> None:
        """Add a ready node to the cluster."""
        self.world.nodes[name] = make_node(name, group, gpus)
        self.world.node_changed(self.world.nodes[name])

    def start(self, id: int, nodes: Iterable[str] = ()) -> Task:
        """Start a run of a waiting task on these nodes."""
        return start_run(self.world, self.world.task(id), tuple(nodes))

    def suspended(self, id: int, reason: str = "") -> Task:
        """Suspend a running task."""
        return suspend_run(self.world, self.world.task(id), reason)

    def finish(
        self,
        id: int,
        outcome: TaskOutcome.ValueType = TASK_OUTCOME_SUCCEEDED,
        reason: str = "",
    ) -> Task:
        """End a task."""
        return finish(self.world, self.world.task(id), outcome, reason)

    def silence(self, id: int, *ranks: int, seconds: float = 40.0) -> Task:
        """Make agents of a running task silent, by default all of them. Their last message was `seconds` ago."""
        task = self.world.task(id)
        return silence(self.world, task, ranks or range(task.node_count), seconds)

    def hear(self, id: int, *ranks: int) -> Task:
        """End the silence of agents of a task, by default of all."""
        task = self.world.task(id)
        return hear(self.world, task, ranks or range(task.node_count))

    def change(self, id: int, **values: Any) -> Task:
        """Set fields of a task."""
        task = self.world.task(id)
        task.MergeFrom(Task(**values))
        return self.world.changed(task, "TaskChanged")

    def print(self, id: int, text: str, *, rank: int = 0, redraw: bool = False) -> None:
        """Add a log line of a rank of the current run."""
        task = self.world.task(id)
        line = LogLine(
            run=task.run_count, rank=rank, time=self.world.time(), text=text, redraw=redraw
        )
        self.world.lines.setdefault(id, []).append(line)
        self.world.wake()

    def measure(self, id: int, *, rank: int = 0, **values: Any) -> None:
        """Add a UsagePoint with these values for a rank of the current run in the current minute."""
        point = UsagePoint(time=self.world.minute(), count=6, **values)
        run = self.world.task(id).run_count or 1
        self.world.usage.setdefault(id, []).append((rank, run, point))

    def measure_cluster(self, **values: Any) -> None:
        """Add a ClusterPoint with these values for the current minute."""
        self.world.cluster_usage.append(ClusterPoint(time=self.world.minute(), **values))

    def audited(self, method: str, resource: str = "", code: str = "OK", **values: Any) -> None:
        """Add a row to the audit log. The default actor is the caller."""
        row = AuditRow(time=self.world.time(), method=method, resource=resource, code=code)
        row.MergeFrom(AuditRow(actor=values.pop("actor", self.world.user), **values))
        self.world.audit.append(row)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.world.now += seconds

    def lose(self) -> None:
        """Make the server unreachable, which ends streams at once."""
        self.world.reachable = False
        self.world.wake()

    def recover(self) -> None:
        """Make the server reachable again."""
        self.world.reachable = True
