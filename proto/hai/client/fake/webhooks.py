"""The webhook service of the fake server: it keeps them, and tells nobody."""

from __future__ import annotations

from hai.client.errors import Invalid, NotFound, Violation
from hai.client.fake.world import World, copy
from hai.v1 import webhook_service_pb2 as pb

_EVENTS = ("started", "suspended", "ended", "failed")


class FakeWebhookService:
    """WebhookService over a World."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListWebhooks(self, request: pb.ListWebhooksRequest) -> pb.ListWebhooksResponse:
        kept = sorted(self._world.webhooks.items())
        mine = [copy(webhook) for (owner, _), webhook in kept if owner == self._world.user]
        return pb.ListWebhooksResponse(webhooks=mine)

    async def SetWebhook(self, request: pb.SetWebhookRequest) -> pb.SetWebhookResponse:
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
        return pb.SetWebhookResponse(webhook=copy(new), secret="whsec_AAAA" if begins else "")

    async def DeleteWebhook(self, request: pb.DeleteWebhookRequest) -> pb.DeleteWebhookResponse:
        del self._world.webhooks[self._find(request.name)]
        return pb.DeleteWebhookResponse()

    async def TestWebhook(self, request: pb.TestWebhookRequest) -> pb.TestWebhookResponse:
        self._find(request.name)
        return pb.TestWebhookResponse()

    def _find(self, name: str) -> tuple[str, str]:
        key = self._world.user, name
        if key not in self._world.webhooks:
            raise NotFound(f"you have no webhook {name!r}")
        return key


def _check(webhook: pb.Webhook) -> None:
    wrong = [Violation("webhook.name", "is required")] if not webhook.name else []
    if not webhook.url.startswith(("https://", "http://")):
        wrong.append(Violation("webhook.url", "must be https://HOST/PATH"))
    if wrong:
        raise Invalid("; ".join(f"{v.field}: {v.message}" for v in wrong), tuple(wrong))
