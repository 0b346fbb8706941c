"""What a webhook is told, in the form that it understands. Pure.

JSON follows Standard Webhooks (standardwebhooks.com): the message has an id, a time and a signature, so that the other
side can tell ours from others', and one that comes twice from a new one. The chats get a text only.
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
from hai_backend.domain.formatting import span
from hai_backend.domain.task import Outcome

SECRET_PREFIX = "whsec_"  # of every secret, as the standard says
TEXT_CHARS = 1900  # Discord takes 2000


@dataclass(frozen=True, slots=True)
class Letter:
    """One request: where it goes, and what it says."""

    url: str
    headers: Mapping[str, str]
    body: bytes


def letter(webhook: Webhook, cluster: str, notices: Sequence[Notice], now: float) -> Letter:
    """All of these notices in one request."""
    text = text_of(cluster, notices)
    told = _json(text, cluster, notices) if webhook.format is Format.JSON else {}
    body = json.dumps(told or _CHATS[webhook.format](text), ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "hai-webhook"}
    if webhook.format is Format.JSON:
        headers |= _signed(webhook.secret, id_of(notices), int(now), body)
    return Letter(webhook.url, headers, body)


def id_of(notices: Sequence[Notice]) -> str:
    """The same for the same notices: a second try has it, too."""
    return "msg_" + sha256(" ".join(each.id for each in notices).encode()).hexdigest()[:32]


def text_of(cluster: str, notices: Sequence[Notice]) -> str:
    """A line for each; of very many the first."""
    lines = [line(notice) for notice in notices]
    text, left = f"[HAI {cluster}] {lines[0]}", len(lines) - 1
    for each in lines[1:]:
        if len(text) + len(each) > TEXT_CHARS:
            return f"{text}\nand {left} more"
        text, left = f"{text}\n{each}", left - 1
    return text


def line(notice: Notice) -> str:
    """`task 12 train has failed after 3 h 2 min: exit code 1`."""
    facts = notice.facts
    text = f"task {notice.task_id} {facts.get('name', '')} {_done(notice)}"
    if notice.news is WebhookEvent.ENDED and "seconds" in facts:
        text += f" after {span(float(facts['seconds']))}"
    says_more = "reason" in facts and facts.get("outcome") != Outcome.SUCCEEDED
    return text + (f": {facts['reason']}" if says_more else "")


def _done(notice: Notice) -> str:
    if notice.news is WebhookEvent.ENDED:
        return _ENDS.get(notice.facts.get("outcome", ""), "has ended")
    return "has started" if notice.news is WebhookEvent.STARTED else "was suspended"


_ENDS: Mapping[str, str] = {
    Outcome.SUCCEEDED: "has succeeded",
    Outcome.FAILED: "has failed",
    Outcome.STOPPED: "was stopped",
    Outcome.CANCELED: "was cancelled",
}


def _json(text: str, cluster: str, notices: Sequence[Notice]) -> dict[str, Any]:
    events = [_event(notice) for notice in notices]
    data = {"cluster": cluster, "text": text, "events": events}
    return {"type": "task.news", "timestamp": _rfc3339(notices[-1].time), "data": data}


def _event(notice: Notice) -> dict[str, Any]:
    known: dict[str, Any] = dict(notice.facts)
    known |= {name: int(known[name]) for name in ("nodes", "seconds") if name in known}
    return {
        "id": notice.id,
        "task": notice.task_id,
        "run": notice.run,
        "owner": notice.owner_name,
        "event": str(notice.news),
        "time": _rfc3339(notice.time),
        **known,
    }


def _signed(secret: str, id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    key = b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = digest(key, f"{id}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{b64encode(signed).decode()}",
    }


def _slack(text: str) -> dict[str, Any]:
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _discord(text: str) -> dict[str, Any]:
    return {"content": text, "allowed_mentions": {"parse": []}}


def _feishu(text: str) -> dict[str, Any]:
    return {"msg_type": "text", "content": {"text": _no_tags(text)}}


def _dingtalk(text: str) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": _no_tags(text)}}


_CHATS = {
    Format.SLACK: _slack,
    Format.DISCORD: _discord,
    Format.FEISHU: _feishu,
    Format.DINGTALK: _dingtalk,
}


def _no_tags(text: str) -> str:
    """A name that reads like a tag of theirs calls nobody."""
    return text.replace("<", "‹").replace(">", "›")


def _rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def refusal(format: Format, answer: bytes) -> str:
    """Feishu and DingTalk say 200 to everything, and in the answer what was wrong; empty: nothing was."""
    if format not in (Format.FEISHU, Format.DINGTALK):
        return ""
    try:
        told = json.loads(answer)
        code, why = told.get("errcode", told.get("code", 0)), told.get("errmsg", told.get("msg"))
    except (ValueError, AttributeError):
        return "its answer is no JSON object"
    return f"it says {code}: {str(why)[:200]}" if code else ""
