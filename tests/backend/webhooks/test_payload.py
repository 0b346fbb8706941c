"""The exact texts of webhooks, and signatures of Standard Webhooks."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from hmac import new as hmac

import pytest

from hai_backend.domain.accounts.webhook import Format, Notice, Webhook, WebhookEvent, is_allowed
from hai_backend.webhooks import payload
from hai_backend.webhooks.payload import (
    TEXT_CHARS,
    build_request,
    find_refusal,
    format_line,
    format_text,
)

KEY = bytes(range(32))
HOOK = Webhook(
    "ada",
    "phone",
    "https://hooks.example.org/x",
    ("ended",),
    Format.JSON,
    "",
    "whsec_" + b64encode(KEY).decode(),
    0.0,
)


def a_notice(
    task: int = 12, news: WebhookEvent = WebhookEvent.ENDED, time: float = 1.7e9, **facts: str
) -> Notice:
    return Notice("ada", "phone", task, 3, news, time, {"name": "train", **facts})


FAILED = a_notice(outcome="FAILED", reason="exit code 1", seconds="9000", nodes="2", group="a100")


@pytest.mark.parametrize(
    ("notice", "said"),
    [
        (FAILED, "task 12 train has failed after 2.5 h: exit code 1"),
        (
            a_notice(outcome="SUCCEEDED", seconds="42", reason="all went well"),
            "task 12 train has succeeded after 42 s",
        ),
        (a_notice(outcome="CANCELED"), "task 12 train was cancelled"),
        (a_notice(outcome="STOPPED", reason="by ada"), "task 12 train was stopped: by ada"),
        (a_notice(news=WebhookEvent.STARTED), "task 12 train has started"),
        (
            a_notice(news=WebhookEvent.SUSPENDED, reason="node lost"),
            "task 12 train was suspended: node lost",
        ),
    ],
)
def test_lines_of_notices(notice: Notice, said: str) -> None:
    assert format_line(notice) == said


def test_json_body() -> None:
    sent = build_request(
        HOOK, "lab", [FAILED, a_notice(13, WebhookEvent.STARTED, 1.7e9 + 1)], 1.7e9 + 2
    )
    assert json.loads(sent.body) == {
        "type": "task.news",
        "timestamp": "2023-11-14T22:13:21.000+00:00",
        "data": {
            "cluster": "lab",
            "text": "[HAI lab] task 12 train has failed after 2.5 h: exit code 1\ntask 13 train has started",
            "events": [
                {
                    "id": "12.3.ended",
                    "task": 12,
                    "run": 3,
                    "owner": "ada",
                    "event": "ended",
                    "time": "2023-11-14T22:13:20.000+00:00",
                    "name": "train",
                    "outcome": "FAILED",
                    "reason": "exit code 1",
                    "seconds": 9000,
                    "nodes": 2,
                    "group": "a100",
                },
                {
                    "id": "13.3.started",
                    "task": 13,
                    "run": 3,
                    "owner": "ada",
                    "event": "started",
                    "time": "2023-11-14T22:13:21.000+00:00",
                    "name": "train",
                },
            ],
        },
    }


def test_signature_is_that_of_the_standard() -> None:
    """The values are the example of the specification."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signed = payload._signature_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_receiver_can_verify_the_signature() -> None:
    sent = build_request(HOOK, "lab", [FAILED], 1.7e9 + 2.9)
    id, time = sent.headers["webhook-id"], sent.headers["webhook-timestamp"]
    signed = hmac(KEY, f"{id}.{time}.".encode() + sent.body, sha256).digest()
    assert sent.headers["webhook-signature"] == "v1," + b64encode(signed).decode()
    assert time == "1700000002"


def test_second_try_has_the_id_of_the_first() -> None:
    first, again, other = (
        build_request(HOOK, "lab", notices, now).headers["webhook-id"]
        for notices, now in (([FAILED], 1.0), ([FAILED], 9.0), ([replace(FAILED, run=4)], 1.0))
    )
    assert first == again != other


SAID = "[HAI lab] task 12 <!channel> & co was cancelled"


@pytest.mark.parametrize(
    ("format", "body"),
    [
        (
            Format.SLACK,
            {"text": "[HAI lab] task 12 &lt;!channel&gt; &amp; co was cancelled"},
        ),
        (Format.DISCORD, {"content": SAID, "allowed_mentions": {"parse": []}}),
        (
            Format.FEISHU,
            {
                "msg_type": "text",
                "content": {"text": "[HAI lab] task 12 ‹!channel› & co was cancelled"},
            },
        ),
        (
            Format.DINGTALK,
            {
                "msgtype": "text",
                "text": {"content": "[HAI lab] task 12 ‹!channel› & co was cancelled"},
            },
        ),
    ],
)
def test_chat_text_notifies_nobody(format: Format, body: Mapping[str, object]) -> None:
    notice = a_notice(outcome="CANCELED", name="<!channel> & co")
    sent = build_request(replace(HOOK, format=format), "lab", [notice], 1.0)
    assert json.loads(sent.body) == body
    assert "webhook-signature" not in sent.headers


def test_only_the_first_of_many_notices_are_named() -> None:
    text = format_text("lab", [a_notice(number, outcome="CANCELED") for number in range(500)])
    lines = text.split("\n")
    assert len(text) <= TEXT_CHARS + len("\nand 500 more")
    assert lines[-1] == f"and {500 - (len(lines) - 1)} more"


@pytest.mark.parametrize(
    ("format", "answer", "why"),
    [
        (Format.FEISHU, b'{"code":0,"msg":"success"}', ""),
        (
            Format.FEISHU,
            b'{"code":19021,"msg":"sign match fail"}',
            "it says 19021: sign match fail",
        ),
        (Format.DINGTALK, b'{"errcode":0,"errmsg":"ok"}', ""),
        (
            Format.DINGTALK,
            b'{"errcode":310000,"errmsg":"no keyword"}',
            "it says 310000: no keyword",
        ),
        (Format.DINGTALK, b"<html>", "its answer is not a JSON object"),
        (Format.DINGTALK, b"[]", "its answer is not a JSON object"),
        (Format.SLACK, b"anything", ""),
        (Format.JSON, b'{"code":1}', ""),
    ],
)
def test_refusal_in_a_response_is_found(format: Format, answer: bytes, why: str) -> None:
    assert find_refusal(format, answer) == why


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://hooks.example.org/x", True),
        ("https://hooks.example.org", True),
        ("HTTPS://Hooks.Example.org/x", True),
        ("https://hooks.example.org?x", True),
        ("http://hooks.example.org/x", False),
        ("https://hooks.example.org:8443/x", False),
        ("https://hooks.example.org.evil.example/x", False),
        ("https://hooks.example.org@evil.example/x", False),
        ("https://evil.example/https://hooks.example.org", False),
    ],
)
def test_allowed_origins(url: str, allowed: bool) -> None:
    assert is_allowed(url, {"https://hooks.example.org"}) is allowed
