"""WatchService: merges the streams of WatchTasks and WatchNodes into one, and checks no rights of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from hai.client.connection.streams import merge_streams
from hai.v1 import node_service_pb2, task_service_pb2
from hai.v1 import watch_service_pb2 as pb
from hai.v1.watch_service_pb2_grpc import WatchServiceServicer
from hai_backend.api.nodes.service import NodeService
from hai_backend.api.server.call_context import Context
from hai_backend.api.tasks.service import TaskService
from hai_backend.api.watch.wire import message_field
from hai_backend.domain.errors import Invalid, Violation


class WatchService(WatchServiceServicer):
    """See proto/hai/v1/watch_service.proto for what each call means."""

    def __init__(self, tasks: TaskService, nodes: NodeService) -> None:
        self._tasks = tasks
        self._nodes = nodes

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        streams = []
        if request.HasField("tasks"):
            streams.append(self._watch_tasks(request.tasks))
        if request.HasField("nodes"):
            streams.append(self._watch_nodes(request.nodes))
        if not streams:
            raise Invalid((Violation("tasks", "say what to watch: tasks, nodes, or both"),))
        async with aclosing(merge_streams(*streams)) as answers:
            async for encoded in answers:
                yield cast(pb.WatchResponse, encoded)  # wire.accept_encoded takes bytes

    async def _watch_tasks(
        self, request: task_service_pb2.WatchTasksRequest
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._tasks.encoded_changes(request)) as responses:
            async for encoded in responses:
                yield message_field(pb.WatchResponse.TASKS_FIELD_NUMBER, encoded)

    async def _watch_nodes(
        self, request: node_service_pb2.WatchNodesRequest
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._nodes.encoded_changes(request)) as responses:
            async for encoded in responses:
                yield message_field(pb.WatchResponse.NODES_FIELD_NUMBER, encoded)
