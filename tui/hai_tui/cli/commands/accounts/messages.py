"""`hai message …`: messages of operators to users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_users
from hai_tui.cli.output.output import note, note_warnings, show, show_one
from hai_tui.cli.parameters import expires_option
from hai_tui.cli.settings import Settings, with_client
from hai_tui.name_warnings import user_group_warning
from hai_tui.views.accounts import MESSAGES

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client


@click.group("message", cls=HaiGroup)
def message() -> None:
    """Read messages of operators; send messages (operators)."""


@message.command("list", cls=TableCommand)
@click.option(
    "--all", "everybody", is_flag=True, help="All messages, also old ones; for operators."
)
@with_client
async def list_messages(settings: Settings, client: Client, everybody: bool) -> None:
    """List messages for you, newest first."""
    show(settings, MESSAGES, await client.messages.list(all=everybody))


@message.command("send", cls=HaiCommand)
@click.argument("text")
@click.option("--to", "subject", default="", shell_complete=complete_users, help="Default: all.")
@click.option("--user-group", "is_group", is_flag=True, help="--to names a user group.")
@expires_option
@with_client
async def send(
    settings: Settings,
    client: Client,
    text: str,
    subject: str,
    is_group: bool,
    expires: datetime | None,
) -> None:
    """Send a message to everybody, to a user, or to a user group. For operators.

    \b
    Examples:
      hai message send 'the cluster rests on Sunday from 8 to 10' --expires 3d
      hai message send 'your quota has grown' --to ada
      hai message send 'please clean up /lab' --to vision --user-group
    """
    from hai.v1.message_service_pb2 import Message

    new = Message(text=text, subject=subject, subject_is_group=is_group)
    if expires:
        new.expire_time.FromDatetime(expires)

    show_one(settings, MESSAGES, await client.messages.create(new))
    if is_group:
        note_warnings(settings, await user_group_warning(client, subject))


@message.command("delete", cls=HaiCommand)
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@with_client
async def delete(settings: Settings, client: Client, ids: tuple[int, ...]) -> None:
    """Delete messages."""
    for id in ids:
        await client.messages.delete(id)
        note(settings, f"message {id} is deleted")
