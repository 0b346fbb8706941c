"""Builds all services from the parts of the server. The only module that knows the arguments of every service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from hai.v1 import (
    agent_service_pb2_grpc,
    artifact_service_pb2_grpc,
    audit_service_pb2_grpc,
    container_service_pb2_grpc,
    dataset_service_pb2_grpc,
    environment_service_pb2_grpc,
    image_service_pb2_grpc,
    log_service_pb2_grpc,
    message_service_pb2_grpc,
    node_service_pb2_grpc,
    port_service_pb2_grpc,
    server_service_pb2_grpc,
    storage_service_pb2_grpc,
    task_service_pb2_grpc,
    tunnel_service_pb2_grpc,
    usage_service_pb2_grpc,
    user_service_pb2_grpc,
    watch_service_pb2_grpc,
    webhook_service_pb2_grpc,
    workspace_service_pb2_grpc,
)
from hai_backend.api.agents.service import AgentService
from hai_backend.api.artifacts.artifacts import Artifacts
from hai_backend.api.artifacts.service import ArtifactService
from hai_backend.api.audit.service import AuditService
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
from hai_backend.api.nodes.gpus import NodeGpus
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
from hai_backend.api.server.call_guard import CallGuard
from hai_backend.api.server.certificates import Certificates
from hai_backend.api.server.router import LocalRoute, Router
from hai_backend.api.server.server import (
    ApiServer,
    Endpoint,
    Registration,
    build_server,
    collect_handlers,
)
from hai_backend.api.server.server_service import ServerService
from hai_backend.api.server.watch_service import WatchService
from hai_backend.api.storage.service import StorageService
from hai_backend.api.storage.storage import MountRules
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tasks.log_service import LogService
from hai_backend.api.tasks.service import TaskService
from hai_backend.api.tasks.service_deps import TaskDeps
from hai_backend.api.tasks.submission import ContainerTerms, Submission
from hai_backend.api.tunnels.service import TunnelDeps, TunnelService
from hai_backend.api.usage.service import UsageService
from hai_backend.api.users.service import UserService
from hai_backend.api.users.shares import Shares
from hai_backend.api.watch.cache import WatchCache
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
from hai_backend.controllers.metrics.gpus import GpuStates
from hai_backend.controllers.metrics.usage import Usage
from hai_backend.controllers.tasks.save_history import SaveHistory
from hai_backend.domain.task import Task
from hai_backend.domain.timing import Timing
from hai_backend.domain.workspace import Pushed
from hai_backend.environments.haienv import Haienv
from hai_backend.environments.wheels import Wheels
from hai_backend.image_registry.client import RegistryClient
from hai_backend.lifecycle.goodput import Goodput
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.store.base import Store


@dataclass(frozen=True, slots=True)
class ApiDeps:
    """The parts of the server that the services need."""

    store: Store
    clock: Clock
    directory: Directory
    task_manager: TaskManager
    scheduling: Scheduling
    cluster: Cluster
    logs: Logs
    log_following_begins: Callable[[int], None]  # somebody follows the log of this task now
    usage: Usage
    gpus: GpuStates
    goodput: Callable[[Task], Goodput]
    with_unsaved: Callable[[Task], Task]
    save_history: SaveHistory
    workspaces: Workspaces
    environments: Environments
    haienv: Haienv
    wheels_directory: Path
    workspace_pins: WorkspacePins
    agents: AgentService
    connected_agents: ConnectedAgents
    tunnels: Tunnels
    service_states: ServiceStates
    browsers: Browsers
    forecasts: Forecasts
    webhooks: WebhookDeps
    remove_container: Callable[[int], Awaitable[None]]  # the directory of the container of a task
    containers: ContainerTerms = field(default_factory=ContainerTerms)
    policy: Policy = field(default_factory=Policy)
    timing: Timing = field(default_factory=Timing)
    cluster_name: str = "local"
    launcher: str = "process"
    certificates: Certificates | None = None
    watched_labels: frozenset[str] = frozenset()  # in Kubernetes: they set group, zone, topology
    node_ports: range = range(30_000, 32_768)
    image_check: str = ""  # as in config.Settings
    launcher_images: frozenset[str] = frozenset({"default"})  # names that the launcher resolves
    registries: Registries = field(default_factory=RegistryClient)
    observe_call: Callable[[str, str, float], None] = lambda method, code, seconds: None
    observe_streams: Callable[[int], None] = lambda count: None  # streams that watch tasks
    record_push: Callable[[Pushed], None] = lambda push: None
    record_wheel_bytes: Callable[[int], None] = lambda size: None


async def serve(deps: ApiDeps, endpoint: Endpoint) -> ApiServer:
    """Start a server that answers with these parts. Raises Invalid or Unavailable."""
    router = Router()
    server = build_server(endpoint, router)
    await server.start()
    await server.set_health(serving=True)
    guard = build_call_guard(deps, endpoint.limits)
    router.route_to(LocalRoute(guard, collect_handlers(build_services(deps))))
    return server


def build_call_guard(deps: ApiDeps, limits: CallLimits = DEFAULTS) -> CallGuard:
    """Return a guard whose open streams end as soon as their users lose the permission for them."""
    guard = CallGuard(
        deps.directory, deps.store.add_audit, deps.clock, limits=limits, observe=deps.observe_call
    )
    deps.directory.checks.append(guard.check_open_streams)
    return guard


def build_services(deps: ApiDeps) -> list[Registration]:
    """Return every service with the generated function that registers it. A new service gets a row here."""
    capacity = Capacity(deps.cluster)
    access = TaskAccess(deps.task_manager, deps.directory)
    images = Images(
        deps.store, deps.registries, deps.clock, _image_check(deps), deps.launcher_images
    )
    tasks = TaskService(_task_deps(deps, capacity, images))
    nodes = NodeService(
        deps.cluster,
        NodeTenants(deps.cluster, deps.task_manager, deps.clock),
        access,
        NodeGroups(_group_deps(deps, capacity)),
        NodeGpus(deps.gpus, deps.task_manager),
        deps.scheduling,
        deps.watched_labels,
    )
    trees = Trees(deps.workspaces)
    return [
        (task_service_pb2_grpc.add_TaskServiceServicer_to_server, tasks),
        (node_service_pb2_grpc.add_NodeServiceServicer_to_server, nodes),
        (watch_service_pb2_grpc.add_WatchServiceServicer_to_server, WatchService(tasks, nodes)),
        (
            user_service_pb2_grpc.add_UserServiceServicer_to_server,
            UserService(
                deps.directory,
                deps.task_manager,
                deps.clock,
                Shares(deps.directory, deps.task_manager, capacity),
            ),
        ),
        (
            artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server,
            ArtifactService(Artifacts(deps.store, deps.directory), access, deps.clock),
        ),
        (
            dataset_service_pb2_grpc.add_DatasetServiceServicer_to_server,
            DatasetService(deps.store, deps.clock),
        ),
        (
            environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
            EnvironmentService(
                deps.environments, _environment_builder(deps), deps.directory, deps.clock
            ),
        ),
        (
            message_service_pb2_grpc.add_MessageServiceServicer_to_server,
            MessageService(deps.store, deps.directory, deps.clock),
        ),
        (
            webhook_service_pb2_grpc.add_WebhookServiceServicer_to_server,
            WebhookService(deps.webhooks),
        ),
        (
            port_service_pb2_grpc.add_PortServiceServicer_to_server,
            PortService(NodePorts(deps.store, deps.directory, deps.clock, deps.node_ports)),
        ),
        (
            storage_service_pb2_grpc.add_StorageServiceServicer_to_server,
            StorageService(MountRules(deps.store, deps.directory), access),
        ),
        (
            image_service_pb2_grpc.add_ImageServiceServicer_to_server,
            ImageService(deps.store, images),
        ),
        (
            workspace_service_pb2_grpc.add_WorkspaceServiceServicer_to_server,
            WorkspaceService(
                deps.workspaces,
                trees,
                ClusterChangeWatcher(deps.workspaces.registry, trees),
                PushHandler(deps.workspaces, deps.store.require_leader, deps.record_push),
                Revisions(deps.workspaces, deps.store.require_leader),
                TaskTrees(deps.workspaces, deps.store.require_leader),
            ),
        ),
        (
            log_service_pb2_grpc.add_LogServiceServicer_to_server,
            LogService(deps.logs, deps.task_manager, access, deps.log_following_begins),
        ),
        (
            usage_service_pb2_grpc.add_UsageServiceServicer_to_server,
            UsageService(
                deps.store, deps.usage, access, deps.task_manager, deps.cluster, deps.clock
            ),
        ),
        (audit_service_pb2_grpc.add_AuditServiceServicer_to_server, AuditService(deps.store)),
        (
            tunnel_service_pb2_grpc.add_TunnelServiceServicer_to_server,
            TunnelService(
                TunnelDeps(deps.tunnels, access, deps.directory, deps.clock, deps.store.add_audit)
            ),
        ),
        (
            container_service_pb2_grpc.add_ContainerServiceServicer_to_server,
            ContainerService(
                ContainerDeps(
                    task_manager=deps.task_manager,
                    access=access,
                    agents=deps.connected_agents,
                    service_states=deps.service_states,
                    browsers=deps.browsers,
                    clock=deps.clock,
                    remove_directory=deps.remove_container,
                )
            ),
        ),
        (
            server_service_pb2_grpc.add_ServerServiceServicer_to_server,
            ServerService(deps.cluster_name, deps.launcher, deps.clock, deps.certificates),
        ),
        (agent_service_pb2_grpc.add_AgentServiceServicer_to_server, deps.agents),
    ]


def _environment_builder(deps: ApiDeps) -> EnvironmentBuilder:
    wheels = Wheels(deps.wheels_directory)
    return EnvironmentBuilder(
        deps.environments, deps.haienv, wheels, deps.record_wheel_bytes, deps.clock
    )


def _group_deps(deps: ApiDeps, capacity: Capacity) -> GroupDeps:
    return GroupDeps(deps.cluster, deps.task_manager, deps.scheduling, capacity, deps.policy)


def _image_check(deps: ApiDeps) -> ImageCheck:
    """Return how submissions check their image. The default is off where the launcher runs no images."""
    default = ImageCheck.OFF if deps.launcher == "process" else ImageCheck.WARN
    return ImageCheck(deps.image_check) if deps.image_check else default


def _task_deps(deps: ApiDeps, capacity: Capacity, images: Images) -> TaskDeps:
    return TaskDeps(
        task_manager=deps.task_manager,
        store=deps.store,
        scheduling=deps.scheduling,
        cluster=deps.cluster,
        directory=deps.directory,
        watch_cache=WatchCache(
            deps.store, deps.task_manager, deps.directory.groups_of, deps.observe_streams
        ),
        dropped_logs=deps.logs.dropped,
        gpus=deps.gpus,
        submission=Submission(
            deps.task_manager,
            deps.store,
            deps.directory,
            capacity,
            deps.policy,
            deps.clock,
            images=images,
            containers=deps.containers,
            environments=EnvironmentChoice(deps.environments),
            workspaces=deps.workspace_pins,
            mount_rules=None
            if deps.launcher == "process"
            else MountRules(deps.store, deps.directory),
            save_history=deps.save_history,
        ),
        clock=deps.clock,
        goodput=deps.goodput,
        with_unsaved=deps.with_unsaved,
        what_if=WhatIf(deps.scheduling, deps.policy, deps.clock),
        forecasts=deps.forecasts,
        timing=deps.timing,
    )
