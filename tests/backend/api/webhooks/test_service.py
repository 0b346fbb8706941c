"""Webhooks of users: ownership, allowed receivers, and secrets."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from hai.v1 import audit_service_pb2 as apb
from hai.v1 import webhook_service_pb2 as pb
from hai_backend.domain.accounts.user import TokenScope

C = grpc.StatusCode
URL = "https://hooks.example.org/T0/secret-path"


def a_request(name: str = "phone", url: str = URL, **more: Any) -> pb.SetWebhookRequest:
    return pb.SetWebhookRequest(webhook=pb.Webhook(name=name, url=url, **more))


async def listed(caller: Any) -> list[str]:
    return [w.name for w in (await caller.webhooks.ListWebhooks(pb.ListWebhooksRequest())).webhooks]


async def test_users_see_their_own_webhooks(platform: Any) -> None:
    ada, root = await platform.caller("ada"), await platform.caller("root")
    await ada.webhooks.SetWebhook(a_request("b"))
    await ada.webhooks.SetWebhook(a_request("a"))
    assert (await listed(ada), await listed(root)) == (["a", "b"], [])


async def test_others_cannot_change_a_webhook(platform: Any, expect_refusal: Any) -> None:
    ada, root = await platform.caller("ada"), await platform.caller("root")
    await ada.webhooks.SetWebhook(a_request())
    for ask in (
        lambda: root.webhooks.DeleteWebhook(pb.DeleteWebhookRequest(name="phone")),
        lambda: root.webhooks.TestWebhook(pb.TestWebhookRequest(name="phone")),
    ):
        async with expect_refusal() as why:
            await ask()
        assert why[0].code is C.NOT_FOUND
    assert (await listed(ada), platform.sent_requests) == (["phone"], [])


async def test_webhook_has_defaults_and_its_secret_is_returned_once(platform: Any) -> None:
    ada = await platform.caller("ada")
    made = await ada.webhooks.SetWebhook(a_request())
    assert (list(made.webhook.news), made.webhook.format) == (["ended"], "json")
    assert made.secret.startswith("whsec_")
    again = await ada.webhooks.SetWebhook(a_request(news=["failed", "started", "failed"]))
    assert (list(again.webhook.news), again.secret) == (["started", "failed"], "")
    kept = platform.webhook_deps.webhooks.get("ada", "phone")
    assert kept.secret == made.secret
    assert again.webhook.create_time == made.webhook.create_time


@pytest.mark.parametrize(
    ("request_", "field", "reason"),
    [
        (a_request(""), "webhook.name", "INVALID"),
        (a_request(url=""), "webhook.url", "INVALID"),
        (a_request(url="ftp://hooks.example.org/x"), "webhook.url", "INVALID"),
        (a_request(url="https://ada:pw@hooks.example.org/x"), "webhook.url", "INVALID"),
        (a_request(url="https://hooks.example.org/a b"), "webhook.url", "INVALID"),
        (a_request(url="https://hooks.example.org\\@evil.example"), "webhook.url", "INVALID"),
        (a_request(url="https://hooks.example.org/" + "x" * 2000), "webhook.url", "INVALID"),
        (a_request(url="https://inside.example.org/secret-path"), "webhook.url", "NOT_ALLOWED"),
        (a_request(url="http://hooks.example.org/secret-path"), "webhook.url", "NOT_ALLOWED"),
        (a_request(news=["ende"]), "webhook.news[0]", "INVALID"),
        (a_request(news=["ended"] * 5), "webhook.news", "INVALID"),
        (a_request(format="teams"), "webhook.format", "INVALID"),
        (a_request(tag="a\nb"), "webhook.tag", "INVALID"),
    ],
)
async def test_invalid_requests_are_refused(
    platform: Any, expect_refusal: Any, request_: Any, field: str, reason: str
) -> None:
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await ada.webhooks.SetWebhook(request_)
    assert [where for where, _ in why[0].violations] == [field]
    assert (why[0].code, why[0].reason) == (C.INVALID_ARGUMENT, reason)
    assert "secret-path" not in why[0].message
    assert await listed(ada) == []


async def test_server_without_webhooks_says_how_to_allow_them(
    platform: Any, expect_refusal: Any
) -> None:
    platform.webhook_deps.origins.clear()
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await ada.webhooks.SetWebhook(a_request())
    assert why[0].reason == "WEBHOOKS_OFF"
    assert "`webhooks` in hai.toml" in why[0].message


async def test_number_of_webhooks_is_limited(platform: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    for number in range(10):
        await ada.webhooks.SetWebhook(a_request(f"h{number}"))
    await ada.webhooks.SetWebhook(a_request("h9", news=["failed"]))
    async with expect_refusal() as why:
        await ada.webhooks.SetWebhook(a_request("one-more"))
    assert why[0].code is C.RESOURCE_EXHAUSTED


async def test_sample_is_sent(platform: Any) -> None:
    ada = await platform.caller("ada")
    await ada.webhooks.SetWebhook(a_request())
    answer = await ada.webhooks.TestWebhook(pb.TestWebhookRequest(name="phone"))
    assert answer.error == ""
    assert [letter.url for letter in platform.sent_requests] == [URL]
    await ada.webhooks.SetWebhook(a_request(url="https://hooks.example.org/refuses"))
    answer = await ada.webhooks.TestWebhook(pb.TestWebhookRequest(name="phone"))
    assert answer.error == "https://hooks.example.org did not take it: it answered 404"
    (shown,) = (await ada.webhooks.ListWebhooks(pb.ListWebhooksRequest())).webhooks
    assert shown.last_error == answer.error
    assert shown.last_time.seconds == int(platform.clock.now())


async def test_container_tokens_cannot_set_webhooks(platform: Any, expect_refusal: Any) -> None:
    program = await platform.caller("ada", TokenScope.SUBMIT)
    async with expect_refusal() as why:
        await program.webhooks.SetWebhook(a_request())
    assert why[0].code is C.PERMISSION_DENIED


async def test_audit_row_names_the_webhook_without_its_url(platform: Any) -> None:
    ada, root = await platform.caller("ada"), await platform.caller("root")
    await ada.webhooks.SetWebhook(a_request())
    await ada.webhooks.DeleteWebhook(pb.DeleteWebhookRequest(name="phone"))
    rows = (await root.audit.ListAuditRows(apb.ListAuditRowsRequest(actor="ada"))).rows
    assert [(row.method, row.resource) for row in rows] == [
        ("DeleteWebhook", "phone"),
        ("SetWebhook", "phone"),
    ]
    assert not any("secret-path" in row.what or "whsec" in row.what for row in rows)
