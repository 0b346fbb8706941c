"""Who may do what: users and rights; and what everybody did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hai.client.text.formatting import enum_name
from hai_tui.resources.resource_spec import YES_NO, Answers, Field, ResourceSpec, Verb
from hai_tui.resources.subject_fields import EXPIRES, IS_GROUP, set_expiry
from hai_tui.views.accounts import AUDIT, GRANTS, USERS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.audit_service_pb2 import AuditRow
    from hai.v1.user_pb2 import Grant, User

ROLES = ("user", "operator", "admin")
_CALLS = 1000  # the newest ones; `hai audit` finds others


def _role(user: User) -> str:
    from hai.v1.user_pb2 import Role

    return enum_name(Role, user.role).lower()


def _user(item: User | None, answers: Answers) -> User:
    from hai.v1.user_pb2 import Role, User

    made = User()
    if item is not None:
        made.CopyFrom(item)
    made.name = made.name or answers.text("name")
    made.role = Role.Value(f"ROLE_{answers.choice('role', ROLES).upper()}")
    made.groups[:] = answers.list_of("groups")
    made.rights[:] = answers.list_of("rights")
    made.uid = answers.number("uid")
    made.active = answers.choice("active", YES_NO) == "yes"
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
    Field("active", lambda u: "yes" if u is None or u.active else "no", YES_NO),
)


def _grant(item: Any, answers: Answers) -> Grant:
    from hai.v1.user_pb2 import Grant

    made = Grant(
        subject=answers.text("subject"),
        subject_is_group=answers.flag("subject_is_group"),
        right=answers.text("right"),
    )
    set_expiry(made, answers)
    return made


async def _audit(client: Client) -> Sequence[AuditRow]:
    from hai.v1.audit_service_pb2 import ListAuditRowsRequest

    return (await client.audit.page(ListAuditRowsRequest(page_size=_CALLS))).rows


RESOURCES = (
    ResourceSpec(
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
                needs_confirmation=True,
                right="manage_users",
            ),
        ),
    ),
    ResourceSpec(
        "rights",
        GRANTS,
        lambda client: client.users.rights(),
        (
            Verb(
                "a",
                "grant",
                lambda client, made: client.users.grant(made),
                _grant,
                (Field("subject"), IS_GROUP, Field("right"), EXPIRES),
                new=True,
                right="grant_rights",
            ),
            Verb(
                "ctrl+d",
                "revoke",
                lambda client, g: client.users.revoke(g.subject, g.right, g.subject_is_group),
                needs_confirmation=True,
                right="grant_rights",
            ),
        ),
    ),
    ResourceSpec("audit", AUDIT, _audit, most=_CALLS),
)
