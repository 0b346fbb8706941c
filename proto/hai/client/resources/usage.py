"""Time series of what ranks use on their nodes, and of how busy the cluster is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.client.resources.requests import timestamp
from hai.v1.usage_service_pb2 import (
    ListClusterUsageRequest,
    ListClusterUsageResponse,
    ListNodeUsageRequest,
    ListNodeUsageResponse,
    ListTaskUsageRequest,
    ListTaskUsageResponse,
)
from hai.v1.usage_service_pb2_grpc import UsageServiceStub

if TYPE_CHECKING:
    from hai.v1.usage_service_pb2_grpc import UsageServiceAsyncStub


class Usage:
    """Calls about usage. A series has at most `points` steps; 0 lets the server choose."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> UsageServiceAsyncStub:
        return self._transport.stub(UsageServiceStub)

    async def of_task(
        self,
        task_id: int,
        *,
        ranks: Iterable[int] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        points: int = 0,
        sum: bool = False,
    ) -> ListTaskUsageResponse:
        """Return CPUs, memory and GPUs of some or all ranks of a task; with `sum` the total of these ranks.

        The default period begins when the task was started, and ends now or when the task ended.
        """
        request = ListTaskUsageRequest(
            task_id=task_id,
            ranks=ranks,
            start_time=timestamp(start),
            end_time=timestamp(end),
            points=points,
            sum=sum,
        )
        return await self._transport.unary(self._stub.ListTaskUsage, request, retry=True)

    async def of_cluster(
        self,
        group: str = "",
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        points: int = 0,
    ) -> ListClusterUsageResponse:
        """Return used nodes, used GPUs and waiting tasks of one or all groups. The default period is three hours."""
        request = ListClusterUsageRequest(
            group=group, start_time=timestamp(start), end_time=timestamp(end), points=points
        )
        return await self._transport.unary(self._stub.ListClusterUsage, request, retry=True)

    async def of_nodes(self, group: str = "") -> ListNodeUsageResponse:
        """Return the current usage of each node of a group, or of all groups."""
        request = ListNodeUsageRequest(group=group)
        return await self._transport.unary(self._stub.ListNodeUsage, request, retry=True)
