"""A gRPC server on a free port, with the real task manager, cluster and directory, and a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from hai.v1 import task_spec_pb2
from hai.v1.agent_service_pb2 import ServicesReported
from hai.v1.artifact_service_pb2_grpc import ArtifactServiceStub
from hai.v1.audit_service_pb2_grpc import AuditServiceStub
from hai.v1.container_service_pb2_grpc import ContainerServiceStub
from hai.v1.dataset_service_pb2_grpc import DatasetServiceStub
from hai.v1.environment_service_pb2_grpc import EnvironmentServiceStub
from hai.v1.image_service_pb2_grpc import ImageServiceStub
from hai.v1.log_service_pb2_grpc import LogServiceStub
from hai.v1.message_service_pb2_grpc import MessageServiceStub
from hai.v1.node_service_pb2_grpc import NodeServiceStub
from hai.v1.port_service_pb2_grpc import PortServiceStub
from hai.v1.server_service_pb2_grpc import ServerServiceStub
from hai.v1.storage_service_pb2_grpc import StorageServiceStub
from hai.v1.task_service_pb2_grpc import TaskServiceStub
from hai.v1.tunnel_service_pb2_grpc import TunnelServiceStub
from hai.v1.usage_service_pb2_grpc import UsageServiceStub
from hai.v1.user_service_pb2_grpc import UserServiceStub
from hai.v1.watch_service_pb2_grpc import WatchServiceStub
from hai.v1.webhook_service_pb2_grpc import WebhookServiceStub
from hai_backend.api.agents.service import AgentService
from hai_backend.api.agents.service_deps import AgentDeps
from hai_backend.api.assemble import ApiDeps, serve
from hai_backend.api.containers.containers import NoBrowsers
from hai_backend.api.environments.environments import Environments
from hai_backend.api.environments.pinning import EnvironmentPinning
from hai_backend.api.request.limits import CallLimits
from hai_backend.api.scheduling.forecasts import Forecasts
from hai_backend.api.server.server import ApiServer, Endpoint
from hai_backend.api.watch import cache as watch
from hai_backend.api.webhooks.service import WebhookDeps
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.pins import WorkspacePins
from hai_backend.auth.directory import Directory
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.controllers.metrics.gpus import GpuStates
from hai_backend.controllers.metrics.usage import Usage
from hai_backend.controllers.tasks.executor import Executor
from hai_backend.controllers.tasks.notifications import DeliveryPolicy, Notifications
from hai_backend.controllers.tasks.save_history import SaveHistory
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.controllers.tasks.webhooks import Webhooks
from hai_backend.domain.accounts.user import Role, TokenScope, User
from hai_backend.domain.accounts.webhook import Format
from hai_backend.domain.catalog.image import ImageReference, Registry, repository_path
from hai_backend.domain.errors import HaiError, NotFound, Unavailable
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.domain.task import Task
from hai_backend.environments.haienv import Haienv
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle.goodput import History, goodput
from hai_backend.logs.store import LogStore
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.store.base import Store
from hai_backend.testing import ManualClock
from hai_backend.webhooks.payload import WebhookRequest
from tests.support.databases import default_store
from tests.support.environments import BUILDER, fake_haienv

USERS = {
    "root": User("root", Role.ADMIN),
    "olga": User("olga", Role.OPERATOR),
    "ada": User("ada", groups=("vision",)),
    "bob": User("bob", groups=("vision",)),
    "eve": User("eve", groups=("speech",)),
}


class FakeScheduling:
    """Replaces the scheduling loop. Tests set the results of the last pass."""

    def __init__(self) -> None:
        self.known_waits: dict[int, Wait] = {}
        self.current_snapshot = Snapshot(0.0, (), ())

    def wait(self, task_id: int) -> Wait | None:
        return self.known_waits.get(task_id)

    async def snapshot(self) -> Snapshot:
        return self.current_snapshot

    async def waits(self, group: str = "") -> Mapping[int, Wait]:
        return self.known_waits


class FakeRegistries:
    """Replaces the registries. Tests set the digests of images, or the error of the registry."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.error: HaiError | None = None
        self.requested: list[tuple[str, Registry]] = []

    async def digest(self, image: ImageReference, registry: Registry) -> str:
        self.requested.append((str(image), registry))
        if self.error is not None:
            raise self.error
        if str(image) not in self.digests:
            raise NotFound(f"there is no {image}", reason="NO_SUCH_IMAGE")
        return self.digests[str(image)]

    async def tags(self, image: ImageReference, registry: Registry) -> tuple[str, ...]:
        prefix = f"{repository_path(image)}:"
        return tuple(k.removeprefix(prefix) for k in self.digests if k.startswith(prefix))


@dataclass
class Platform:
    """The parts of a server, a running server, and clients of it."""

    store: Store
    clock: ManualClock
    directory: Directory
    task_manager: TaskManager
    cluster: Cluster
    scheduling: FakeScheduling
    logs: LogStore
    home: Path
    secret: bytes = b"of run tokens"
    registries: FakeRegistries = field(default_factory=FakeRegistries)
    image_check: str = ""
    launcher: str = "process"
    service: ApiServer | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    wheel_bytes: list[int] = field(default_factory=list)
    sent_requests: list[WebhookRequest] = field(default_factory=list)
    limits: CallLimits = field(default_factory=CallLimits)
    _channels: list[aio.Channel] = field(default_factory=list)

    @cached_property
    def workspaces(self) -> Workspaces:
        root = self.home / "workspaces"
        return Workspaces(
            root,
            self.task_manager.unfinished,
            self.directory,
            self.clock,
            self.store.add_audit,
        )

    @cached_property
    def pins(self) -> WorkspacePins:
        return WorkspacePins(self.workspaces, lambda directory: str(self.home / directory.below))

    def __post_init__(self) -> None:
        self.hub = ConnectedAgents()
        self.tunnels = Tunnels(self.hub)
        self.board = ServiceStates(self.clock)
        self.usage = Usage(self.store, self.task_manager, self.cluster, self.clock)
        self.fake_launcher = FakeLauncher([])
        self.gpus = GpuStates(self.fake_launcher, self.cluster, self.clock)

    async def start(self) -> None:
        await self.directory.load()
        for user in USERS.values():
            await self.directory.create_user(user)
        await self.cluster.update_nodes([Node(f"n{i}", gpus=8) for i in range(4)])
        await self.task_manager.load()
        self.service = await serve(self.api_deps(), Endpoint("127.0.0.1:0", limits=self.limits))

    @cached_property
    def environments(self) -> Environments:
        root = self.home / "environments"
        return Environments(root, self.store, self.directory, self.task_manager, self.clock)

    @cached_property
    def haienv(self) -> Haienv:
        """A program that replaces haienv."""
        program = fake_haienv(self.home / "haienv", BUILDER)
        return Haienv(self.environments.root, pods=False, program=program)

    @cached_property
    def webhook_deps(self) -> WebhookDeps:
        """Requests to webhooks are appended to `sent_requests` instead of being sent."""
        known, origins = Webhooks(self.store), {"https://hooks.example.org"}

        async def post(request: WebhookRequest, format: Format) -> None:
            self.sent_requests.append(request)
            if "refuses" in request.url:
                raise Unavailable("https://hooks.example.org did not take it: it answered 404")

        terms = DeliveryPolicy("lab", origins)
        notifying = Notifications(self.store, known, self.clock, post, terms, asyncio.ensure_future)
        return WebhookDeps(known, notifying, origins, self.clock)

    def api_deps(self) -> ApiDeps:
        return ApiDeps(
            store=self.store,
            clock=self.clock,
            directory=self.directory,
            task_manager=self.task_manager,
            scheduling=self.scheduling,
            cluster=self.cluster,
            logs=self.logs,
            log_following_begins=lambda task_id: None,
            usage=self.usage,
            gpus=self.gpus,
            goodput=lambda task: goodput(task, History(), self.clock.now()),
            with_unsaved=lambda task: task,
            save_history=SaveHistory(self.store),
            workspaces=self.workspaces,
            environments=self.environments,
            haienv=self.haienv,
            wheels_directory=self.home / "wheels",
            workspace_pins=self.pins,
            agents=AgentService(self._agent_deps()),
            connected_agents=self.hub,
            tunnels=self.tunnels,
            service_states=self.board,
            browsers=NoBrowsers(),
            forecasts=Forecasts(self.scheduling, Policy(), self.clock),
            webhooks=self.webhook_deps,
            remove_container=self._nothing_to_remove,
            registries=self.registries,
            image_check=self.image_check,
            launcher=self.launcher,
            launcher_images=frozenset({"default", "of-the-launcher"}),
            record_wheel_bytes=self.wheel_bytes.append,
            observe_call=lambda method, code, seconds: self.calls.append((method, code)),
        )

    async def _nothing_to_remove(self, task_id: int) -> None:
        """Do nothing: there is no launcher."""

    def _agent_deps(self) -> AgentDeps:
        return AgentDeps(
            task_manager=self.task_manager,
            connected_agents=self.hub,
            executor=Executor(FakeLauncher([]), self.hub, str, self.cluster.nodes().get),
            logs=self.logs,
            confirm=self.store.require_leader,
            clock=self.clock,
            secret=self.secret,
            cluster=self.cluster,
            path_in_rank=lambda directory: str(self.home / directory.below),
            environment_pinning=EnvironmentPinning(self.environments),
            workspace_path=self.pins.path,
            record_checkpoint=lambda key, report: None,
            record_use=self.usage.record,
            record_gpus=self.gpus.record,
            tunnels=self.tunnels,
            base_url=lambda task_id, service: "/",
            record_services=self._record_services,
            check_level=lambda task, number: task.priority,
        )

    def _record_services(self, task: Task, key: RankKey, said: ServicesReported) -> None:
        idle = said.idle_seconds if said.HasField("idle_seconds") else None
        self.board.report(key, said.services, idle)

    async def token(self, user: str, scope: TokenScope = TokenScope.ALL, **more: Any) -> str:
        return (await self.directory.create_token(user, scope, self.clock.now(), **more))[1]

    async def caller(self, user: str, scope: TokenScope = TokenScope.ALL) -> Caller:
        return self.with_token(await self.token(user, scope))

    def with_token(self, token: str | None) -> Caller:
        assert self.service is not None
        # Channels to the same address would share a connection without their own subchannel pool
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = aio.insecure_channel(self.service.address, options=options)
        self._channels.append(channel)
        return Caller(channel, token)

    async def stop(self) -> None:
        for channel in self._channels:
            await channel.close()
        if self.service is not None:
            await self.service.stop(0)
        await self.workspaces.close()


class Caller:
    """Stubs whose calls carry a token: `await caller.tasks.GetTask(request)`."""

    def __init__(self, channel: aio.Channel, token: str | None) -> None:
        self.channel = channel
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self.tasks = self._bound(TaskServiceStub(channel))
        self.nodes = self._bound(NodeServiceStub(channel))
        self.watches = self._bound(WatchServiceStub(channel))
        self.users = self._bound(UserServiceStub(channel))
        self.logs = self._bound(LogServiceStub(channel))
        self.ports = self._bound(PortServiceStub(channel))
        self.artifacts = self._bound(ArtifactServiceStub(channel))
        self.datasets = self._bound(DatasetServiceStub(channel))
        self.environments = self._bound(EnvironmentServiceStub(channel))
        self.messages = self._bound(MessageServiceStub(channel))
        self.webhooks = self._bound(WebhookServiceStub(channel))
        self.storage = self._bound(StorageServiceStub(channel))
        self.images = self._bound(ImageServiceStub(channel))
        self.server = self._bound(ServerServiceStub(channel))
        self.tunnels = self._bound(TunnelServiceStub(channel))
        self.containers = self._bound(ContainerServiceStub(channel))
        self.usage = self._bound(UsageServiceStub(channel))
        self.audit = self._bound(AuditServiceStub(channel))

    def _bound(self, stub: Any) -> Any:
        return _Bound(stub, self._metadata)


class _Bound:
    def __init__(self, stub: Any, metadata: Any) -> None:
        self._stub = stub
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._stub, name)
        return lambda request, timeout=20: call(request, metadata=self._metadata, timeout=timeout)


@dataclass(frozen=True)
class Refusal:
    """The error that the caller of a refused call gets."""

    code: grpc.StatusCode
    reason: str
    message: str
    violations: tuple[tuple[str, str], ...]
    details: tuple[Any, ...]


@asynccontextmanager
async def refused() -> AsyncIterator[list[Refusal]]:
    """Check that the calls inside are refused: `async with refused() as why: …`. `why[0]` is the refusal."""
    found: list[Refusal] = []
    with pytest.raises(aio.AioRpcError) as caught:
        yield found
    found.append(refusal(caught.value))


def refusal(error: aio.AioRpcError) -> Refusal:
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b""))
    details = [_unpacked(detail) for detail in status.details]
    infos = [d for d in details if isinstance(d, error_details_pb2.ErrorInfo)]
    bad = [d for d in details if isinstance(d, error_details_pb2.BadRequest)]
    return Refusal(
        error.code(),
        infos[0].reason if infos else "",
        error.details() or "",
        tuple((v.field, v.description) for b in bad for v in b.field_violations),
        tuple(details),
    )


def _unpacked(packed: Any) -> Any:
    for kind in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.RetryInfo,
    ):
        if packed.Is(kind.DESCRIPTOR):
            message = kind()
            packed.Unpack(message)
            return message
    raise AssertionError(packed)


def a_request_spec(name: str = "t", **resource: Any) -> task_spec_pb2.TaskSpec:
    """Return the smallest valid spec."""
    spec = task_spec_pb2.TaskSpec(version=2, name=name)
    spec.spec.entrypoint = "train.py"
    for key, value in resource.items():
        setattr(spec.resource, key, value)
    return spec


@pytest.fixture
def make_spec() -> Any:
    return a_request_spec


@pytest.fixture
def expect_refusal() -> Any:
    return refused


@pytest.fixture
def call_limits() -> CallLimits:
    return CallLimits()


@pytest.fixture
def image_check() -> str:
    return ""


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with default_store() as made:
        yield made


@pytest.fixture
def launcher() -> str:
    return "process"


@pytest.fixture
async def platform(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    call_limits: CallLimits,
    image_check: str,
    launcher: str,
) -> AsyncIterator[Platform]:
    monkeypatch.setattr(watch, "BUNDLE_SECONDS", 0.0)
    clock = ManualClock()
    task_manager = TaskManager(
        store, clock, ChangeFeed(), perform=lambda task, what: None, changed=lambda *change: None
    )
    cluster = Cluster(store, clock, changed=lambda: None)
    made = Platform(
        store,
        clock,
        Directory(store),
        task_manager,
        cluster,
        FakeScheduling(),
        LogStore(tmp_path, 1 << 20),
        tmp_path,
        limits=call_limits,
        image_check=image_check,
        launcher=launcher,
    )
    await made.start()
    yield made
    await made.stop()
