"""WebhookService: each user has his own webhooks, and nobody sees those of others."""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass, replace

from hai.v1 import webhook_service_pb2 as pb
from hai.v1.webhook_service_pb2_grpc import WebhookServiceServicer
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.webhooks.convert import webhook_from_proto, webhook_to_proto
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.tasks.notifications import Notifications
from hai_backend.controllers.tasks.webhooks import Webhooks
from hai_backend.domain.accounts.webhook import Format, Notice, Webhook, WebhookEvent
from hai_backend.domain.errors import Exhausted, NotFound
from hai_backend.webhooks.payload import SECRET_PREFIX

_MOST = 10  # of one user
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class WebhookDeps:
    """What it stands on. `origins` are those that operators allow."""

    webhooks: Webhooks
    notifying: Notifications
    origins: Collection[str]
    clock: Clock


class WebhookService(WebhookServiceServicer):
    """See proto/hai/v1/webhook_service.proto for what each call means."""

    def __init__(self, rooms: WebhookDeps) -> None:
        self._rooms = rooms
        self._setting = asyncio.Lock()

    async def ListWebhooks(
        self, request: pb.ListWebhooksRequest, context: Context
    ) -> pb.ListWebhooksResponse:
        found = self._rooms.webhooks.of(current_caller().name)
        return pb.ListWebhooksResponse(webhooks=map(self._shown, found))

    async def SetWebhook(
        self, request: pb.SetWebhookRequest, context: Context
    ) -> pb.SetWebhookResponse:
        rooms, owner = self._rooms, current_caller().name
        told = webhook_from_proto(request.webhook, rooms.origins, owner)
        async with self._setting:
            known = rooms.webhooks.get(owner, told.name)
            if known is None and len(rooms.webhooks.of(owner)) >= _MOST:
                raise Exhausted(f"you have {_MOST} webhooks, which is the most; delete one first")
            signed = known is not None and known.format is Format.JSON
            secret = known.secret if known and signed else _new_secret()
            made = known.created_at if known else rooms.clock.now()
            webhook = replace(told, secret=secret, created_at=made)
            await rooms.webhooks.save(webhook)
        rooms.notifying.webhook_changed(webhook)
        begins = webhook.format is Format.JSON and not signed
        return pb.SetWebhookResponse(
            webhook=self._shown(webhook), secret=webhook.secret if begins else ""
        )

    async def DeleteWebhook(
        self, request: pb.DeleteWebhookRequest, context: Context
    ) -> pb.DeleteWebhookResponse:
        async with self._setting:
            webhook = self._mine(request.name)
            await self._rooms.webhooks.delete(webhook)
        self._rooms.notifying.webhook_changed(webhook)
        return pb.DeleteWebhookResponse()

    async def TestWebhook(
        self, request: pb.TestWebhookRequest, context: Context
    ) -> pb.TestWebhookResponse:
        webhook, now = self._mine(request.name), self._rooms.clock.now()
        facts = {"name": "example", "outcome": "SUCCEEDED", "reason": "this is a test"}
        sample = Notice(webhook.owner_name, webhook.name, 0, 1, WebhookEvent.ENDED, now, facts)
        told = await self._rooms.notifying.test(webhook, sample)
        return pb.TestWebhookResponse(error=told.error)

    def _mine(self, name: str) -> Webhook:
        found = self._rooms.webhooks.get(current_caller().name, name)
        if found is None:
            raise NotFound(f"you have no webhook {name[:70]!r}; `hai webhook list` shows yours")
        return found

    def _shown(self, webhook: Webhook) -> pb.Webhook:
        told = self._rooms.notifying.results.get((webhook.owner_name, webhook.name))
        return webhook_to_proto(webhook, told)


def _new_secret() -> str:
    return SECRET_PREFIX + b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
