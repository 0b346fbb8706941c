"""Joins the services to the rooms that they stand on: the one place that knows what each is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from hai.v1.agent_service_pb2_grpc import AgentServiceServicer
from hai_backend.auth.directory import Directory
from hai_backend.domain.task import Task
from hai_backend.domain.timing import Timing
from hai_backend.domain.workspace import Pushed
from hai_backend.environments.haienv import Haienv
from hai_backend.environments.wheels import Wheels
from hai_backend.loops.clock import Clock
from hai_backend.loops.hub import Hub
from hai_backend.loops.service_board import ServiceBoard
from hai_backend.loops.tunnels import Tunnels
from hai_backend.loops.usage import Usage
from hai_backend.registry.client import RegistryClient
from hai_backend.sched.policy import Policy
from hai_backend.services.artifact_service import ArtifactService
from hai_backend.services.artifacts import Artifacts
from hai_backend.services.audit_service import AuditService
from hai_backend.services.capacity import Capacity
from hai_backend.services.certificates import Certificates
from hai_backend.services.container_service import ContainerRooms, ContainerService
from hai_backend.services.containers import Browsers
from hai_backend.services.dataset_service import DatasetService
from hai_backend.services.environment_building import EnvironmentBuilding
from hai_backend.services.environment_choice import EnvironmentChoice
from hai_backend.services.environment_service import EnvironmentService
from hai_backend.services.environments import Environments
from hai_backend.services.forecasting import Forecasting
from hai_backend.services.foresight import Foresight
from hai_backend.services.image_service import ImageService
from hai_backend.services.images import Checking, Images, Registries
from hai_backend.services.interceptors import Gate
from hai_backend.services.limits import DEFAULTS, CallLimits
from hai_backend.services.log_service import LogService
from hai_backend.services.message_service import MessageService
from hai_backend.services.node_board import NodeBoard
from hai_backend.services.node_groups import GroupRooms, NodeGroups
from hai_backend.services.node_ports import NodePorts
from hai_backend.services.node_service import NodeService
from hai_backend.services.port_service import PortService
from hai_backend.services.ports import Cluster, Ledger, Logs, Scheduling
from hai_backend.services.server import Endpoint, Listening, Servicers, build_server, handlers
from hai_backend.services.server_service import ServerService
from hai_backend.services.shares import Shares
from hai_backend.services.storage import Storage
from hai_backend.services.storage_service import StorageService
from hai_backend.services.submitting import ContainerTerms, Submitting
from hai_backend.services.switchboard import Here, Switchboard
from hai_backend.services.task_access import TaskAccess
from hai_backend.services.task_rooms import TaskRooms
from hai_backend.services.task_service import TaskService
from hai_backend.services.tunnel_service import TunnelRooms, TunnelService
from hai_backend.services.usage_service import UsageService
from hai_backend.services.user_service import UserService
from hai_backend.services.watch_service import WatchService
from hai_backend.services.webhook_service import WebhookRooms, WebhookService
from hai_backend.services.workspace_following import WorkspaceFollowing
from hai_backend.services.workspace_pins import WorkspacePins
from hai_backend.services.workspace_pushing import Pushing
from hai_backend.services.workspace_revisions import Revisions
from hai_backend.services.workspace_service import WorkspaceService
from hai_backend.services.workspace_task_trees import TaskTrees
from hai_backend.services.workspace_trees import Trees
from hai_backend.services.workspaces import Workspaces
from hai_backend.store.base import Store
from hai_backend.tasks.goodput import Goodput


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything below the services. `observe` is told of each call: method, code, seconds."""

    store: Store
    clock: Clock
    directory: Directory
    ledger: Ledger
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
    hub: Hub
    tunnels: Tunnels
    board: ServiceBoard
    browsers: Browsers
    forecasting: Forecasting
    webhooks: WebhookRooms
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
    switchboard = Switchboard()
    listening = build_server(endpoint, switchboard)
    await listening.start()
    await listening.show_health(serving=True)
    switchboard.to(Here(gate_of(parts, endpoint.limits), handlers(servicers(parts))))
    return listening


def gate_of(parts: Parts, limits: CallLimits = DEFAULTS) -> Gate:
    """The gate before the services. Who may not stay leaves at once."""
    gate = Gate(
        parts.directory, parts.store.add_audit, parts.clock, limits=limits, observe=parts.observe
    )
    parts.directory.checking.append(gate.check)
    return gate


def servicers(parts: Parts) -> Servicers:
    """One of each service."""
    capacity = Capacity(parts.cluster)
    access = TaskAccess(parts.ledger, parts.directory)
    board = NodeBoard(parts.cluster, parts.ledger, parts.clock)
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
            parts.ledger,
            parts.clock,
            Shares(parts.directory, parts.ledger, capacity),
        ),
        artifacts=ArtifactService(Artifacts(parts.store, parts.directory), access, parts.clock),
        datasets=DatasetService(parts.store, parts.clock),
        environments=EnvironmentService(
            parts.environments, _building(parts), parts.directory, parts.clock
        ),
        messages=MessageService(parts.store, parts.directory, parts.clock),
        webhooks=WebhookService(parts.webhooks),
        ports=PortService(NodePorts(parts.store, parts.directory, parts.clock, parts.node_ports)),
        storage=StorageService(Storage(parts.store, parts.directory), access),
        images=ImageService(parts.store, images),
        workspaces=WorkspaceService(
            parts.workspaces,
            trees,
            WorkspaceFollowing(parts.workspaces.rooms, trees),
            Pushing(parts.workspaces, parts.store.confirm, parts.pushed),
            Revisions(parts.workspaces, parts.store.confirm),
            TaskTrees(parts.workspaces, parts.store.confirm),
        ),
        logs=LogService(parts.logs, parts.ledger, access),
        usage=UsageService(
            parts.store, parts.usage, access, parts.ledger, parts.cluster, parts.clock
        ),
        audit=AuditService(parts.store),
        tunnels=TunnelService(_tunnel_rooms(parts, access)),
        containers=ContainerService(_container_rooms(parts, access)),
        server=ServerService(parts.name, parts.launcher, parts.clock, parts.certificates),
        agents=parts.agents,
    )


def _tunnel_rooms(parts: Parts, access: TaskAccess) -> TunnelRooms:
    return TunnelRooms(parts.tunnels, access, parts.directory, parts.clock, parts.store.add_audit)


def _container_rooms(parts: Parts, access: TaskAccess) -> ContainerRooms:
    return ContainerRooms(
        ledger=parts.ledger,
        access=access,
        hub=parts.hub,
        board=parts.board,
        browsers=parts.browsers,
        clock=parts.clock,
        remove=parts.remove_container,
    )


def _building(parts: Parts) -> EnvironmentBuilding:
    wheels = Wheels(parts.wheels)
    return EnvironmentBuilding(
        parts.environments, parts.haienv, wheels, parts.wheels_kept, parts.clock
    )


def _group_rooms(parts: Parts, capacity: Capacity) -> GroupRooms:
    return GroupRooms(parts.cluster, parts.ledger, parts.scheduling, capacity, parts.policy)


def _checking(parts: Parts) -> Checking:
    """What a submission does about its image; the process launcher runs none."""
    usual = Checking.OFF if parts.launcher == "process" else Checking.WARN
    return Checking(parts.image_check) if parts.image_check else usual


def _task_rooms(parts: Parts, capacity: Capacity, images: Images) -> TaskRooms:
    return TaskRooms(
        ledger=parts.ledger,
        store=parts.store,
        scheduling=parts.scheduling,
        cluster=parts.cluster,
        directory=parts.directory,
        submitting=Submitting(
            parts.ledger,
            parts.store,
            parts.directory,
            capacity,
            parts.policy,
            parts.clock,
            images=images,
            containers=parts.containers,
            environments=EnvironmentChoice(parts.environments),
            workspaces=parts.pins,
            storage=None if parts.launcher == "process" else Storage(parts.store, parts.directory),
        ),
        clock=parts.clock,
        goodput=parts.goodput,
        foresight=Foresight(parts.scheduling, parts.policy, parts.clock),
        forecasting=parts.forecasting,
        timing=parts.timing,
    )
