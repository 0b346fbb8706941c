"""Webhooks as messages, and back. A secret goes neither way."""

from __future__ import annotations

import re
from collections.abc import Collection

from hai.v1 import webhook_service_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.controllers.tasks.notifications import DeliveryResult
from hai_backend.domain.accounts.webhook import Format, Webhook, WebhookEvent, is_allowed, origin_of

_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[!-~]*)?")
_URL_CHARS = 2000


def webhook_to_proto(webhook: Webhook, told: DeliveryResult | None) -> pb.Webhook:
    """A webhook, and how the last request went."""
    return pb.Webhook(
        name=webhook.name,
        url=webhook.url,
        news=webhook.news,
        format=webhook.format,
        tag=webhook.tag,
        create_time=to_timestamp(webhook.created_at),
        last_time=to_timestamp(told.time if told else None),
        last_error=told.error if told else "",
    )


def webhook_from_proto(message: pb.Webhook, origins: Collection[str], owner: str) -> Webhook:
    """A checked webhook, as yet without a secret. Raises Invalid with every violation."""
    violations = FieldViolations()
    violations.check_pattern("webhook.name", message.name, NAME, NAME_RULE)
    _check_url(violations, message.url, origins)
    told = violations.check_count("webhook.news", message.news, len(WebhookEvent))
    news = {
        violations.check_choice(f"webhook.news[{i}]", one, WebhookEvent, WebhookEvent.ENDED)
        for i, one in enumerate(told)
    }
    format = violations.check_choice("webhook.format", message.format, Format, Format.JSON)
    violations.check_line("webhook.tag", message.tag, limits.TAG_CHARS)
    violations.raise_if_any()
    kept = tuple(str(each) for each in WebhookEvent if each in (news or {WebhookEvent.ENDED}))
    return Webhook(owner, message.name, message.url, kept, format, message.tag, "", 0.0)


def _check_url(violations: FieldViolations, url: str, origins: Collection[str]) -> None:
    """Its value is in no message: it is a secret of the other side."""
    if len(url) > _URL_CHARS or not _URL.fullmatch(url):
        violations.add(
            "webhook.url", "must be https://HOST/PATH, in ASCII, without a user or password"
        )
    elif not origins:
        violations.add(
            "webhook.url",
            "this server speaks to nobody outside; operators allow it with `webhooks` in hai.toml",
            reason="WEBHOOKS_OFF",
        )
    elif not is_allowed(url, origins):
        allowed = ", ".join(sorted(origins))
        problem = f"the server may not speak to {origin_of(url)}, only to {allowed}"
        violations.add("webhook.url", problem, reason="NOT_ALLOWED")
