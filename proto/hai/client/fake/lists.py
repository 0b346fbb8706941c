"""The dataset and message services of the fake server: its caller sees everything."""

from __future__ import annotations

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import World, copy
from hai.v1 import dataset_service_pb2 as datasets
from hai.v1 import message_service_pb2 as messages
from hai.v1.dataset_pb2 import Dataset


class FakeDatasetService:
    """DatasetService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListDatasets(
        self, request: datasets.ListDatasetsRequest
    ) -> datasets.ListDatasetsResponse:
        kept = [d for _, d in sorted(self._world.datasets.items())]
        return datasets.ListDatasetsResponse(
            datasets=[d for d in kept if request.name in ("", d.name)]
        )

    async def GetDataset(self, request: datasets.GetDatasetRequest) -> Dataset:
        return copy(self._find(request.name, request.version))

    async def CreateDataset(self, request: datasets.CreateDatasetRequest) -> Dataset:
        new = copy(request.dataset)
        new.version, new.owner = new.version or "default", self._world.user
        if (new.name, new.version) in self._world.datasets:
            raise Conflict(f"the name {new.name}:{new.version} is taken by a dataset")
        new.create_time.CopyFrom(self._world.time())
        self._world.datasets[new.name, new.version] = new
        return copy(new)

    async def DeleteDataset(
        self, request: datasets.DeleteDatasetRequest
    ) -> datasets.DeleteDatasetResponse:
        found = self._find(request.name, request.version)
        del self._world.datasets[found.name, found.version]
        return datasets.DeleteDatasetResponse()

    def _find(self, name: str, version: str) -> Dataset:
        key = (name, version or "default")
        if key not in self._world.datasets:
            raise NotFound(f"there is no dataset {':'.join(key)}")
        return self._world.datasets[key]


class FakeMessageService:
    """MessageService over a World."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListMessages(
        self, request: messages.ListMessagesRequest
    ) -> messages.ListMessagesResponse:
        kept = [m for _, m in sorted(self._world.messages.items(), reverse=True)]
        return messages.ListMessagesResponse(
            messages=[m for m in kept if request.all or self._is_mine(m)]
        )

    def _is_mine(self, message: messages.Message) -> bool:
        until, me = message.expire_time, self._world.users[self._world.user]
        mine = set(me.groups) if message.subject_is_group else {"", me.name}
        return message.subject in mine and not 0 < until.seconds <= self._world.now

    async def CreateMessage(self, request: messages.CreateMessageRequest) -> messages.Message:
        new = copy(request.message)
        new.id, new.author = 1 + max(self._world.messages, default=0), self._world.user
        new.create_time.CopyFrom(self._world.time())
        self._world.messages[new.id] = new
        return copy(new)

    async def DeleteMessage(
        self, request: messages.DeleteMessageRequest
    ) -> messages.DeleteMessageResponse:
        if self._world.messages.pop(request.id, None) is None:
            raise NotFound(f"there is no message {request.id}")
        return messages.DeleteMessageResponse()
