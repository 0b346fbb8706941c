"""Changes of tasks and nodes on one stream, for screens about the cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.node_service_pb2 import WatchNodesRequest
from hai.v1.task_service_pb2 import WatchTasksRequest
from hai.v1.watch_service_pb2 import WatchRequest, WatchResponse
from hai.v1.watch_service_pb2_grpc import WatchServiceStub

if TYPE_CHECKING:
    from hai.v1.watch_service_pb2_grpc import WatchServiceAsyncStub


class Watches:
    """Tasks and nodes together."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> WatchServiceAsyncStub:
        return self._transport.stub(WatchServiceStub)

    def tasks_and_nodes(
        self, *, filter: str = "", tasks_after: int = 0, nodes_after: int = 0
    ) -> AsyncGenerator[WatchResponse, None]:
        """Changes after these versions, until the server ends. Raises Unreachable; callers open the watch again."""
        request = WatchRequest(
            tasks=WatchTasksRequest(filter=filter, after_version=tasks_after),
            nodes=WatchNodesRequest(after_version=nodes_after),
        )
        return self._transport.stream(self._stub.Watch, request)
