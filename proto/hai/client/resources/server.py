"""Calls about the server as a whole: its version, the audit log, and a watch of all tasks and nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.client.resources.requests import timestamp
from hai.v1.audit_service_pb2 import AuditRow, ListAuditRowsRequest, ListAuditRowsResponse
from hai.v1.audit_service_pb2_grpc import AuditServiceStub
from hai.v1.node_service_pb2 import WatchNodesRequest
from hai.v1.server_service_pb2 import GetServerInfoRequest, ServerInfo
from hai.v1.server_service_pb2_grpc import ServerServiceStub
from hai.v1.task_service_pb2 import WatchTasksRequest
from hai.v1.watch_service_pb2 import WatchRequest, WatchResponse
from hai.v1.watch_service_pb2_grpc import WatchServiceStub

if TYPE_CHECKING:
    from hai.v1.audit_service_pb2_grpc import AuditServiceAsyncStub
    from hai.v1.server_service_pb2_grpc import ServerServiceAsyncStub
    from hai.v1.watch_service_pb2_grpc import WatchServiceAsyncStub


class Server:
    """Calls about the version and capabilities of the server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> ServerServiceAsyncStub:
        return self._transport.stub(ServerServiceStub)

    async def info(self) -> ServerInfo:
        """Return the version, the cluster name and the time of the server. This needs no token."""
        call = self._stub.GetServerInfo
        return await self._transport.unary(call, GetServerInfoRequest(), retry=True)


class Audit:
    """Calls about the audit log, which records each call that made or attempted a change. For operators."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> AuditServiceAsyncStub:
        return self._transport.stub(AuditServiceStub)

    async def page(self, request: ListAuditRowsRequest) -> ListAuditRowsResponse:
        """Return one page of the audit log, newest row first."""
        return await self._transport.unary(self._stub.ListAuditRows, request, retry=True)

    async def rows(
        self,
        *,
        actor: str = "",
        method: str = "",
        resource: str = "",
        code: str = "",
        failed: bool = False,
        start: datetime | None = None,
        end: datetime | None = None,
        page_size: int = 500,
    ) -> AsyncGenerator[AuditRow, None]:
        """Yield every row that matches, fetched page by page."""
        request = ListAuditRowsRequest(
            actor=actor,
            method=method,
            resource=resource,
            code=code,
            failed=failed,
            start_time=timestamp(start),
            end_time=timestamp(end),
            page_size=page_size,
        )
        while True:
            page = await self.page(request)
            for row in page.rows:
                yield row
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


class Watches:
    """Watches tasks and nodes on one stream, for screens about the cluster."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> WatchServiceAsyncStub:
        return self._transport.stub(WatchServiceStub)

    def tasks_and_nodes(
        self, *, filter: str = "", tasks_after: int = 0, nodes_after: int = 0
    ) -> AsyncGenerator[WatchResponse, None]:
        """Yield changes after these versions, until the server ends the stream.

        Raises Unreachable without a server. This watch does not resume; callers open it again.
        """
        request = WatchRequest(
            tasks=WatchTasksRequest(filter=filter, after_version=tasks_after),
            nodes=WatchNodesRequest(after_version=nodes_after),
        )
        return self._transport.stream(self._stub.Watch, request)
