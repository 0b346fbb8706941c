"""`hai message …`: what operators tell users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import users as complete_users
from hai_tui.cli.output.output import note, show, show_one, warn
from hai_tui.cli.settings import Settings
from hai_tui.cli.time_options import after_now
from hai_tui.name_warnings import user_group_warning
from hai_tui.views.accounts import MESSAGES

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client


_SEND_HELP = """Tell everybody something, or one user, or a user group. For operators.

\b
Examples:
  hai message send 'the cluster rests on Sunday from 8 to 10' --expires 3d
  hai message send 'your quota has grown' --to ada
  hai message send 'please clean up /lab' --to vision --user-group
"""


@click.group("message", cls=HaiGroup)
def message() -> None:
    """Read what operators say; say something (operators)."""


@message.command("list", cls=TableCommand)
@click.option("--all", "everybody", is_flag=True, help="To anybody, also old ones; for operators.")
@click.pass_obj
def list_messages(settings: Settings, everybody: bool) -> int:
    """List messages for you, newest first."""

    async def work(client: Client) -> int:
        show(settings, MESSAGES, await client.messages.list(all=everybody))
        return 0

    return call(settings, work)


@message.command("send", cls=HaiCommand, help=_SEND_HELP)
@click.argument("text")
@click.option("--to", "subject", default="", shell_complete=complete_users, help="Default: all.")
@click.option("--user-group", "is_group", is_flag=True, help="--to names a user group.")
@click.option(
    "--expires", metavar="TIME", callback=after_now, help="30d, or 2026-12-31. Default: never."
)
@click.pass_obj
def send(
    settings: Settings, text: str, subject: str, is_group: bool, expires: datetime | None
) -> int:
    """The function behind the command."""
    from hai.v1.message_service_pb2 import Message

    new = Message(text=text, subject=subject, subject_is_group=is_group)
    if expires:
        new.expire_time.FromDatetime(expires)

    async def work(client: Client) -> int:
        show_one(settings, MESSAGES, await client.messages.create(new))
        if is_group:
            warn(settings, await user_group_warning(client, subject))
        return 0

    return call(settings, work)


@message.command("delete", cls=HaiCommand)
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.pass_obj
def delete(settings: Settings, ids: tuple[int, ...]) -> int:
    """Take messages back."""

    async def work(client: Client) -> int:
        for id in ids:
            await client.messages.delete(id)
            note(settings, f"message {id} is deleted")
        return 0

    return call(settings, work)
