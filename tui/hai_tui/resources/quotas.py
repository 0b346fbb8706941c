"""Quotas and shares: how many nodes a user or a user group may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hai_tui.formatting.charts import bar
from hai_tui.formatting.table import Column
from hai_tui.resources.resource_spec import (
    EXPIRES,
    IS_GROUP,
    Answers,
    Field,
    ResourceSpec,
    Verb,
    delete_verb,
)
from hai_tui.views.accounts import QUOTAS, SHARES, expiry_text

if TYPE_CHECKING:
    from hai.v1.user_pb2 import Quota, Share

_BAR_WIDTH = 10
_FULL_PERCENT, _NEARLY_FULL_PERCENT = 100, 75
_GROUP = Field("group", lambda item: "default")
_SHARE_FIELDS = (
    Field("guaranteed", lambda s: str(s.guaranteed) if s else "0"),
    Field("weight", lambda s: str(s.weight) if s else "0"),
    Field("limit", lambda s: str(s.limit) if s and s.HasField("limit") else "none"),
)


def _use_text(quota: Quota) -> str:
    if not quota.nodes:
        return "-"
    share = quota.used / quota.nodes
    return f"{bar(share, _BAR_WIDTH)} {share:.0%}"


def _use_style(use_text: str) -> str:
    percent = int(use_text.rpartition(" ")[2].removesuffix("%")) if use_text.endswith("%") else 0
    if percent >= _FULL_PERCENT:
        return "red"
    return "yellow" if percent >= _NEARLY_FULL_PERCENT else "green"


def _quota(item: Quota | None, answers: Answers) -> Quota:
    from hai.v1.user_pb2 import Quota

    quota = Quota()
    if item is not None:
        quota.CopyFrom(item)
        quota.ClearField("used")
    else:
        quota.subject = answers.text("subject")
        quota.subject_is_group = answers.flag("subject_is_group")
        quota.group = answers.text("group")
        quota.priority = answers.level("level")
    quota.nodes = answers.number("nodes")
    answers.set_expiry(quota)
    return quota


def _share(item: Share | None, answers: Answers) -> Share:
    from hai.v1.user_pb2 import Share

    share = Share(
        user_group=item.user_group if item else answers.text("user_group"),
        group=item.group if item else answers.text("group"),
        guaranteed=answers.number("guaranteed"),
        weight=answers.number("weight"),
    )
    if answers.text("limit") not in ("", "none"):
        share.limit = answers.number("limit")
    return share


RESOURCES = (
    ResourceSpec(
        "quotas",
        QUOTAS,
        lambda client: client.users.quotas(),
        (
            Verb(
                "a",
                "new",
                lambda client, quota: client.users.set_quota(quota),
                _quota,
                (
                    Field("subject"),
                    IS_GROUP,
                    _GROUP,
                    Field("level", lambda q: "ALL", violation="priority"),
                    Field("nodes"),
                    EXPIRES,
                ),
                new=True,
                right="manage_quotas",
            ),
            Verb(
                "e",
                "edit",
                lambda client, quota: client.users.set_quota(quota),
                _quota,
                (
                    Field("nodes", lambda q: str(q.nodes)),
                    Field("expires", lambda q: expiry_text(q.expire_time), violation="expire_time"),
                ),
                right="manage_quotas",
            ),
            delete_verb(
                lambda client, q: client.users.delete_quota(
                    q.subject, q.group, q.priority, q.subject_is_group
                ),
                right="manage_quotas",
            ),
        ),
        extra_columns=(Column("use", lambda q, now: _use_text(q), style=_use_style),),
    ),
    ResourceSpec(
        "shares",
        SHARES,
        lambda client: client.users.shares(),
        (
            Verb(
                "a",
                "new",
                lambda client, share: client.users.set_share(share),
                _share,
                (Field("user_group"), _GROUP, *_SHARE_FIELDS),
                new=True,
                right="manage_quotas",
            ),
            Verb(
                "e",
                "edit",
                lambda client, share: client.users.set_share(share),
                _share,
                _SHARE_FIELDS,
                right="manage_quotas",
            ),
            delete_verb(
                lambda client, s: client.users.delete_share(s.user_group, s.group),
                right="manage_quotas",
            ),
        ),
    ),
)
