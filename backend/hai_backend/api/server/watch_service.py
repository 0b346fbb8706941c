"""WatchService: merges the streams of WatchTasks and WatchNodes into one, and checks no rights of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from hai.client.connection.streams import merge_streams
from hai.v1 import node_service_pb2, task_service_pb2
from hai.v1 import watch_service_pb2 as pb
from hai.v1.watch_service_pb2_grpc import WatchServiceServicer
from hai_backend.api.nodes.service import NodeService
from hai_backend.api.server.call_context import Context
from hai_backend.api.tasks.service import TaskService
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
            streams.append(self._watch_tasks(request.tasks, context))
        if request.HasField("nodes"):
            streams.append(self._watch_nodes(request.nodes, context))
        if not streams:
            raise Invalid((Violation("tasks", "say what to watch: tasks, nodes, or both"),))
        async with aclosing(merge_streams(*streams)) as answers:
            async for answer in answers:
                yield answer

    async def _watch_tasks(
        self, request: task_service_pb2.WatchTasksRequest, context: Context
    ) -> AsyncGenerator[pb.WatchResponse, None]:
        async for answer in self._tasks.WatchTasks(request, context):
            yield pb.WatchResponse(tasks=answer)

    async def _watch_nodes(
        self, request: node_service_pb2.WatchNodesRequest, context: Context
    ) -> AsyncGenerator[pb.WatchResponse, None]:
        async for answer in self._nodes.WatchNodes(request, context):
            yield pb.WatchResponse(nodes=answer)
