"""Webhooks: addresses to which the server reports what happens to a user's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hai_tui.i18n import text
from hai_tui.resources.resource_spec import (
    Answers,
    Field,
    ResourceSpec,
    Verb,
    delete_verb,
    prefilled_fields,
)
from hai_tui.views.accounts import WEBHOOK_FORMATS, WEBHOOKS

if TYPE_CHECKING:
    from hai.v1.webhook_service_pb2 import SetWebhookResponse, Webhook

_NEWS_AND_FORMAT = (
    Field("news", lambda item: ", ".join(item.news) if item else "ended"),
    Field("format", lambda item: item.format if item else WEBHOOK_FORMATS[0], WEBHOOK_FORMATS),
)


def _webhook(item: Webhook | None, answers: Answers) -> Webhook:
    from hai.v1.webhook_service_pb2 import Webhook

    return Webhook(
        name=item.name if item is not None else answers.text("name"),
        url=answers.text("url"),
        news=answers.list_of("news"),
        format=answers.choice("format", WEBHOOK_FORMATS),
        tag=answers.text("tag"),
    )


def _secret_text(answer: SetWebhookResponse) -> str:
    if not answer.secret or answer.webhook.format != "json":
        return text("webhook.made", name=answer.webhook.name)
    return text("webhook.secret", name=answer.webhook.name, secret=answer.secret)


RESOURCES = (
    ResourceSpec(
        "webhooks",
        WEBHOOKS,
        lambda client: client.webhooks.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, webhook: client.webhooks.set(webhook),
                _webhook,
                (Field("name"), Field("url"), *_NEWS_AND_FORMAT, Field("tag")),
                new=True,
                result_text=_secret_text,
                clipboard_text=lambda answer: answer.secret,
            ),
            Verb(
                "e",
                "edit",
                lambda client, webhook: client.webhooks.set(webhook),
                _webhook,
                (*prefilled_fields(["url"]), *_NEWS_AND_FORMAT, *prefilled_fields(["tag"])),
            ),
            Verb(
                "t",
                "test",
                lambda client, webhook: client.webhooks.test(webhook.name),
                result_text=lambda error: error or text("webhook.taken"),
            ),
            delete_verb(lambda client, webhook: client.webhooks.delete(webhook.name)),
        ),
    ),
)
