"""What admins and operators keep: users, quotas, shares, rights, mount rules; and what everybody did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hai_tui.cli.account_view import GRANTS, QUOTAS, SHARES, USERS, until
from hai_tui.cli.commands.audit import AUDIT
from hai_tui.cli.storage_view import RULES
from hai_tui.cli.table import Column
from hai_tui.look import bar
from hai_tui.resources.kind import Answers, Field, Resource, Verb

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.audit_service_pb2 import AuditRow
    from hai.v1.storage_pb2 import MountRule
    from hai.v1.user_pb2 import Grant, Quota, Share, User

ROLES = ("user", "operator", "admin")
KINDS = ("host_path", "nfs", "pvc", "config_map", "csi", "tmpfs")
_YES_NO = ("yes", "no")
_BAR = 10
_CALLS = 1000  # the newest ones; `hai audit` finds others
_FULL, _NEARLY = 100, 75  # percent
_GROUP = Field("group", lambda item: "default")
_IS_GROUP = Field("subject_is_group", lambda item: "no", _YES_NO)
_EXPIRES = Field("expires", violation="expire_time")


def use(quota: Quota) -> str:
    """A bar and a percentage."""
    if not quota.nodes:
        return "-"
    part = quota.used / quota.nodes
    return f"{bar(part, _BAR)} {part:.0%}"


def urgency(shown: str) -> str:
    """Full is red, nearly full yellow."""
    percent = int(shown.rpartition(" ")[2].removesuffix("%")) if shown.endswith("%") else 0
    return "red" if percent >= _FULL else "yellow" if percent >= _NEARLY else "green"


def _role(user: User) -> str:
    from hai.v1.user_pb2 import Role

    return Role.Name(user.role).removeprefix("ROLE_").lower()


def _user(item: User | None, answers: Answers) -> User:
    from hai.v1.user_pb2 import Role, User

    made = User()
    if item is not None:
        made.CopyFrom(item)
    made.name = made.name or answers.text("name")
    made.role = Role.Value(f"ROLE_{answers.choice('role', ROLES).upper()}")
    made.groups[:] = answers.words("groups")
    made.rights[:] = answers.words("rights")
    made.uid = answers.number("uid")
    made.active = answers.choice("active", _YES_NO) == "yes"
    return made


def _toggled(item: User, answers: Answers) -> User:
    from hai.v1.user_pb2 import User

    made = User()
    made.CopyFrom(item)
    made.active = not made.active
    return made


_USER_FIELDS = (
    Field("role", lambda u: _role(u) if u else "user", ROLES),
    Field("groups", lambda u: ",".join(u.groups) if u else ""),
    Field("rights", lambda u: ",".join(u.rights) if u else ""),
    Field("uid", lambda u: str(u.uid) if u else "0"),
    Field("active", lambda u: "yes" if u is None or u.active else "no", _YES_NO),
)


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
    _expire(made, answers)
    return made


def _expire(made: Any, answers: Answers) -> None:
    made.ClearField("expire_time")
    if (moment := answers.until("expires")) is not None:
        made.expire_time.FromDatetime(moment)


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


def _grant(item: Any, answers: Answers) -> Grant:
    from hai.v1.user_pb2 import Grant

    made = Grant(
        subject=answers.text("subject"),
        subject_is_group=answers.flag("subject_is_group"),
        right=answers.text("right"),
    )
    _expire(made, answers)
    return made


def _rule(item: Any, answers: Answers) -> MountRule:
    from hai.v1.storage_pb2 import MountKind, MountRule

    kind = answers.choice("kind", KINDS)
    return MountRule(
        owners=answers.words("owners"),
        mount_path=answers.text("mount_path"),
        source=answers.text("source"),
        kind=MountKind.Value(f"MOUNT_KIND_{kind.upper()}"),
        host_type=answers.text("host_type"),
        conditions=answers.words("conditions"),
        writable=answers.flag("writable"),
    )


async def _audit(client: Client) -> Sequence[AuditRow]:
    from hai.v1.audit_service_pb2 import ListAuditRowsRequest

    return (await client.audit.page(ListAuditRowsRequest(page_size=_CALLS))).rows


_SHARE_FIELDS = (
    Field("guaranteed", lambda s: str(s.guaranteed) if s else "0"),
    Field("weight", lambda s: str(s.weight) if s else "0"),
    Field("limit", lambda s: str(s.limit) if s and s.HasField("limit") else "none"),
)

RESOURCES = (
    Resource(
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
                    _IS_GROUP,
                    _GROUP,
                    Field("level", lambda q: "ALL", violation="priority"),
                    Field("nodes"),
                    _EXPIRES,
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
                asks=True,
                right="manage_quotas",
            ),
        ),
        extra=(Column("use", lambda q, now: use(q), style=urgency),),
    ),
    Resource(
        "users",
        USERS,
        lambda client: client.users.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, made: client.users.create(made),
                lambda item, answers: _user(None, answers),
                (Field("name"), *_USER_FIELDS),
                new=True,
                right="manage_users",
            ),
            Verb(
                "e",
                "edit",
                lambda client, made: client.users.update(made),
                _user,
                _USER_FIELDS,
                right="manage_users",
            ),
            Verb(
                "B",
                "ban",
                lambda client, made: client.users.update(made),
                _toggled,
                asks=True,
                right="manage_users",
            ),
        ),
    ),
    Resource(
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
                asks=True,
                right="manage_quotas",
            ),
        ),
    ),
    Resource(
        "rights",
        GRANTS,
        lambda client: client.users.rights(),
        (
            Verb(
                "a",
                "grant",
                lambda client, made: client.users.grant(made),
                _grant,
                (Field("subject"), _IS_GROUP, Field("right"), _EXPIRES),
                new=True,
                right="grant_rights",
            ),
            Verb(
                "ctrl+d",
                "revoke",
                lambda client, g: client.users.revoke(g.subject, g.right, g.subject_is_group),
                asks=True,
                right="grant_rights",
            ),
        ),
    ),
    Resource(
        "rules",
        RULES,
        lambda client: client.storage.rules(),
        (
            Verb(
                "a",
                "new",
                lambda client, made: client.storage.create_rule(made),
                _rule,
                (
                    Field("owners", lambda r: "public"),
                    Field("mount_path"),
                    Field("source"),
                    Field("kind", lambda r: "host_path", KINDS),
                    Field("host_type"),
                    Field("conditions"),
                    Field("writable", lambda r: "no", _YES_NO),
                ),
                new=True,
                right="manage_storage",
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, r: client.storage.delete_rule(r.id),
                asks=True,
                right="manage_storage",
            ),
        ),
    ),
    Resource("audit", AUDIT, _audit),
)
