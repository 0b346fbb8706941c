"""Real grpc.aio servers with minimal services on a free loopback port, which a test can stop and restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc import aio
from grpc_status import rpc_status

from hai.client.profile import Profile
from hai.v1.log_service_pb2 import TailLogsRequest
from hai.v1.log_service_pb2_grpc import LogServiceServicer, add_LogServiceServicer_to_server
from hai.v1.server_service_pb2_grpc import (
    ServerServiceServicer,
    add_ServerServiceServicer_to_server,
)
from hai.v1.task_service_pb2 import WatchTasksRequest
from hai.v1.task_service_pb2_grpc import TaskServiceServicer, add_TaskServiceServicer_to_server

Answer = Callable[[Any, aio.ServicerContext], Awaitable[Any]]
Stream = Callable[[Any, aio.ServicerContext], AsyncIterator[Any]]


class Scripted:
    """A server whose answers a test sets in `unary[METHOD]` and `streams[METHOD]`. It records the calls."""

    def __init__(self) -> None:
        self.port = 0
        self.calls: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, Any]] = []
        self.unary: dict[str, Answer] = {}
        self.streams: dict[str, Stream] = {}
        self._server: aio.Server | None = None

    @property
    def profile(self) -> Profile:
        return Profile("test", f"127.0.0.1:{self.port}", "secret")

    async def start(self) -> None:
        """Start serving, on the same port as before."""
        server = aio.server(options=[("grpc.so_reuseport", 0)])
        add_TaskServiceServicer_to_server(_Tasks(self), server)
        add_LogServiceServicer_to_server(_Logs(self), server)
        add_ServerServiceServicer_to_server(_Server(self), server)
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server

    async def stop(self, grace: float | None = None) -> None:
        """Stop at once, so that streams and calls break. With grace, running ones may finish."""
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    async def answer(self, method: str, request: Any, context: aio.ServicerContext) -> Any:
        self._note(method, request, context)
        return await self.unary[method](request, context)

    def stream(self, method: str, request: Any, context: aio.ServicerContext) -> AsyncIterator[Any]:
        self._note(method, request, context)
        return self.streams[method](request, context)

    def _note(self, method: str, request: Any, context: aio.ServicerContext) -> None:
        self.calls.append((method, request))
        self.metadata.append(dict(context.invocation_metadata() or ()))


class _Tasks(TaskServiceServicer):
    def __init__(self, script: Scripted) -> None:
        for name in ("CreateTask", "DryRunTask", "GetTask", "SuspendTask", "ListTasks"):
            setattr(self, name, _bound(script, name))
        self._script = script

    async def WatchTasks(
        self, request: WatchTasksRequest, context: aio.ServicerContext
    ) -> AsyncIterator[Any]:
        async for answer in self._script.stream("WatchTasks", request, context):
            yield answer


class _Logs(LogServiceServicer):
    def __init__(self, script: Scripted) -> None:
        self._script = script

    async def TailLogs(
        self, request: TailLogsRequest, context: aio.ServicerContext
    ) -> AsyncIterator[Any]:
        async for answer in self._script.stream("TailLogs", request, context):
            yield answer


class _Server(ServerServiceServicer):
    def __init__(self, script: Scripted) -> None:
        self.GetServerInfo = _bound(script, "GetServerInfo")


def _bound(script: Scripted, name: str) -> Answer:
    async def call(request: Any, context: aio.ServicerContext) -> Any:
        return await script.answer(name, request, context)

    return call


def refusal(
    code: grpc.StatusCode, message: str, reason: str = "", fields: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """Return an answer that fails with google.rpc details, as the server writes them."""
    details: list[Any] = [ErrorInfo(reason=reason, domain="hai.dev")] if reason else []
    if fields:
        violations = [BadRequest.FieldViolation(field=f, description=d) for f, d in fields]
        details.append(BadRequest(field_violations=violations))

    async def refuse(request: Any, context: aio.ServicerContext) -> Any:
        status = Status(code=code.value[0], message=message, details=[_packed(d) for d in details])
        await context.abort_with_status(rpc_status.to_status(status))

    return refuse


def _packed(message: Any) -> AnyMessage:
    result = AnyMessage()
    result.Pack(message)
    return result


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """Run a scripted server."""
    server = Scripted()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def two_servers() -> AsyncIterator[tuple[Scripted, Scripted]]:
    """Run two scripted servers."""
    servers = Scripted(), Scripted()
    for server in servers:
        await server.start()
    yield servers
    for server in servers:
        await server.stop()


@pytest.fixture
def refuse() -> Callable[..., Answer]:
    """Return `refusal`."""
    return refusal


async def forever(request: Any, context: aio.ServicerContext) -> Any:
    """Never answer."""
    await asyncio.Event().wait()


@pytest.fixture
def never() -> Answer:
    """Return `forever`."""
    return forever
