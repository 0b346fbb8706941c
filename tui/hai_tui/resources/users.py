"""Users, the rights that they hold, and the audit log of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hai.client.text.formatting import enum_name
from hai_tui.resources.resource_spec import (
    EXPIRES,
    IS_GROUP,
    YES_NO,
    Answers,
    Field,
    ResourceSpec,
    Verb,
    delete_verb,
)
from hai_tui.views.accounts import AUDIT, GRANTS, USERS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.audit_service_pb2 import AuditRow
    from hai.v1.user_pb2 import Grant, User

ROLES = ("user", "operator", "admin")
_MAX_AUDIT_ROWS = 1000  # the newest ones; `hai audit` finds older ones


def _role_name(user: User) -> str:
    from hai.v1.user_pb2 import Role

    return enum_name(Role, user.role).lower()


def _user(item: User | None, answers: Answers) -> User:
    from hai.v1.user_pb2 import Role, User

    user = User()
    if item is not None:
        user.CopyFrom(item)
    user.name = user.name or answers.text("name")
    user.role = Role.Value(f"ROLE_{answers.choice('role', ROLES).upper()}")
    user.groups[:] = answers.list_of("groups")
    user.rights[:] = answers.list_of("rights")
    user.uid = answers.number("uid")
    user.active = answers.choice("active", YES_NO) == "yes"
    return user


def _ban_or_unban(item: User, answers: Answers) -> User:
    from hai.v1.user_pb2 import User

    user = User()
    user.CopyFrom(item)
    user.active = not user.active
    return user


_USER_FIELDS = (
    Field("role", lambda u: _role_name(u) if u else "user", ROLES),
    Field("groups", lambda u: ",".join(u.groups) if u else ""),
    Field("rights", lambda u: ",".join(u.rights) if u else ""),
    Field("uid", lambda u: str(u.uid) if u else "0"),
    Field("active", lambda u: "yes" if u is None or u.active else "no", YES_NO),
)


def _grant(item: Any, answers: Answers) -> Grant:
    from hai.v1.user_pb2 import Grant

    grant = Grant(
        subject=answers.text("subject"),
        subject_is_group=answers.flag("subject_is_group"),
        right=answers.text("right"),
    )
    answers.set_expiry(grant)
    return grant


async def _audit_rows(client: Client) -> Sequence[AuditRow]:
    from hai.v1.audit_service_pb2 import ListAuditRowsRequest

    return (await client.audit.page(ListAuditRowsRequest(page_size=_MAX_AUDIT_ROWS))).rows


RESOURCES = (
    ResourceSpec(
        "users",
        USERS,
        lambda client: client.users.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, user: client.users.create(user),
                _user,
                (Field("name"), *_USER_FIELDS),
                new=True,
                right="manage_users",
            ),
            Verb(
                "e",
                "edit",
                lambda client, user: client.users.update(user),
                _user,
                _USER_FIELDS,
                right="manage_users",
            ),
            Verb(
                "B",
                "ban",
                lambda client, user: client.users.update(user),
                _ban_or_unban,
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
                lambda client, grant: client.users.grant(grant),
                _grant,
                (Field("subject"), IS_GROUP, Field("right"), EXPIRES),
                new=True,
                right="grant_rights",
            ),
            delete_verb(
                lambda client, g: client.users.revoke(g.subject, g.right, g.subject_is_group),
                name="revoke",
                right="grant_rights",
            ),
        ),
    ),
    ResourceSpec("audit", AUDIT, _audit_rows, limit=_MAX_AUDIT_ROWS),
)
