"""Whom the server tells what becomes of one's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hai_tui.i18n import text
from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb, unchanged_fields
from hai_tui.views.accounts import WEBHOOK_FORMATS, WEBHOOKS

if TYPE_CHECKING:
    from hai.v1.webhook_service_pb2 import SetWebhookResponse, Webhook

_MORE = (
    Field("news", lambda item: ", ".join(item.news) if item else "ended"),
    Field("format", lambda item: item.format if item else WEBHOOK_FORMATS[0], WEBHOOK_FORMATS),
)


def _new(item: Any, answers: Answers) -> Webhook:
    return _webhook_of(answers.text("name"), answers)


def _changed(item: Webhook, answers: Answers) -> Webhook:
    return _webhook_of(item.name, answers)


def _webhook_of(name: str, answers: Answers) -> Webhook:
    from hai.v1.webhook_service_pb2 import Webhook

    return Webhook(
        name=name,
        url=answers.text("url"),
        news=answers.list_of("news"),
        format=answers.choice("format", WEBHOOK_FORMATS),
        tag=answers.text("tag"),
    )


def _secret(answer: SetWebhookResponse) -> str:
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
                lambda client, made: client.webhooks.set(made),
                _new,
                (Field("name"), Field("url"), *_MORE, Field("tag")),
                new=True,
                result_text=_secret,
                clipboard_text=lambda answer: answer.secret,
            ),
            Verb(
                "e",
                "edit",
                lambda client, made: client.webhooks.set(made),
                _changed,
                (*unchanged_fields(["url"]), *_MORE, *unchanged_fields(["tag"])),
            ),
            Verb(
                "t",
                "test",
                lambda client, webhook: client.webhooks.test(webhook.name),
                result_text=lambda error: error or text("webhook.taken"),
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, webhook: client.webhooks.delete(webhook.name),
                needs_confirmation=True,
            ),
        ),
    ),
)
