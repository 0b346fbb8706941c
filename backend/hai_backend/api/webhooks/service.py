"""WebhookService: the webhooks of each user. Nobody sees the webhooks of others."""

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

_MAX_WEBHOOKS = 10  # of one user
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class WebhookDeps:
    """The parts of the server that the service needs. `origins` are the receivers that operators allow."""

    webhooks: Webhooks
    notifications: Notifications
    origins: Collection[str]
    clock: Clock


class WebhookService(WebhookServiceServicer):
    """See proto/hai/v1/webhook_service.proto for what each call means."""

    def __init__(self, deps: WebhookDeps) -> None:
        self._deps = deps
        self._write_lock = asyncio.Lock()

    async def ListWebhooks(
        self, request: pb.ListWebhooksRequest, context: Context
    ) -> pb.ListWebhooksResponse:
        found = self._deps.webhooks.of(current_caller().name)
        return pb.ListWebhooksResponse(webhooks=map(self._to_proto, found))

    async def SetWebhook(
        self, request: pb.SetWebhookRequest, context: Context
    ) -> pb.SetWebhookResponse:
        deps, owner = self._deps, current_caller().name
        requested = webhook_from_proto(request.webhook, deps.origins, owner)
        async with self._write_lock:
            existing = deps.webhooks.get(owner, requested.name)
            if existing is None and len(deps.webhooks.of(owner)) >= _MAX_WEBHOOKS:
                raise Exhausted(
                    f"you have {_MAX_WEBHOOKS} webhooks, which is the limit; delete one first"
                )
            has_secret = existing is not None and existing.format is Format.JSON
            secret = existing.secret if existing and has_secret else _new_secret()
            created_at = existing.created_at if existing else deps.clock.now()
            webhook = replace(requested, secret=secret, created_at=created_at)
            await deps.webhooks.save(webhook)
        deps.notifications.webhook_changed(webhook)
        is_new_secret = webhook.format is Format.JSON and not has_secret
        return pb.SetWebhookResponse(
            webhook=self._to_proto(webhook), secret=webhook.secret if is_new_secret else ""
        )

    async def DeleteWebhook(
        self, request: pb.DeleteWebhookRequest, context: Context
    ) -> pb.DeleteWebhookResponse:
        async with self._write_lock:
            webhook = self._get(request.name)
            await self._deps.webhooks.delete(webhook)
        self._deps.notifications.webhook_changed(webhook)
        return pb.DeleteWebhookResponse()

    async def TestWebhook(
        self, request: pb.TestWebhookRequest, context: Context
    ) -> pb.TestWebhookResponse:
        webhook, now = self._get(request.name), self._deps.clock.now()
        facts = {"name": "example", "outcome": "SUCCEEDED", "reason": "this is a test"}
        sample = Notice(webhook.owner_name, webhook.name, 0, 1, WebhookEvent.ENDED, now, facts)
        result = await self._deps.notifications.test(webhook, sample)
        return pb.TestWebhookResponse(error=result.error)

    def _get(self, name: str) -> Webhook:
        webhook = self._deps.webhooks.get(current_caller().name, name)
        if webhook is None:
            raise NotFound(f"you have no webhook {name[:70]!r}; `hai webhook list` shows yours")
        return webhook

    def _to_proto(self, webhook: Webhook) -> pb.Webhook:
        last = self._deps.notifications.results.get((webhook.owner_name, webhook.name))
        return webhook_to_proto(webhook, last)


def _new_secret() -> str:
    return SECRET_PREFIX + b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
