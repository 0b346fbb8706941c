"""Columns of users, grants, quotas, shares, tokens, messages, webhooks and audit rows."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from hai.client.text.formatting import enum_name
from hai.v1.message_service_pb2 import Message
from hai.v1.user_pb2 import Quota, Role, Share, Token, TokenScope
from hai.v1.webhook_service_pb2 import Webhook
from hai_tui.formatting.table import Column, View
from hai_tui.formatting.values import local, priority_name, since

WEBHOOK_FORMATS = ("json", "slack", "discord", "feishu", "dingtalk")


def level_name(quota: Quota) -> str:
    """Return the level to which a quota applies; ALL if it limits all levels together."""
    return "ALL" if quota.priority < 0 else priority_name(quota.priority)


def expiry_text(time: Timestamp) -> str:
    """Return a point in time, or `never` if the field is not set."""
    return local(time) if time.seconds else "never"


def _limit_text(share: Share) -> str:
    return str(share.limit) if share.HasField("limit") else "none"


def _token_state(token: Token, now: float) -> str:
    if token.revoked:
        return "REVOKED"
    expired = token.HasField("expire_time") and token.expire_time.seconds <= now
    return "EXPIRED" if expired else "VALID"


USERS = View(
    key="users",
    name=lambda user: user.name,
    empty="none.users",
    columns=(
        Column("user", lambda u, now: u.name),
        Column("role", lambda u, now: enum_name(Role, u.role)),
        Column("groups", lambda u, now: ",".join(u.groups) or "-", folds=True),
        Column("active", lambda u, now: "yes" if u.active else "no"),
        Column("rights", lambda u, now: ",".join(u.rights) or "-", folds=True),
        Column("uid", lambda u, now: str(u.uid), wide=True, right=True),
        Column("created", lambda u, now: local(u.create_time), wide=True),
    ),
)

QUOTAS = View(
    key="quotas",
    name=lambda quota: f"{quota.subject}/{quota.group}/{level_name(quota)}",
    empty="none.quotas",
    columns=(
        Column("subject", lambda q, now: q.subject),
        Column("kind", lambda q, now: "group" if q.subject_is_group else "user"),
        Column("group", lambda q, now: q.group),
        Column("level", lambda q, now: level_name(q)),
        Column("used", lambda q, now: str(q.used), right=True),
        Column("nodes", lambda q, now: str(q.nodes), right=True),
        Column("expires", lambda q, now: expiry_text(q.expire_time)),
    ),
)

SHARES = View(
    key="shares",
    name=lambda share: f"{share.user_group}/{share.group}",
    empty="none.shares",
    columns=(
        Column("user_group", lambda s, now: s.user_group),
        Column("group", lambda s, now: s.group),
        Column("held", lambda s, now: str(s.held), right=True),
        Column("guaranteed", lambda s, now: str(s.guaranteed), right=True),
        Column("weight", lambda s, now: str(s.weight), right=True),
        Column("limit", lambda s, now: _limit_text(s), right=True),
    ),
)

GRANTS = View(
    key="grants",
    name=lambda grant: f"{grant.subject}/{grant.right}",
    empty="none.grants",
    columns=(
        Column("subject", lambda g, now: g.subject),
        Column("kind", lambda g, now: "user group" if g.subject_is_group else "user"),
        Column("right", lambda g, now: g.right, folds=True),
        Column("expires", lambda g, now: expiry_text(g.expire_time)),
    ),
)

TOKENS = View(
    key="tokens",
    name=lambda token: str(token.id),
    empty="none.tokens",
    columns=(
        Column("id", lambda t, now: str(t.id), right=True),
        Column("user", lambda t, now: t.user),
        Column("holder", lambda t, now: t.holder or t.user, wide=True),
        Column("scope", lambda t, now: enum_name(TokenScope, t.scope)),
        Column("state", _token_state),
        Column("expires", lambda t, now: expiry_text(t.expire_time)),
        Column("created", lambda t, now: local(t.create_time)),
        Column("description", lambda t, now: t.description or "-", folds=True),
    ),
)


def _recipient(message: Message) -> str:
    group = " (group)" if message.subject_is_group else ""
    return f"{message.subject or 'everybody'}{group}"


MESSAGES = View(
    key="messages",
    name=lambda message: str(message.id),
    empty="none.messages",
    columns=(
        Column("id", lambda m, now: str(m.id), right=True),
        Column("created", lambda m, now: local(m.create_time)),
        Column("author", lambda m, now: m.author),
        Column("for", lambda m, now: _recipient(m)),
        Column("text", lambda m, now: m.text, folds=True),
        Column("expires", lambda m, now: expiry_text(m.expire_time), wide=True),
    ),
)


def _address_text(webhook: Webhook) -> str:
    """Return scheme and host: the path of a URL is often a secret, and people share screens."""
    return "/".join(webhook.url.split("/")[:3])


WEBHOOKS = View(
    key="webhooks",
    name=lambda webhook: webhook.name,
    empty="none.webhooks",
    columns=(
        Column("name", lambda w, now: w.name),
        Column("host", lambda w, now: _address_text(w)),
        Column("on", lambda w, now: ",".join(w.news)),
        Column("tag", lambda w, now: w.tag or "-"),
        Column("format", lambda w, now: w.format),
        Column("told", lambda w, now: since(w.last_time, now)),
        Column("error", lambda w, now: w.last_error or "-", folds=True),
        Column("created", lambda w, now: local(w.create_time), wide=True),
    ),
)

AUDIT = View(
    key="rows",
    name=lambda row: (
        f"{row.time.ToJsonString()} {row.actor} {row.method} {row.resource} {row.code}"
    ),
    empty="none.audit",
    columns=(
        Column("time", lambda r, now: local(r.time)),
        Column("actor", lambda r, now: r.actor),
        Column("method", lambda r, now: r.method),
        Column("resource", lambda r, now: r.resource or "-"),
        Column("code", lambda r, now: r.code),
        Column("what", lambda r, now: r.what or "-", folds=True),
    ),
)
