"""Builds the HTTP requests for webhooks in the format of the receiver. Pure.

JSON follows Standard Webhooks (standardwebhooks.com): a message has an id, a time and a signature, so that the receiver
can verify it and recognize a repeated message. Chat services get a text only.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from typing import Any

from hai_backend.domain.accounts.webhook import Format, Notice, Webhook, WebhookEvent
from hai_backend.domain.formatting import format_duration
from hai_backend.domain.task import Outcome

SECRET_PREFIX = "whsec_"  # required by the standard
TEXT_CHARS = 1900  # Discord accepts 2000


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    url: str
    headers: Mapping[str, str]
    body: bytes


def build_request(
    webhook: Webhook, cluster: str, notices: Sequence[Notice], now: float
) -> WebhookRequest:
    """Build one request for all of these notices."""
    text = format_text(cluster, notices)
    fields = _json_fields(text, cluster, notices) if webhook.format is Format.JSON else {}
    body = json.dumps(fields or _CHAT_PAYLOADS[webhook.format](text), ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "hai-webhook"}
    if webhook.format is Format.JSON:
        headers |= _signature_headers(webhook.secret, message_id(notices), int(now), body)
    return WebhookRequest(webhook.url, headers, body)


def message_id(notices: Sequence[Notice]) -> str:
    """Return the id of a message. A second try with the same notices gets the same id."""
    return "msg_" + sha256(" ".join(each.id for each in notices).encode()).hexdigest()[:32]


def format_text(cluster: str, notices: Sequence[Notice]) -> str:
    """Return one line for each notice, as many as fit into a chat message."""
    lines = [format_line(notice) for notice in notices]
    text, remaining = f"[HAI {cluster}] {lines[0]}", len(lines) - 1
    for each in lines[1:]:
        if len(text) + len(each) > TEXT_CHARS:
            return f"{text}\nand {remaining} more"
        text, remaining = f"{text}\n{each}", remaining - 1
    return text


def format_line(notice: Notice) -> str:
    """Return a line such as `task 12 train has failed after 3 h 2 min: exit code 1`."""
    facts = notice.facts
    text = f"task {notice.task_id} {facts.get('name', '')} {_verb(notice)}"
    if notice.news is WebhookEvent.ENDED and "seconds" in facts:
        text += f" after {format_duration(float(facts['seconds']))}"
    has_reason = "reason" in facts and facts.get("outcome") != Outcome.SUCCEEDED
    return text + (f": {facts['reason']}" if has_reason else "")


def _verb(notice: Notice) -> str:
    if notice.news is WebhookEvent.ENDED:
        return _OUTCOME_VERBS.get(notice.facts.get("outcome", ""), "has ended")
    return "has started" if notice.news is WebhookEvent.STARTED else "was suspended"


_OUTCOME_VERBS: Mapping[str, str] = {
    Outcome.SUCCEEDED: "has succeeded",
    Outcome.FAILED: "has failed",
    Outcome.STOPPED: "was stopped",
    Outcome.CANCELED: "was cancelled",
}


def _json_fields(text: str, cluster: str, notices: Sequence[Notice]) -> dict[str, Any]:
    events = [_event_fields(notice) for notice in notices]
    data = {"cluster": cluster, "text": text, "events": events}
    return {"type": "task.news", "timestamp": _rfc3339(notices[-1].time), "data": data}


def _event_fields(notice: Notice) -> dict[str, Any]:
    facts: dict[str, Any] = dict(notice.facts)
    facts |= {name: int(facts[name]) for name in ("nodes", "seconds") if name in facts}
    return {
        "id": notice.id,
        "task": notice.task_id,
        "run": notice.run,
        "owner": notice.owner_name,
        "event": str(notice.news),
        "time": _rfc3339(notice.time),
        **facts,
    }


def _signature_headers(secret: str, id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    key = b64decode(secret.removeprefix(SECRET_PREFIX))
    signature = digest(key, f"{id}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }


def _slack(text: str) -> dict[str, Any]:
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _discord(text: str) -> dict[str, Any]:
    return {"content": text, "allowed_mentions": {"parse": []}}


def _feishu(text: str) -> dict[str, Any]:
    return {"msg_type": "text", "content": {"text": _escape_tags(text)}}


def _dingtalk(text: str) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": _escape_tags(text)}}


_CHAT_PAYLOADS = {
    Format.SLACK: _slack,
    Format.DISCORD: _discord,
    Format.FEISHU: _feishu,
    Format.DINGTALK: _dingtalk,
}


def _escape_tags(text: str) -> str:
    """Replace the brackets of tags, because the name of a task must not notify people."""
    return text.replace("<", "‹").replace(">", "›")


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def find_refusal(format: Format, response: bytes) -> str:
    """Return the error in a response. Empty if there is none. Feishu and DingTalk send errors with status 200."""
    if format not in (Format.FEISHU, Format.DINGTALK):
        return ""
    try:
        fields = json.loads(response)
        code = fields.get("errcode", fields.get("code", 0))
        why = fields.get("errmsg", fields.get("msg"))
    except (ValueError, AttributeError):
        return "its answer is not a JSON object"
    return f"it says {code}: {str(why)[:200]}" if code else ""
