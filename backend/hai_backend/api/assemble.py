"""Joins the services to the rooms that they stand on: the one place that knows what each is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from hai.v1.agent_service_pb2_grpc import AgentServiceServicer
from hai_backend.api.artifacts.artifacts import Artifacts
from hai_backend.api.artifacts.service import ArtifactService
from hai_backend.api.containers.containers import Browsers
from hai_backend.api.containers.service import ContainerDeps, ContainerService
from hai_backend.api.datasets.service import DatasetService
from hai_backend.api.environments.build import EnvironmentBuilder
from hai_backend.api.environments.choice import EnvironmentChoice
from hai_backend.api.environments.environments import Environments
from hai_backend.api.environments.service import EnvironmentService
from hai_backend.api.images.images import ImageCheck, Images, Registries
from hai_backend.api.images.service import ImageService
from hai_backend.api.messages.service import MessageService
from hai_backend.api.nodes.group_capacity import Capacity
from hai_backend.api.nodes.groups import GroupDeps, NodeGroups
from hai_backend.api.nodes.service import NodeService
from hai_backend.api.nodes.tenants import NodeTenants
from hai_backend.api.ports.reservations import NodePorts
from hai_backend.api.ports.service import PortService
from hai_backend.api.protocols import Cluster, Logs, Scheduling, TaskManager
from hai_backend.api.request.limits import DEFAULTS, CallLimits
from hai_backend.api.scheduling.forecasts import Forecasts
from hai_backend.api.scheduling.what_if import WhatIf
from hai_backend.api.server.audit_service import AuditService
from hai_backend.api.server.certificates import Certificates
from hai_backend.api.server.interceptors import Gate
from hai_backend.api.server.router import Here, Router
from hai_backend.api.server.server import Endpoint, Listening, Servicers, build_server, handlers
from hai_backend.api.server.server_service import ServerService
from hai_backend.api.server.watch_service import WatchService
from hai_backend.api.storage.service import StorageService
from hai_backend.api.storage.storage import MountRules
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tasks.dependencies import TaskDeps
from hai_backend.api.tasks.log_service import LogService
from hai_backend.api.tasks.service import TaskService
from hai_backend.api.tasks.submission import ContainerTerms, Submission
from hai_backend.api.tunnels.service import TunnelDeps, TunnelService
from hai_backend.api.usage.service import UsageService
from hai_backend.api.users.service import UserService
from hai_backend.api.users.shares import Shares
from hai_backend.api.webhooks.service import WebhookDeps, WebhookService
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.cluster_changes import ClusterChangeWatcher
from hai_backend.api.workspaces.pins import WorkspacePins
from hai_backend.api.workspaces.push import PushHandler
from hai_backend.api.workspaces.revisions import Revisions
from hai_backend.api.workspaces.service import WorkspaceService
from hai_backend.api.workspaces.task_trees import TaskTrees
from hai_backend.api.workspaces.trees import Trees
from hai_backend.auth.directory import Directory
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.controllers.metrics.usage import Usage
from hai_backend.domain.task import Task
from hai_backend.domain.timing import Timing
from hai_backend.domain.workspace import Pushed
from hai_backend.environments.haienv import Haienv
from hai_backend.environments.wheels import Wheels
from hai_backend.lifecycle.goodput import Goodput
from hai_backend.registry.client import RegistryClient
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.store.base import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything below the services. `observe` is told of each call: method, code, seconds."""

    store: Store
    clock: Clock
    directory: Directory
    task_manager: TaskManager
    scheduling: Scheduling
    cluster: Cluster
    logs: Logs
    usage: Usage
    goodput: Callable[[Task], Goodput]
    workspaces: Workspaces
    environments: Environments
    haienv: Haienv
    wheels: Path
    pins: WorkspacePins
    agents: AgentServiceServicer
    hub: ConnectedAgents
    tunnels: Tunnels
    board: ServiceStates
    browsers: Browsers
    forecasting: Forecasts
    webhooks: WebhookDeps
    remove_container: Callable[[int], Awaitable[None]]
    containers: ContainerTerms = field(default_factory=ContainerTerms)
    policy: Policy = field(default_factory=Policy)
    timing: Timing = field(default_factory=Timing)
    name: str = "local"
    launcher: str = "process"
    certificates: Certificates | None = None
    watched_labels: frozenset[str] = frozenset()  # of nodes in Kubernetes: they say what nodes are
    node_ports: range = range(30_000, 32_768)
    image_check: str = ""  # as in config.Settings
    launcher_images: frozenset[str] = frozenset({"default"})  # names that the launcher knows itself
    registries: Registries = field(default_factory=RegistryClient)
    observe: Callable[[str, str, float], None] = lambda method, code, seconds: None
    pushed: Callable[[Pushed], None] = lambda push: None
    wheels_kept: Callable[[int], None] = lambda size: None


async def serve(parts: Parts, endpoint: Endpoint) -> Listening:
    """Start answering with these parts. Raises Invalid or Unavailable."""
    router = Router()
    listening = build_server(endpoint, router)
    await listening.start()
    await listening.show_health(serving=True)
    router.to(Here(gate_of(parts, endpoint.limits), handlers(servicers(parts))))
    return listening


def gate_of(parts: Parts, limits: CallLimits = DEFAULTS) -> Gate:
    """The gate before the services. Who may not stay leaves at once."""
    gate = Gate(
        parts.directory, parts.store.add_audit, parts.clock, limits=limits, observe=parts.observe
    )
    parts.directory.checks.append(gate.check)
    return gate


def servicers(parts: Parts) -> Servicers:
    """One of each service."""
    capacity = Capacity(parts.cluster)
    access = TaskAccess(parts.task_manager, parts.directory)
    board = NodeTenants(parts.cluster, parts.task_manager, parts.clock)
    images = Images(
        parts.store, parts.registries, parts.clock, _checking(parts), parts.launcher_images
    )
    tasks = TaskService(_task_rooms(parts, capacity, images))
    groups = NodeGroups(_group_rooms(parts, capacity))
    nodes = NodeService(
        parts.cluster, board, access, groups, parts.scheduling, parts.watched_labels
    )
    trees = Trees(parts.workspaces)
    return Servicers(
        tasks=tasks,
        nodes=nodes,
        watches=WatchService(tasks, nodes),
        users=UserService(
            parts.directory,
            parts.task_manager,
            parts.clock,
            Shares(parts.directory, parts.task_manager, capacity),
        ),
        artifacts=ArtifactService(Artifacts(parts.store, parts.directory), access, parts.clock),
        datasets=DatasetService(parts.store, parts.clock),
        environments=EnvironmentService(
            parts.environments, _building(parts), parts.directory, parts.clock
        ),
        messages=MessageService(parts.store, parts.directory, parts.clock),
        webhooks=WebhookService(parts.webhooks),
        ports=PortService(NodePorts(parts.store, parts.directory, parts.clock, parts.node_ports)),
        storage=StorageService(MountRules(parts.store, parts.directory), access),
        images=ImageService(parts.store, images),
        workspaces=WorkspaceService(
            parts.workspaces,
            trees,
            ClusterChangeWatcher(parts.workspaces.registry, trees),
            PushHandler(parts.workspaces, parts.store.confirm, parts.pushed),
            Revisions(parts.workspaces, parts.store.confirm),
            TaskTrees(parts.workspaces, parts.store.confirm),
        ),
        logs=LogService(parts.logs, parts.task_manager, access),
        usage=UsageService(
            parts.store, parts.usage, access, parts.task_manager, parts.cluster, parts.clock
        ),
        audit=AuditService(parts.store),
        tunnels=TunnelService(_tunnel_rooms(parts, access)),
        containers=ContainerService(_container_rooms(parts, access)),
        server=ServerService(parts.name, parts.launcher, parts.clock, parts.certificates),
        agents=parts.agents,
    )


def _tunnel_rooms(parts: Parts, access: TaskAccess) -> TunnelDeps:
    return TunnelDeps(parts.tunnels, access, parts.directory, parts.clock, parts.store.add_audit)


def _container_rooms(parts: Parts, access: TaskAccess) -> ContainerDeps:
    return ContainerDeps(
        task_manager=parts.task_manager,
        access=access,
        agents=parts.hub,
        service_states=parts.board,
        browsers=parts.browsers,
        clock=parts.clock,
        remove_directory=parts.remove_container,
    )


def _building(parts: Parts) -> EnvironmentBuilder:
    wheels = Wheels(parts.wheels)
    return EnvironmentBuilder(
        parts.environments, parts.haienv, wheels, parts.wheels_kept, parts.clock
    )


def _group_rooms(parts: Parts, capacity: Capacity) -> GroupDeps:
    return GroupDeps(parts.cluster, parts.task_manager, parts.scheduling, capacity, parts.policy)


def _checking(parts: Parts) -> ImageCheck:
    """What a submission does about its image; the process launcher runs none."""
    usual = ImageCheck.OFF if parts.launcher == "process" else ImageCheck.WARN
    return ImageCheck(parts.image_check) if parts.image_check else usual


def _task_rooms(parts: Parts, capacity: Capacity, images: Images) -> TaskDeps:
    return TaskDeps(
        task_manager=parts.task_manager,
        store=parts.store,
        scheduling=parts.scheduling,
        cluster=parts.cluster,
        directory=parts.directory,
        dropped_logs=parts.logs.dropped,
        submitting=Submission(
            parts.task_manager,
            parts.store,
            parts.directory,
            capacity,
            parts.policy,
            parts.clock,
            images=images,
            containers=parts.containers,
            environments=EnvironmentChoice(parts.environments),
            workspaces=parts.pins,
            storage=None
            if parts.launcher == "process"
            else MountRules(parts.store, parts.directory),
        ),
        clock=parts.clock,
        goodput=parts.goodput,
        foresight=WhatIf(parts.scheduling, parts.policy, parts.clock),
        forecasting=parts.forecasting,
        timing=parts.timing,
    )
