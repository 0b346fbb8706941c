"""`hai whoami`: the caller, their quotas and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hai.client.text.formatting import enum_name
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import dump, print_rows
from hai_tui.cli.settings import Settings, with_client
from hai_tui.formatting.table import width
from hai_tui.views.accounts import TOKENS, level_name

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.user_pb2 import Quota
    from hai.v1.user_service_pb2 import WhoAmIResponse

_BAR_CELLS = 20


@click.command("whoami", cls=HaiCommand)
@click.option("-a", "--ascii", is_flag=True, help="Draw bars with plain characters.")
@with_client
async def whoami(settings: Settings, client: Client, ascii: bool) -> None:
    """Show who you are, how much of your quotas is in use, and your tokens (never their secrets).

    \b
    Examples:
      hai whoami
      hai whoami --json | jq .user.role
    """
    _print(settings, await client.users.whoami(), "#-" if ascii else "█░")


def _print(settings: Settings, answer: WhoAmIResponse, glyphs: str) -> None:
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(answer))
    elif settings.names_only:
        click.echo(answer.user.name)
    else:
        click.echo(_user_text(answer))
        click.echo(_quota_text(answer.quotas, glyphs), nl=False)
        if answer.tokens:
            click.echo("\ntokens")
            print_rows(settings, TOKENS, answer.tokens)


def _user_text(answer: WhoAmIResponse) -> str:
    """Return lines about the caller: name, role, groups, rights."""
    from hai.v1.user_pb2 import Role

    user = answer.user
    lines = [f"user    {user.name}", f"role    {enum_name(Role, user.role)}"]
    if user.groups:
        lines.append(f"groups  {', '.join(user.groups)}")
    if user.rights:
        lines.append(f"rights  {', '.join(user.rights)}")
    return "\n".join(lines)


def _quota_text(quotas: Sequence[Quota], glyphs: str) -> str:
    """Return a bar for each quota, the most used first."""
    if not quotas:
        return ""
    size = max(width(_label(quota)) for quota in quotas)
    ordered = sorted(quotas, key=lambda q: (-q.used / max(q.nodes, 1), _label(q)))
    rows = [f"{_label(q):<{size}}  {_bar(q, glyphs)}  {q.used} of {q.nodes} nodes" for q in ordered]
    return "\nquotas\n" + "".join(f"{row}\n" for row in rows)


def _label(quota: Quota) -> str:
    return f"{quota.group} {level_name(quota)}"


def _bar(quota: Quota, glyphs: str) -> str:
    full = (
        min(_BAR_CELLS, round(_BAR_CELLS * quota.used / quota.nodes)) if quota.nodes else _BAR_CELLS
    )
    return glyphs[0] * full + glyphs[1] * (_BAR_CELLS - full)
