"""Names of groups and users that are perhaps mistyped: only questioned, for settings may come before what they name."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.user_pb2 import User

_NAMING = re.compile(r"(?:^|\s)(group|user)[:=](\S+)")


async def question_group(client: Client, settings: Settings, name: str) -> None:
    """A note when no node belongs to the group."""
    if doubt := await doubt_of_group(client, name):
        note(settings, doubt)


async def question_user(client: Client, settings: Settings, name: str) -> None:
    """A note when nobody has this name."""
    if doubt := await doubt_of_user(client, name):
        note(settings, doubt)


async def question_user_group(client: Client, settings: Settings, name: str) -> None:
    """A note when nobody is in the user group."""
    if doubt := await doubt_of_user_group(client, name):
        note(settings, doubt)


async def question_own_groups(client: Client, settings: Settings, user: User) -> None:
    """A note for each user group that nobody else is in, where another is called much like it."""
    others = {group for u in await _users(client) if u.name != user.name for group in u.groups}
    for name in user.groups:
        near = [] if name in others else get_close_matches(name, sorted(others), n=1)
        if near:
            note(settings, f"nobody else is in the user group {name}: did you mean {near[0]}?")


async def question_subject(client: Client, settings: Settings, name: str) -> None:
    """A note when it is neither a user nor a user group of anybody."""
    users = await _users(client)
    known = {user.name for user in users} | {group for user in users for group in user.groups}
    if users and name not in known:
        note(settings, f"there is no user or user group {name}: {_meant(name, known, _USERS)}")


async def question_filter(client: Client, settings: Settings, filter: str) -> None:
    """A note for each node group and user of a filter of tasks that is not known."""
    for doubt in await doubts_of_filter(client, filter):
        note(settings, doubt)


async def doubts_of_filter(client: Client, filter: str) -> list[str]:
    """A sentence for each node group and user of a filter of tasks that is not known."""
    doubts = []
    for key, values in _NAMING.findall(filter):
        doubt_of = doubt_of_group if key == "group" else doubt_of_user
        names = [name for name in values.replace('"', "").split(",") if "*" not in name]
        doubts += [await doubt_of(client, name) for name in names if (key, name) != ("user", "me")]
    return [doubt for doubt in doubts if doubt]


_USERS = "`hai user list` shows those that there are"


async def doubt_of_group(client: Client, name: str) -> str:
    """A sentence when no node belongs to the group."""
    known = [group.name for group in await client.nodes.groups() if group.nodes]
    if name in known:
        return ""
    meant = _meant(name, known, "`hai groups` lists those with nodes")
    return f"no node belongs to the group {name} now: {meant}"


async def doubt_of_user_group(client: Client, name: str) -> str:
    """A sentence when nobody is in the user group."""
    users = await _users(client)
    known = {group for user in users for group in user.groups}
    if not users or name in known:
        return ""
    return f"nobody is in the user group {name} now: {_meant(name, known, _USERS)}"


async def doubt_of_user(client: Client, name: str) -> str:
    """A sentence when nobody has this name."""
    known = {user.name for user in await _users(client)}
    if not known or name in known:
        return ""
    return f"there is no user {name}: {_meant(name, known, _USERS)}"


async def _users(client: Client) -> Sequence[User]:
    """Nobody for who may not list them."""
    from hai.client.errors import Denied

    try:
        return await client.users.list()
    except Denied:
        return ()


def _meant(name: str, known: Collection[str], else_: str) -> str:
    near = get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"is it written so? {else_}"
