"""The services of the fake server for datasets, messages and webhooks. The caller sees all of them."""

from __future__ import annotations

from hai.client.errors import Conflict, Invalid, NotFound, Violation
from hai.client.fake.world import FakeService, copy
from hai.v1 import dataset_service_pb2 as datasets
from hai.v1 import message_service_pb2 as messages
from hai.v1 import webhook_service_pb2 as webhooks_pb
from hai.v1.dataset_pb2 import Dataset


class FakeDatasetService(FakeService):
    async def ListDatasets(
        self, request: datasets.ListDatasetsRequest
    ) -> datasets.ListDatasetsResponse:
        stored = [d for _, d in sorted(self._world.datasets.items())]
        return datasets.ListDatasetsResponse(
            datasets=[d for d in stored if request.name in ("", d.name)]
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


class FakeMessageService(FakeService):
    async def ListMessages(
        self, request: messages.ListMessagesRequest
    ) -> messages.ListMessagesResponse:
        stored = [m for _, m in sorted(self._world.messages.items(), reverse=True)]
        return messages.ListMessagesResponse(
            messages=[m for m in stored if request.all or self._is_for_caller(m)]
        )

    def _is_for_caller(self, message: messages.Message) -> bool:
        expire_time, caller = message.expire_time, self._world.users[self._world.user]
        subjects = set(caller.groups) if message.subject_is_group else {"", caller.name}
        return message.subject in subjects and not 0 < expire_time.seconds <= self._world.now

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


class FakeWebhookService(FakeService):
    async def ListWebhooks(
        self, request: webhooks_pb.ListWebhooksRequest
    ) -> webhooks_pb.ListWebhooksResponse:
        stored = sorted(self._world.webhooks.items())
        webhooks = [copy(webhook) for (owner, _), webhook in stored if owner == self._world.user]
        return webhooks_pb.ListWebhooksResponse(webhooks=webhooks)

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
        had_secret = existing is not None and existing.format == "json"
        has_new_secret = new.format == "json" and not had_secret
        return webhooks_pb.SetWebhookResponse(
            webhook=copy(new), secret="whsec_AAAA" if has_new_secret else ""
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
    violations = [Violation("webhook.name", "is required")] if not webhook.name else []
    if not webhook.url.startswith(("https://", "http://")):
        violations.append(Violation("webhook.url", "must be https://HOST/PATH"))
    if violations:
        raise Invalid("; ".join(f"{v.field}: {v.message}" for v in violations), tuple(violations))
