"""AuditService: lists audit rows."""

from __future__ import annotations

import grpc

from hai.client.taskfile.validation.violations import suggestion_text
from hai.v1 import audit_service_pb2 as pb
from hai.v1.audit_service_pb2_grpc import AuditServiceServicer
from hai_backend.api.request import limits, paging
from hai_backend.api.request.convert_time import from_timestamp, to_timestamp
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.server.call_context import Context
from hai_backend.store.base import AuditQuery, AuditRow, Store

_CODES = tuple(code.name for code in grpc.StatusCode)


class AuditService(AuditServiceServicer):
    """See proto/hai/v1/audit_service.proto for what each call means."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ListAuditRows(
        self, request: pb.ListAuditRowsRequest, context: Context
    ) -> pb.ListAuditRowsResponse:
        page = await self._store.audit(_query(request))
        return pb.ListAuditRowsResponse(
            rows=map(_to_proto, page.rows), next_page_token=page.next_page_token
        )


def _query(request: pb.ListAuditRowsRequest) -> AuditQuery:
    violations = FieldViolations()
    if request.code and request.code not in _CODES:
        hint = suggestion_text(request.code.upper(), _CODES)
        violations.add("code", f"{request.code[:40]!r} is no code of a call{hint}")
    violations.raise_if_any()
    return AuditQuery(
        actor=request.actor,
        method=request.method,
        resource=request.resource,
        code=request.code,
        failed=request.failed,
        after=from_timestamp(request.start_time) if request.HasField("start_time") else None,
        before=from_timestamp(request.end_time) if request.HasField("end_time") else None,
        page_size=paging.page_size(request.page_size, limits.DEFAULT_PAGE_SIZE),
        page_token=request.page_token,
    )


def _to_proto(row: AuditRow) -> pb.AuditRow:
    return pb.AuditRow(
        time=to_timestamp(row.time),
        actor=row.actor,
        method=row.method,
        resource=row.resource,
        what=row.what,
        code=row.code,
    )
