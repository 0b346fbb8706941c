"""`hai audit`: the calls that changed something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import TableCommand
from hai_tui.cli.completion import complete_users
from hai_tui.cli.output.output import note_warnings, show
from hai_tui.cli.parameters import since_option, until_option
from hai_tui.cli.settings import Settings, with_client
from hai_tui.name_warnings import user_warning
from hai_tui.views.accounts import AUDIT

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client
    from hai.v1.audit_service_pb2 import AuditRow


@click.command("audit", cls=TableCommand)
@click.option("--actor", default="", shell_complete=complete_users, help="Only what this user did.")
@click.option("--method", default="", help="Only calls of this method, such as StopTask.")
@click.option("--resource", default="", help="Only calls about this task, node, user ….")
@click.option("--code", default="", help="Only calls with this result, such as PERMISSION_DENIED.")
@click.option("--failed", is_flag=True, help="Only calls that were refused or failed.")
@since_option
@until_option
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="At most so many; 0 means all.",
)
@with_client
async def audit(
    settings: Settings,
    client: Client,
    /,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    **terms: Any,
) -> None:
    """Show who changed what, newest first: every call that changed something or tried to. For operators.

    Submissions appear in the timeline of their task (`hai events`) instead.

    \b
    Examples:
      hai audit
      hai audit --actor ada --since 1d
      hai audit --method StopTask --resource 12
      hai audit --failed -n 0 --json | jq -r '.rows[].actor' | sort | uniq -c
    """
    terms["code"] = terms["code"].upper()

    rows = await _newest_rows(client, limit, start=since, end=until, **terms)
    show(settings, AUDIT, rows)
    if terms["actor"] and not rows:
        note_warnings(settings, await user_warning(client, terms["actor"]))


async def _newest_rows(client: Client, limit: int, **terms: Any) -> list[AuditRow]:
    """Return the newest rows, at most `limit`; 0 means all."""
    from contextlib import aclosing

    rows_found: list[AuditRow] = []
    async with aclosing(client.audit.rows(page_size=limit or 1000, **terms)) as rows:
        async for row in rows:
            rows_found.append(row)
            if len(rows_found) == limit:
                break
    return rows_found
