"""The watch service of the fake server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from hai.client.connection.merge_streams import merged
from hai.client.fake.nodes import FakeNodeService
from hai.client.fake.tasks import FakeTaskService
from hai.client.fake.world import World
from hai.v1 import watch_service_pb2 as rpc


class FakeWatchService:
    """WatchService over a World."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def Watch(self, request: rpc.WatchRequest) -> AsyncGenerator[rpc.WatchResponse, None]:
        async with aclosing(merged(self._tasks(request), self._nodes(request))) as answers:
            async for answer in answers:
                yield answer

    async def _tasks(self, request: rpc.WatchRequest) -> AsyncGenerator[rpc.WatchResponse, None]:
        async for answer in FakeTaskService(self._world).WatchTasks(request.tasks):
            yield rpc.WatchResponse(tasks=answer)

    async def _nodes(self, request: rpc.WatchRequest) -> AsyncGenerator[rpc.WatchResponse, None]:
        async for answer in FakeNodeService(self._world).WatchNodes(request.nodes):
            yield rpc.WatchResponse(nodes=answer)
