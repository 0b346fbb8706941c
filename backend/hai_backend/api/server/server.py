"""The gRPC server: where it listens, what it answers, and what it refuses to be.

It never shares its port: a second server on it is an error, not a silent rival. Plaintext is for this machine only,
unless the operator says `insecure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

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
from hai_backend.api.request.limits import DEFAULTS, CallLimits
from hai_backend.api.server.certificates import Certificates
from hai_backend.api.server.handler_wrapper import Handler
from hai_backend.api.server.methods import service_names
from hai_backend.api.workspaces.push_reader import parse_manually
from hai_backend.domain.errors import Invalid, Unavailable, Violation

_PUSH = "/hai.v1.WorkspaceService/PushTree"
_FRAME_BYTES = 4 << 20  # of what clients send at once; grpc cuts it into 16 KB unless told
LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to listen. No certificates: plaintext."""

    address: str
    certificates: Certificates | None = None
    insecure: bool = False
    limits: CallLimits = field(default=DEFAULTS)


@dataclass(frozen=True, slots=True)
class Servicers:
    """One of each service."""

    tasks: task_service_pb2_grpc.TaskServiceServicer
    nodes: node_service_pb2_grpc.NodeServiceServicer
    users: user_service_pb2_grpc.UserServiceServicer
    artifacts: artifact_service_pb2_grpc.ArtifactServiceServicer
    datasets: dataset_service_pb2_grpc.DatasetServiceServicer
    environments: environment_service_pb2_grpc.EnvironmentServiceServicer
    messages: message_service_pb2_grpc.MessageServiceServicer
    webhooks: webhook_service_pb2_grpc.WebhookServiceServicer
    ports: port_service_pb2_grpc.PortServiceServicer
    storage: storage_service_pb2_grpc.StorageServiceServicer
    images: image_service_pb2_grpc.ImageServiceServicer
    workspaces: workspace_service_pb2_grpc.WorkspaceServiceServicer
    logs: log_service_pb2_grpc.LogServiceServicer
    usage: usage_service_pb2_grpc.UsageServiceServicer
    audit: audit_service_pb2_grpc.AuditServiceServicer
    server: server_service_pb2_grpc.ServerServiceServicer
    tunnels: tunnel_service_pb2_grpc.TunnelServiceServicer
    containers: container_service_pb2_grpc.ContainerServiceServicer
    watches: watch_service_pb2_grpc.WatchServiceServicer
    agents: agent_service_pb2_grpc.AgentServiceServicer


class Listening:
    """A server that holds its port from the moment it is made. Health tells when it is about to leave."""

    def __init__(
        self, server: aio.Server, address: str, names: Sequence[str], health: HealthServicer
    ) -> None:
        self.address = address
        self._server = server
        self._names = names
        self._health = health

    async def start(self) -> None:
        """Answer calls."""
        await self._server.start()

    async def show_health(self, serving: bool) -> None:
        """What the health service says from now on."""
        status = health_pb2.HealthCheckResponse
        for name in ("", *self._names):
            await self._health.set(name, status.SERVING if serving else status.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Take no new calls, let running ones finish for `grace` seconds, then cut streams."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)

    async def wait(self) -> None:
        """Return when the server has stopped."""
        await self._server.wait_for_termination()


def build_server(endpoint: Endpoint, router: aio.ServerInterceptor) -> Listening:
    """A server that holds its port but has not started; calls go where the switchboard says.

    By itself it only knows health and reflection. Raises Invalid or Unavailable.
    """
    credentials = _credentials(endpoint)
    server = aio.server(interceptors=[router], options=_options(endpoint.limits))
    names, health = service_names(), HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection([*names, health_name(), reflection.SERVICE_NAME], server)
    return Listening(server, _bind(server, endpoint.address, credentials), names, health)


def health_name() -> str:
    """The full name of the health service."""
    return str(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)


def _options(limits: CallLimits) -> list[tuple[str, Any]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.max_concurrent_streams", limits.streams_per_connection),
        ("grpc.http2.max_frame_size", _FRAME_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


def handlers(servicers: Servicers) -> dict[str, Handler]:
    """What answers each method of these services."""
    rows: list[tuple[Callable[..., None], Any]] = [
        (task_service_pb2_grpc.add_TaskServiceServicer_to_server, servicers.tasks),
        (node_service_pb2_grpc.add_NodeServiceServicer_to_server, servicers.nodes),
        (user_service_pb2_grpc.add_UserServiceServicer_to_server, servicers.users),
        (artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server, servicers.artifacts),
        (dataset_service_pb2_grpc.add_DatasetServiceServicer_to_server, servicers.datasets),
        (
            environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
            servicers.environments,
        ),
        (message_service_pb2_grpc.add_MessageServiceServicer_to_server, servicers.messages),
        (webhook_service_pb2_grpc.add_WebhookServiceServicer_to_server, servicers.webhooks),
        (port_service_pb2_grpc.add_PortServiceServicer_to_server, servicers.ports),
        (storage_service_pb2_grpc.add_StorageServiceServicer_to_server, servicers.storage),
        (image_service_pb2_grpc.add_ImageServiceServicer_to_server, servicers.images),
        (
            workspace_service_pb2_grpc.add_WorkspaceServiceServicer_to_server,
            servicers.workspaces,
        ),
        (log_service_pb2_grpc.add_LogServiceServicer_to_server, servicers.logs),
        (usage_service_pb2_grpc.add_UsageServiceServicer_to_server, servicers.usage),
        (audit_service_pb2_grpc.add_AuditServiceServicer_to_server, servicers.audit),
        (tunnel_service_pb2_grpc.add_TunnelServiceServicer_to_server, servicers.tunnels),
        (container_service_pb2_grpc.add_ContainerServiceServicer_to_server, servicers.containers),
        (watch_service_pb2_grpc.add_WatchServiceServicer_to_server, servicers.watches),
        (server_service_pb2_grpc.add_ServerServiceServicer_to_server, servicers.server),
        (agent_service_pb2_grpc.add_AgentServiceServicer_to_server, servicers.agents),
    ]
    found = _Found()
    for register, servicer in rows:
        register(servicer, found)
    found.handlers[_PUSH] = parse_manually(found.handlers[_PUSH])
    return found.handlers


class _Found:
    """Stands for a server in generated code, which hands it the handlers of a service."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, generic: object) -> None:
        """The same handlers, the older way."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        self.handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}


def _credentials(endpoint: Endpoint) -> grpc.ServerCredentials | None:
    if endpoint.certificates is not None:
        return endpoint.certificates.credentials()
    if not endpoint.insecure and not endpoint.address.startswith(LOOPBACK):
        message = (
            f"{endpoint.address} can be reached from other machines, and tokens would travel in plain text; "
            "set tls_cert and tls_key, listen on 127.0.0.1, or allow it with --insecure"
        )
        raise Invalid((Violation("listen", message),), reason="BAD_SETTINGS")
    return None


def _bind(server: aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Where it really listens: port 0 becomes the one that was free."""
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise Unavailable(
            f"cannot listen on {address}: the address is taken (by another server?) or not one of this machine",
            reason="CANNOT_LISTEN",
        ) from error
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
