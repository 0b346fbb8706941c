"""The dataset and message services of the fake server: its caller sees everything."""

from __future__ import annotations

from hai.client.errors import Conflict, Invalid, NotFound, Violation
from hai.client.fake.world import World, copy
from hai.v1 import dataset_service_pb2 as datasets
from hai.v1 import message_service_pb2 as messages
from hai.v1 import webhook_service_pb2 as webhooks_pb
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


_EVENTS = ("started", "suspended", "ended", "failed")


class FakeWebhookService:
    """WebhookService over a World."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListWebhooks(
        self, request: webhooks_pb.ListWebhooksRequest
    ) -> webhooks_pb.ListWebhooksResponse:
        kept = sorted(self._world.webhooks.items())
        mine = [copy(webhook) for (owner, _), webhook in kept if owner == self._world.user]
        return webhooks_pb.ListWebhooksResponse(webhooks=mine)

    async def SetWebhook(
        self, request: webhooks_pb.SetWebhookRequest
    ) -> webhooks_pb.SetWebhookResponse:
        new = copy(request.webhook)
        _check(new)
        key = self._world.user, new.name
        existing = self._world.webhooks.get(key)
        new.create_time.CopyFrom(existing.create_time if existing else self._world.time())
        events = [each for each in _EVENTS if each in (set(new.news) or {"ended"})]
        del new.news[:]
        new.news.extend(events)
        new.format = new.format or "json"
        self._world.webhooks[key] = new
        signed = existing is not None and existing.format == "json"
        begins = new.format == "json" and not signed
        return webhooks_pb.SetWebhookResponse(
            webhook=copy(new), secret="whsec_AAAA" if begins else ""
        )

    async def DeleteWebhook(
        self, request: webhooks_pb.DeleteWebhookRequest
    ) -> webhooks_pb.DeleteWebhookResponse:
        del self._world.webhooks[self._find(request.name)]
        return webhooks_pb.DeleteWebhookResponse()

    async def TestWebhook(
        self, request: webhooks_pb.TestWebhookRequest
    ) -> webhooks_pb.TestWebhookResponse:
        self._find(request.name)
        return webhooks_pb.TestWebhookResponse()

    def _find(self, name: str) -> tuple[str, str]:
        key = self._world.user, name
        if key not in self._world.webhooks:
            raise NotFound(f"you have no webhook {name!r}")
        return key


def _check(webhook: webhooks_pb.Webhook) -> None:
    wrong = [Violation("webhook.name", "is required")] if not webhook.name else []
    if not webhook.url.startswith(("https://", "http://")):
        wrong.append(Violation("webhook.url", "must be https://HOST/PATH"))
    if wrong:
        raise Invalid("; ".join(f"{v.field}: {v.message}" for v in wrong), tuple(wrong))
