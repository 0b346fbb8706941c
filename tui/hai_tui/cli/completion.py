"""What the shell offers after a Tab: ids and names from the server, quietly nothing without one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.settings import Settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hai.client.client import Client

_PATIENCE_SECONDS = 2.0
"""A Tab that takes longer feels broken."""

Pairs = Iterable[tuple[str, str]]


def _complete(
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


def files(
    ctx: click.Context, param: click.Parameter | None, incomplete: str
) -> list[CompletionItem]:
    """Files of this machine: the shell knows them best."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the newest tasks; names once a letter is typed."""

    async def work(client: Client) -> Pairs:
        newest = (await client.tasks.list(page_size=100)).tasks
        if incomplete and not incomplete.isdigit():
            return {task.name: str(task.id) for task in newest}.items()
        return [(str(task.id), task.name) for task in newest]

    return _complete(ctx, incomplete, work)


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of nodes."""

    async def work(client: Client) -> Pairs:
        return [(node.name, node.group) for node in await client.nodes.list()]

    return _complete(ctx, incomplete, work)


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of node groups."""

    async def work(client: Client) -> Pairs:
        found = await client.nodes.groups()
        return [(group.name, f"{group.free_nodes} of {group.nodes} free") for group in found]

    return _complete(ctx, incomplete, work)


def users(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of users."""

    async def work(client: Client) -> Pairs:
        return [(user.name, ",".join(user.groups)) for user in await client.users.list()]

    return _complete(ctx, incomplete, work)


def user_groups(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of the groups that users are in, with their users."""

    async def work(client: Client) -> Pairs:
        found = await client.users.list()
        names = sorted({group for user in found for group in user.groups})
        return [(name, ",".join(u.name for u in found if name in u.groups)) for name in names]

    return _complete(ctx, incomplete, work)


def owners(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Who a mount rule may be for: users, their groups, everybody."""

    async def work(client: Client) -> Pairs:
        found = await client.users.list()
        names = {user.name for user in found} | {group for user in found for group in user.groups}
        return [(name, "") for name in sorted({*names, "public"})]

    return _complete(ctx, incomplete, work)


def mount_rules(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Ids of mount rules."""

    async def work(client: Client) -> Pairs:
        return [(str(rule.id), rule.mount_path) for rule in await client.storage.rules()]

    return _complete(ctx, incomplete, work)


def ports(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Numbers of own ports."""

    async def work(client: Client) -> Pairs:
        found = await client.ports.list()
        return [(str(port.node_port), f"{port.task_name} {port.service}") for port in found]

    return _complete(ctx, incomplete, work)


def artifacts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Artifacts, as commands take them."""
    from hai_tui.views.artifacts import reference

    async def work(client: Client) -> Pairs:
        return [(reference(found), found.type) for found in await client.artifacts.list()]

    return _complete(ctx, incomplete, work)


def datasets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Datasets, as commands take them."""

    async def work(client: Client) -> Pairs:
        return [(f"{d.name}:{d.version}", d.path) for d in await client.datasets.list()]

    return _complete(ctx, incomplete, work)


def images(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of built-in images."""

    async def work(client: Client) -> Pairs:
        return [(image.name, image.reference) for image in await client.images.list()]

    return _complete(ctx, incomplete, work)


def webhooks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the caller's webhooks."""

    async def work(client: Client) -> Pairs:
        return [(found.name, found.format) for found in await client.webhooks.list()]

    return _complete(ctx, incomplete, work)


def registries(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Prefixes of registries."""

    async def work(client: Client) -> Pairs:
        return [(found.prefix, found.username) for found in await client.images.registries()]

    return _complete(ctx, incomplete, work)


_RIGHTS = (
    *("assign_nodes", "manage_tasks", "manage_nodes", "manage_users", "manage_quotas"),
    *("manage_tokens", "manage_storage", "manage_images", "image:", "ports:", "custom_service:"),
    "workspace_gb:",
    *("cap:", "gid:", "privileged", "host_ipc", "host_pid", "host_network"),
)


def rights(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Words for rights."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in _RIGHTS if name.startswith(incomplete)]


def profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of profiles."""
    from click.shell_completion import CompletionItem

    from hai.client.profile import names

    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]
