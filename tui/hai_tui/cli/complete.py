"""What the shell offers after a Tab: ids and names from the server, quietly nothing without one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from hai_tui.cli.session import call
from hai_tui.cli.settings import Settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hai.client.client import Client

_PATIENCE_SECONDS = 2.0
"""A Tab that takes longer feels broken."""

Pairs = Iterable[tuple[str, str]]


def _ask(
    ctx: click.Context, incomplete: str, work: Callable[[Client], Awaitable[Pairs]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        pairs = call(ctx.ensure_object(Settings), lambda client: _in_time(work(client)))
    except Exception:  # a broken completion must never disturb the line that is being typed
        return []
    return [CompletionItem(v, help=h) for v, h in pairs if v.startswith(incomplete)]


async def _in_time(answer: Awaitable[Pairs]) -> Pairs:
    import asyncio

    return await asyncio.wait_for(answer, _PATIENCE_SECONDS)


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the newest tasks; names once a letter is typed."""

    async def work(client: Client) -> Pairs:
        newest = (await client.tasks.list(page_size=100)).tasks
        if incomplete and not incomplete.isdigit():
            return {task.name: str(task.id) for task in newest}.items()
        return [(str(task.id), task.name) for task in newest]

    return _ask(ctx, incomplete, work)


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of nodes."""

    async def work(client: Client) -> Pairs:
        return [(node.name, node.group) for node in await client.nodes.list()]

    return _ask(ctx, incomplete, work)


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of node groups."""

    async def work(client: Client) -> Pairs:
        found = await client.nodes.groups()
        return [(group.name, f"{group.free_nodes} of {group.nodes} free") for group in found]

    return _ask(ctx, incomplete, work)


def users(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of users."""

    async def work(client: Client) -> Pairs:
        return [(user.name, ",".join(user.groups)) for user in await client.users.list()]

    return _ask(ctx, incomplete, work)


def user_groups(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of the groups that users are in, with their users."""

    async def work(client: Client) -> Pairs:
        found = await client.users.list()
        names = sorted({group for user in found for group in user.groups})
        return [(name, ",".join(u.name for u in found if name in u.groups)) for name in names]

    return _ask(ctx, incomplete, work)


def profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of profiles."""
    from click.shell_completion import CompletionItem

    from hai.client.profile import names

    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]
