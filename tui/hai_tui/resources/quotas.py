"""How many nodes a user or a group may have: quotas and shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hai_tui.formatting.charts import bar
from hai_tui.formatting.table import Column
from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb
from hai_tui.resources.subject_fields import EXPIRES, IS_GROUP, set_expiry
from hai_tui.views.accounts import QUOTAS, SHARES, until

if TYPE_CHECKING:
    from hai.v1.user_pb2 import Quota, Share

_BAR = 10  # characters
_FULL, _NEARLY = 100, 75  # percent
_GROUP = Field("group", lambda item: "default")
_SHARE_FIELDS = (
    Field("guaranteed", lambda s: str(s.guaranteed) if s else "0"),
    Field("weight", lambda s: str(s.weight) if s else "0"),
    Field("limit", lambda s: str(s.limit) if s and s.HasField("limit") else "none"),
)


def _use(quota: Quota) -> str:
    """A bar and a percentage."""
    if not quota.nodes:
        return "-"
    part = quota.used / quota.nodes
    return f"{bar(part, _BAR)} {part:.0%}"


def _urgency(shown: str) -> str:
    """Full is red, nearly full yellow."""
    percent = int(shown.rpartition(" ")[2].removesuffix("%")) if shown.endswith("%") else 0
    return "red" if percent >= _FULL else "yellow" if percent >= _NEARLY else "green"


def _quota(item: Quota | None, answers: Answers) -> Quota:
    from hai.v1.user_pb2 import Quota

    made = Quota()
    if item is not None:
        made.CopyFrom(item)
        made.ClearField("used")
    else:
        made.subject = answers.text("subject")
        made.subject_is_group = answers.flag("subject_is_group")
        made.group = answers.text("group")
        made.priority = answers.level("level")
    made.nodes = answers.number("nodes")
    set_expiry(made, answers)
    return made


def _share(item: Share | None, answers: Answers) -> Share:
    from hai.v1.user_pb2 import Share

    made = Share(
        user_group=item.user_group if item else answers.text("user_group"),
        group=item.group if item else answers.text("group"),
        guaranteed=answers.number("guaranteed"),
        weight=answers.number("weight"),
    )
    if answers.text("limit") not in ("", "none"):
        made.limit = answers.number("limit")
    return made


RESOURCES = (
    ResourceSpec(
        "quotas",
        QUOTAS,
        lambda client: client.users.quotas(),
        (
            Verb(
                "a",
                "new",
                lambda client, made: client.users.set_quota(made),
                lambda item, answers: _quota(None, answers),
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
                lambda client, made: client.users.set_quota(made),
                _quota,
                (
                    Field("nodes", lambda q: str(q.nodes)),
                    Field("expires", lambda q: until(q.expire_time), violation="expire_time"),
                ),
                right="manage_quotas",
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, q: client.users.delete_quota(
                    q.subject, q.group, q.priority, q.subject_is_group
                ),
                needs_confirmation=True,
                right="manage_quotas",
            ),
        ),
        extra=(Column("use", lambda q, now: _use(q), style=_urgency),),
    ),
    ResourceSpec(
        "shares",
        SHARES,
        lambda client: client.users.shares(),
        (
            Verb(
                "a",
                "new",
                lambda client, made: client.users.set_share(made),
                lambda item, answers: _share(None, answers),
                (Field("user_group"), _GROUP, *_SHARE_FIELDS),
                new=True,
                right="manage_quotas",
            ),
            Verb(
                "e",
                "edit",
                lambda client, made: client.users.set_share(made),
                _share,
                _SHARE_FIELDS,
                right="manage_quotas",
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, s: client.users.delete_share(s.user_group, s.group),
                needs_confirmation=True,
                right="manage_quotas",
            ),
        ),
    ),
)
