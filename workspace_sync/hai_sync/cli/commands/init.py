"""`haiworkspace init NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hai_sync.cli.options import common, note_unused, wants_json
from hai_sync.cli.reporting import event
from hai_sync.cli.session_factory import with_connection
from hai_sync.workspace_dir import create


@click.command()
@click.argument("name")
@click.option("-p", "--provider", hidden=True)
@common
def init(name: str, **options: Any) -> int:
    """Make this directory the workspace NAME.

    The name is yours on the cluster too; an existing workspace of that name is joined.
    """
    from hai.client.connection.transport import Connection
    from hai_sync.remote.endpoint import Remote

    note_unused(options)
    workspace, new = create(Path.cwd(), name)

    async def work(connection: Connection) -> str:
        return (await Remote(connection, name).create()).path

    path = with_connection(options["profile"], work)
    if wants_json(options):
        event("done", name=name, local=str(workspace.root), remote=path, new=new)
    else:
        verb = "is now" if new else "is already"
        click.echo(f"{workspace.root} {verb} the workspace {name!r}, on the cluster {path}")
    return 0
