"""Values that the shell offers after Tab. Most come from the server; without a server nothing is offered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from hai_tui.cli.settings import Settings, call_server

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hai.client.client import Client

_TIMEOUT_SECONDS = 2.0

Pairs = Iterable[tuple[str, str]]
"""Values, each with a description."""

Completer = Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]

_RIGHTS = (
    *("assign_nodes", "manage_tasks", "manage_nodes", "manage_users", "manage_quotas"),
    *("manage_tokens", "manage_storage", "manage_images", "image:", "ports:", "custom_service:"),
    "workspace_gb:",
    *("cap:", "gid:", "privileged", "host_ipc", "host_pid", "host_network"),
)


def _ask_server(fetch: Callable[[Client, str], Awaitable[Pairs]]) -> Completer:
    """Turn an async function into a completer of click.

    `fetch` receives the text typed so far. It may return values that do not match the text.
    """

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        import asyncio

        from click.shell_completion import CompletionItem

        async def fetch_in_time(client: Client) -> Pairs:
            return await asyncio.wait_for(fetch(client, incomplete), _TIMEOUT_SECONDS)

        try:
            pairs = call_server(ctx.ensure_object(Settings), fetch_in_time)
        except Exception:  # a failed completion must not disturb the line that the user types
            return []
        return [CompletionItem(v, help=h) for v, h in pairs if v.startswith(incomplete)]

    return complete


@_ask_server
async def complete_tasks(client: Client, incomplete: str) -> Pairs:
    """Offer ids of the newest tasks, or their names once a letter is typed."""
    newest = (await client.tasks.list(page_size=100)).tasks
    if incomplete and not incomplete.isdigit():
        return {task.name: str(task.id) for task in newest}.items()
    return [(str(task.id), task.name) for task in newest]


@_ask_server
async def complete_nodes(client: Client, incomplete: str) -> Pairs:
    return [(node.name, node.group) for node in await client.nodes.list()]


@_ask_server
async def complete_groups(client: Client, incomplete: str) -> Pairs:
    groups = await client.nodes.groups()
    return [(group.name, f"{group.free_nodes} of {group.nodes} free") for group in groups]


@_ask_server
async def complete_users(client: Client, incomplete: str) -> Pairs:
    return [(user.name, ",".join(user.groups)) for user in await client.users.list()]


@_ask_server
async def complete_user_groups(client: Client, incomplete: str) -> Pairs:
    users = await client.users.list()
    names = sorted({group for user in users for group in user.groups})
    return [(name, ",".join(u.name for u in users if name in u.groups)) for name in names]


@_ask_server
async def complete_owners(client: Client, incomplete: str) -> Pairs:
    """Offer the owners that a mount rule may name: users, user groups and `public`."""
    users = await client.users.list()
    names = {user.name for user in users} | {group for user in users for group in user.groups}
    return [(name, "") for name in sorted({*names, "public"})]


@_ask_server
async def complete_mount_rules(client: Client, incomplete: str) -> Pairs:
    return [(str(rule.id), rule.mount_path) for rule in await client.storage.rules()]


@_ask_server
async def complete_ports(client: Client, incomplete: str) -> Pairs:
    """Offer the port numbers of the caller."""
    ports = await client.ports.list()
    return [(str(port.node_port), f"{port.task_name} {port.service}") for port in ports]


@_ask_server
async def complete_artifacts(client: Client, incomplete: str) -> Pairs:
    from hai_tui.views.artifacts import artifact_reference

    return [
        (artifact_reference(artifact), artifact.type) for artifact in await client.artifacts.list()
    ]


@_ask_server
async def complete_datasets(client: Client, incomplete: str) -> Pairs:
    return [(f"{d.name}:{d.version}", d.path) for d in await client.datasets.list()]


@_ask_server
async def complete_images(client: Client, incomplete: str) -> Pairs:
    return [(image.name, image.reference) for image in await client.images.list()]


@_ask_server
async def complete_webhooks(client: Client, incomplete: str) -> Pairs:
    return [(webhook.name, webhook.format) for webhook in await client.webhooks.list()]


@_ask_server
async def complete_registries(client: Client, incomplete: str) -> Pairs:
    return [(reg.prefix, reg.username) for reg in await client.images.registries()]


def complete_files(
    ctx: click.Context, param: click.Parameter | None, incomplete: str
) -> list[CompletionItem]:
    """Let the shell offer the files of this machine."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_rights(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in _RIGHTS if name.startswith(incomplete)]


def complete_profiles(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from hai.client.profile import names

    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]
