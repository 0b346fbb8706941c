"""Converts webhooks to messages and back, without their secrets."""

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


def webhook_to_proto(webhook: Webhook, last: DeliveryResult | None) -> pb.Webhook:
    """Convert a webhook with the result of the last request."""
    return pb.Webhook(
        name=webhook.name,
        url=webhook.url,
        news=webhook.news,
        format=webhook.format,
        tag=webhook.tag,
        create_time=to_timestamp(webhook.created_at),
        last_time=to_timestamp(last.time if last else None),
        last_error=last.error if last else "",
    )


def webhook_from_proto(message: pb.Webhook, origins: Collection[str], owner: str) -> Webhook:
    """Return a validated webhook without a secret. Raises Invalid with every violation."""
    violations = FieldViolations()
    violations.check_pattern("webhook.name", message.name, NAME, NAME_RULE)
    _check_url(violations, message.url, origins)
    requested = violations.check_count("webhook.news", message.news, len(WebhookEvent))
    events = {
        violations.check_choice(f"webhook.news[{i}]", name, WebhookEvent, WebhookEvent.ENDED)
        for i, name in enumerate(requested)
    } or {WebhookEvent.ENDED}
    format = violations.check_choice("webhook.format", message.format, Format, Format.JSON)
    violations.check_line("webhook.tag", message.tag, limits.TAG_CHARS)
    violations.raise_if_any()
    news = tuple(str(event) for event in WebhookEvent if event in events)
    return Webhook(owner, message.name, message.url, news, format, message.tag, "", 0.0)


def _check_url(violations: FieldViolations, url: str, origins: Collection[str]) -> None:
    """Check the URL. Violations do not contain it, because it is a secret of the receiver."""
    if len(url) > _URL_CHARS or not _URL.fullmatch(url):
        violations.add(
            "webhook.url", "must be https://HOST/PATH, in ASCII, without a user or password"
        )
    elif not origins:
        violations.add(
            "webhook.url",
            "this server sends no webhooks; operators allow them with `webhooks` in hai.toml",
            reason="WEBHOOKS_OFF",
        )
    elif not is_allowed(url, origins):
        allowed = ", ".join(sorted(origins))
        problem = f"the server may not send requests to {origin_of(url)}, only to {allowed}"
        violations.add("webhook.url", problem, reason="NOT_ALLOWED")
