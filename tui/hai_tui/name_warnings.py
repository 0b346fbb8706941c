"""Warnings about names of groups and users that do not exist.

They are not errors, because a setting may be made before the group or user that it names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.user_pb2 import User

_FILTER_TERM = re.compile(r"(?:^|\s)(group|user)[:=](\S+)")
_USER_LIST = "`hai user list` lists all users"


async def group_warning(client: Client, name: str) -> str:
    """Return a warning if no node belongs to the node group, else an empty string."""
    existing = [group.name for group in await client.nodes.groups() if group.nodes]
    if name in existing:
        return ""
    suggestion = _suggestion(name, existing, "`hai groups` lists the groups with nodes")
    return f"no node belongs to the group {name} now: {suggestion}"


async def user_group_warning(client: Client, name: str) -> str:
    """Return a warning if the user group has no members, else an empty string."""
    users = await list_users(client)
    existing = {group for user in users for group in user.groups}
    if not users or name in existing:
        return ""
    return f"nobody is in the user group {name} now: {_suggestion(name, existing)}"


async def user_warning(client: Client, name: str) -> str:
    """Return a warning if no user has this name, else an empty string."""
    existing = {user.name for user in await list_users(client)}
    if not existing or name in existing:
        return ""
    return f"there is no user {name}: {_suggestion(name, existing)}"


async def subject_warning(client: Client, name: str) -> str:
    """Return a warning if neither a user nor a user group has this name, else an empty string."""
    users = await list_users(client)
    existing = {user.name for user in users} | {group for user in users for group in user.groups}
    if not users or name in existing:
        return ""
    return f"there is no user or user group {name}: {_suggestion(name, existing)}"


async def new_group_warnings(client: Client, user: User) -> list[str]:
    """Return a warning for each group without other members whose name resembles another group's."""
    users = await list_users(client)
    others = {group for other in users if other.name != user.name for group in other.groups}
    warnings = []
    for name in user.groups:
        near = [] if name in others else get_close_matches(name, sorted(others), n=1)
        if near:
            warnings.append(f"nobody else is in the user group {name}: did you mean {near[0]}?")
    return warnings


async def filter_warnings(client: Client, filter: str) -> list[str]:
    """Return a warning for each node group and user in a task filter that does not exist."""
    warnings = []
    for key, values in _FILTER_TERM.findall(filter):
        warning_of = group_warning if key == "group" else user_warning
        names = [name for name in values.replace('"', "").split(",") if "*" not in name]
        warnings += [
            await warning_of(client, name) for name in names if (key, name) != ("user", "me")
        ]
    return [warning for warning in warnings if warning]


_FIELD_WARNINGS = {
    "group": group_warning,
    "user_group": user_group_warning,
    "user": user_warning,
    "holder": user_warning,
}


async def field_warnings(client: Client, values: Mapping[str, str]) -> dict[str, str]:
    """Return a warning for each field of a form that names a group or user that does not exist."""
    subject_kind = "user_group" if values.get("subject_is_group") == "yes" else "user"
    warnings = {}
    for field, value in values.items():
        warning_of = _FIELD_WARNINGS.get(subject_kind if field == "subject" else field)
        if warning_of and value.strip() and (warning := await warning_of(client, value.strip())):
            warnings[field] = text("form.doubt", doubt=warning)
    return warnings


async def list_users(client: Client) -> Sequence[User]:
    """Return all users; none if the caller may not list them."""
    from hai.client.errors import Denied

    try:
        return await client.users.list()
    except Denied:
        return ()


def _suggestion(name: str, existing: Collection[str], hint: str = _USER_LIST) -> str:
    near = get_close_matches(name, sorted(existing), n=1)
    return f"did you mean {near[0]}?" if near else f"check the spelling; {hint}"
