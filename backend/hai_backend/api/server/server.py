"""The gRPC server: its address, its options and the handlers of the services.

The server never shares its port: a second server on the same port fails to start. Plaintext is allowed on loopback
addresses only, unless the operator sets `insecure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from hai_backend.api.request.limits import DEFAULTS, CallLimits
from hai_backend.api.server.call_context import Handler
from hai_backend.api.server.certificates import Certificates
from hai_backend.api.server.methods import service_names
from hai_backend.api.watch.wire import accept_encoded
from hai_backend.api.workspaces.push_reader import parse_manually
from hai_backend.domain.errors import Invalid, Unavailable, Violation

_PUSH_METHOD = "/hai.v1.WorkspaceService/PushTree"
_WATCH_METHODS = frozenset(
    {
        "/hai.v1.TaskService/WatchTasks",
        "/hai.v1.NodeService/WatchNodes",
        "/hai.v1.WatchService/Watch",
    }
)
_FRAME_BYTES = 4 << 20  # The default of 16 KiB makes uploads slow
LOOPBACK_PREFIXES = ("127.", "localhost:", "[::1]:", "unix:")

Registration = tuple[Callable[..., None], object]
"""A generated function `add_…Servicer_to_server`, and the service that it registers."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to listen. Without certificates the server speaks plaintext."""

    address: str
    certificates: Certificates | None = None
    insecure: bool = False
    limits: CallLimits = field(default=DEFAULTS)


class ApiServer:
    """A gRPC server that is bound to its port. Its health service reports when it is about to stop."""

    def __init__(
        self, server: aio.Server, address: str, names: Sequence[str], health: HealthServicer
    ) -> None:
        self.address = address
        self._server = server
        self._names = names
        self._health = health

    async def start(self) -> None:
        """Start to answer calls."""
        await self._server.start()

    async def set_health(self, serving: bool) -> None:
        """Set what the health service reports for every service."""
        status = health_pb2.HealthCheckResponse
        for name in ("", *self._names):
            await self._health.set(name, status.SERVING if serving else status.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Accept no new calls, let running calls finish for `grace` seconds, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)

    async def wait(self) -> None:
        """Wait until the server has stopped."""
        await self._server.wait_for_termination()


def build_server(endpoint: Endpoint, router: aio.ServerInterceptor) -> ApiServer:
    """Return a server that is bound to its port and not started yet.

    It answers health and reflection by itself; all other calls go to `router`. Raises Invalid or Unavailable.
    """
    credentials = _credentials(endpoint)
    server = aio.server(interceptors=[router], options=_options(endpoint.limits))
    names, health = service_names(), HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    health_name = str(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
    reflection.enable_server_reflection([*names, health_name, reflection.SERVICE_NAME], server)
    return ApiServer(server, _bind(server, endpoint.address, credentials), names, health)


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


def collect_handlers(services: Iterable[Registration]) -> dict[str, Handler]:
    """Return the handler of each method of these services."""
    collector = _HandlerCollector()
    for register, service in services:
        register(service, collector)
    collector.handlers[_PUSH_METHOD] = parse_manually(collector.handlers[_PUSH_METHOD])
    for method in _WATCH_METHODS & collector.handlers.keys():
        collector.handlers[method] = accept_encoded(collector.handlers[method])
    return collector.handlers


class _HandlerCollector:
    """Takes the place of a gRPC server in the generated registration functions, and collects their handlers."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, generic: object) -> None:
        """Ignore the handlers: generated code registers them a second time below."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        self.handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}


def _credentials(endpoint: Endpoint) -> grpc.ServerCredentials | None:
    if endpoint.certificates is not None:
        return endpoint.certificates.credentials()
    if not endpoint.insecure and not endpoint.address.startswith(LOOPBACK_PREFIXES):
        message = (
            f"{endpoint.address} can be reached from other machines, and tokens would be sent in plain text; "
            "set tls_cert and tls_key, listen on 127.0.0.1, or allow it with --insecure"
        )
        raise Invalid((Violation("listen", message),), reason="BAD_SETTINGS")
    return None


def _bind(server: aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Bind the server and return its address, in which port 0 is replaced by the port that was chosen."""
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
