"""Who changed what; for operators."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.client.resources.requests import timestamp
from hai.v1.audit_service_pb2 import AuditRow, ListAuditRowsRequest, ListAuditRowsResponse
from hai.v1.audit_service_pb2_grpc import AuditServiceStub

if TYPE_CHECKING:
    from hai.v1.audit_service_pb2_grpc import AuditServiceAsyncStub


class Audit:
    """Calls that made a change or tried to, newest first."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> AuditServiceAsyncStub:
        return self._transport.stub(AuditServiceStub)

    async def page(self, request: ListAuditRowsRequest) -> ListAuditRowsResponse:
        """One page."""
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
        """Every row that matches, fetched page by page."""
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
